package snapshot

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A record is written as often as a read takes: each read is of before the last
// change that was told, and yet what they say takes effect.
func TestAChangeAmongChangesWithoutEndIsSeen(t *testing.T) {
	bubble(t, Options{MaxAge: 5 * time.Second}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
		see(c)
		c.Retain("lease-1")
		told()
		const read = 20 * time.Millisecond
		revision := 10
		var written atomic.Int32
		stop := time.Now().Add(20 * time.Second)
		m.set(leaseKey, leaseOf("lease-1", revision, "revoked"))
		m.before = func([]Key) {
			time.Sleep(read / 2)
			if time.Now().Before(stop) {
				revision++
				written.Add(1)
				m.put(leaseKey, leaseOf("lease-1", revision, "revoked"))
				m.feed.Changed(leaseKey)
				m.feed.Confirm(time.Now())
			}
			time.Sleep(read / 2)
		}
		began := time.Now()
		m.feed.Changed(leaseKey)
		for told() == "" && time.Since(began) < 30*time.Second {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began); took > 4*read {
			t.Errorf("the revocation was told of after %s", took)
		}
		// Who asks now hears what was read since, however much is written.
		for range 20 {
			time.Sleep(7 * time.Millisecond)
			v := see(c)
			if !v.Fresh || v.Snapshot.Lease.Status != "revoked" {
				t.Errorf("a request was told fresh %v, %+v: %v", v.Fresh, v.Snapshot, v.Err)
			}
		}
		if n := written.Load(); n < 10 {
			t.Errorf("only %d changes", n)
		}
	})
}

// The same of two records of a lease, each with a read of its own under way all
// the time: no read of one ends while nothing is told of the other.
func TestAChangeAmongChangesOfSeveralRecordsIsSeen(t *testing.T) {
	bubble(t, Options{MaxAge: 5 * time.Second}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
		see(c)
		c.Retain("lease-1")
		told()
		const read = 20 * time.Millisecond
		stop := time.Now().Add(10 * time.Second)
		m.before = func(keys []Key) {
			time.Sleep(read / 2)
			if time.Now().Before(stop) {
				for _, k := range keys {
					if k == leaseKey || k == envKey {
						m.feed.Changed(k) // written, and the same
					}
				}
				m.feed.Confirm(time.Now())
			}
			time.Sleep(read / 2)
		}
		m.feed.Changed(leaseKey)
		time.Sleep(read / 4)
		m.feed.Changed(envKey)
		time.Sleep(10 * read)
		if calls, _ := m.counted(); calls < 10 {
			t.Errorf("only %d reads", calls)
		}
		told()
		began := time.Now()
		m.put(ControlKey, `{"duplexEnabled":false,"revision":99}`)
		for told() == "" && time.Since(began) < 20*time.Second {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began); took > 5*read {
			t.Errorf("the kill switch was told of after %s", took)
		}
		if v := see(c); !v.Fresh || v.Snapshot.Control.DuplexEnabled {
			t.Errorf("a request was told fresh %v, %+v: %v", v.Fresh, v.Snapshot, v.Err)
		}
	})
}

// Some writes in a row, while reads take their time: a recheck, which has a time
// of its own, is told what stands there and not that nothing is known.
func TestAFewWritesInARowLeaveNoRecheckWithoutAnAnswer(t *testing.T) {
	for _, read := range []time.Duration{41, 45, 60, 90} {
		bubble(t, Options{MaxAge: 5 * time.Second}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
			see(c)
			c.Retain("lease-1")
			told()
			m.delay = read * time.Millisecond
			go func() {
				for i := range 40 {
					m.put(pluginKey, strings.Replace(goodPlugin, `"revision":`, fmt.Sprintf(`"revision":%d`, i+1), 1))
					time.Sleep(25 * time.Millisecond)
				}
			}()
			rechecks := 0
			for began := time.Now(); time.Since(began) < 2*time.Second; time.Sleep(time.Millisecond) {
				if told() == "" {
					continue
				}
				rechecks++
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				if v := c.Snapshot(ctx, "lease-1"); !v.Fresh {
					t.Errorf("reads of %dms: a recheck is told %v", read, v.Err)
				}
				cancel()
			}
			if rechecks < 2 {
				t.Errorf("%d rechecks", rechecks)
			}
		})
	}
}

// A request that comes when a change was told is not answered by a read that was
// sent before that change.
func TestAReadOfBeforeAChangeAnswersNobodyWhoCameAfterIt(t *testing.T) {
	bubble(t, Options{MaxAge: 5 * time.Second}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
		see(c)
		c.Retain("lease-1")
		m.delay = 20 * time.Millisecond // behind the moment when the value is taken
		m.feed.Changed(leaseKey)        // it has not changed
		time.Sleep(10 * time.Millisecond)
		m.put(leaseKey, leaseOf("lease-1", 10, "revoked"))
		if v := see(c); !v.Fresh || v.Snapshot.Lease.Status != "revoked" {
			t.Errorf("got fresh %v, %+v: %v", v.Fresh, v.Snapshot.Lease, v.Err)
		}
	})
}

// Retained leases that are too many, or too large, for the cache's bounds leave
// no room for others: each request for one of those reads it, once.
func TestWhatIsRetainedBeyondTheBoundsLeavesOthersOneRead(t *testing.T) {
	for name, opt := range map[string]Options{
		"too many":  {MaxLeases: 2},
		"too large": {MaxBytes: 2 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, opt, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
				for _, id := range []string{"a", "b"} {
					text := leaseOf(id, 3, "active")
					m.set(Key{"lease", id}, strings.Replace(text, "{", `{"metadata":{"x":"`+strings.Repeat("y", 3<<10)+`"},`, 1))
					c.Snapshot(t.Context(), id)
					c.Retain(id)
				}
				before, _ := m.counted()
				began := time.Now()
				v := see(c)
				after, _ := m.counted()
				if !v.Fresh || v.Snapshot.Lease == nil || time.Since(began) > 0 || after-before > 3 {
					t.Errorf("fresh %v after %s and %d calls: %v", v.Fresh, time.Since(began), after-before, v.Err)
				}
			})
		})
	}
}
