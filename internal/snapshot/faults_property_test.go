package snapshot

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// world is a scripted store: a master that the gateway hears, a replica that
// lags behind it, and whoever must agree that it is the master. It knows what
// was served when.
type world struct {
	m      *memoryStore
	feed   Feed
	gather *gather // nil: down

	newest   int // revision that was ever written
	replica  int // what the replica has of it
	isolated bool
	served   []serving
	seen     int
	looks    int // and how many of them were fresh
	fresh    int
	faults   []string
}

// serving is what the store served from a time on.
type serving struct {
	from     time.Time
	revision int
}

const worldAge = 2 * time.Second

func (w *world) serve(revision int) {
	w.served = append(w.served, serving{time.Now(), revision})
}

func (w *world) text(revision int) string {
	return leaseOf("lease-1", revision, fmt.Sprint("s", revision))
}

func (w *world) up() {
	if w.isolated {
		return
	}
	w.gather = newGather(w.feed, []string{"master", "sentinels"})
	w.gather.part(0).Up()
	w.gather.part(1).Up()
}

func (w *world) down() {
	if w.gather != nil {
		w.gather = nil
		w.feed.Down(errBroken)
	}
}

// write writes a newer revision, and tells of it unless the connection is lost
// first.
func (w *world) write(told bool) {
	w.newest++
	w.serve(w.newest)
	if w.isolated {
		return // elsewhere, where nobody listens yet
	}
	w.m.set(leaseKey, w.text(w.newest))
	switch {
	case w.gather != nil && told:
		w.gather.part(0).Changed(leaseKey)
	default:
		w.down()
	}
}

// promote makes the replica the master, with what it has. Until it is noticed
// the old one goes on as if nothing had happened, and can be read no more.
func (w *world) promote(noticed bool) {
	if w.isolated {
		return
	}
	w.newest = max(w.newest, w.replica)
	w.serve(w.replica)
	if !noticed && w.gather != nil {
		w.isolated = true
		w.m.fail(errBroken)
		return
	}
	w.notice()
}

// notice has the gateway find the new master.
func (w *world) notice() {
	w.down()
	w.isolated = false
	w.m.fail(nil)
	w.m.set(leaseKey, w.text(w.served[len(w.served)-1].revision))
	w.up()
}

func (w *world) confirm(part int) {
	if w.gather == nil || w.isolated && part == 1 {
		return // they name another master
	}
	w.gather.part(part).Confirm(time.Now())
}

func (w *world) step(what int, c *Cache) {
	switch what {
	case 0, 1:
		w.write(true)
	case 2:
		w.write(false)
	case 3:
		w.replica = w.served[len(w.served)-1].revision
	case 4:
		w.promote(true)
	case 5:
		w.promote(false)
	case 6:
		w.down()
	case 7, 8:
		if w.isolated {
			w.notice()
		} else if w.gather == nil {
			w.up()
		}
	case 9, 10:
		w.confirm(0)
	case 11, 12:
		w.confirm(1)
	case 13:
		w.m.mu.Lock()
		w.m.delay = time.Duration(w.newest%3) * 40 * time.Millisecond
		w.m.mu.Unlock()
	case 14:
		if w.gather != nil {
			w.gather.part(0).Up() // a flush: anything may have changed
		}
	case 15:
		c.Retain("lease-1")
	}
	w.look(c)
}

// look asks, and holds the answer against what was served.
func (w *world) look(c *Cache) {
	asked := time.Now()
	v := see(c)
	w.looks++
	if !v.Fresh {
		return
	}
	w.fresh++
	if age := time.Since(v.Confirmed); age > worldAge {
		w.fault("fresh at age %s", age)
	}
	if v.Snapshot.Lease == nil {
		return
	}
	revision := int(v.Snapshot.Lease.Revision)
	if revision < w.seen {
		w.fault("revision %d after %d", revision, w.seen)
	}
	w.seen = max(w.seen, revision)
	if !w.servedSince(revision, v.Confirmed) {
		w.fault("revision %d was not served at %s or later, asked at %s: %v", revision, v.Confirmed, asked, w.served)
	}
}

// servedSince reports that revision was served at some time from then on.
func (w *world) servedSince(revision int, then time.Time) bool {
	for i, s := range w.served {
		ended := i+1 < len(w.served) && w.served[i+1].from.Before(then)
		if s.revision == revision && !ended {
			return true
		}
	}
	return false
}

func (w *world) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

// Whatever is written, lost, cut and taken over, no decision rests on what the
// store has not served for longer than the age limit, or on a revision below
// one already seen; and there are decisions that rest on something.
func TestNoDecisionRestsOnFactsThatWereNotServed(t *testing.T) {
	looks, fresh, most := 0, 0, 0
	rapid.Check(t, func(r *rapid.T) {
		steps := rapid.SliceOfN(rapid.IntRange(0, 15), 30, 120).Draw(r, "steps")
		pauses := rapid.SliceOfN(rapid.IntRange(0, 300), len(steps), len(steps)).Draw(r, "pauses in ms")
		var faults []string
		bubble(t, Options{MaxAge: worldAge}, func(_ *testing.T, c *Cache, m *memoryStore, _ func() string) {
			w := &world{m: m, feed: m.feed, newest: 3, replica: 3}
			w.serve(3)
			m.feed.Down(errBroken)
			w.up()
			for i, what := range steps {
				w.step(what, c)
				time.Sleep(time.Duration(pauses[i]) * time.Millisecond)
				w.look(c)
			}
			faults = w.faults
			looks, fresh, most = looks+w.looks, fresh+w.fresh, max(most, w.seen)
		})
		if len(faults) > 0 {
			r.Fatal(faults)
		}
	})
	if fresh < looks/4 || most < 10 {
		t.Errorf("of %d views %d were fresh, of revision %d at most", looks, fresh, most)
	}
}
