package snapshot

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// history is what the store held of a lease, and when it was replaced.
type history struct {
	mu       sync.Mutex
	revision int
	replaced map[int]time.Time
	fresh    int // views that were
}

// TestNoViewRestsOnFactsOlderThanItSays runs random interleavings of writes
// (told at once, late, or lost with the connection), losses, reconnections,
// failing and slow reads, and asks all the while. Whatever happens, a fresh
// view was what the store held at the time that it names or later, that time
// is within the limit, and no view goes back. Among the views are fresh ones, of
// many revisions.
func TestNoViewRestsOnFactsOlderThanItSays(t *testing.T) {
	fresh, revisions := 0, 0
	for seed := range uint64(200) {
		const maxAge = 2 * time.Second
		bubble(t, Options{MaxAge: maxAge}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
			random := rand.New(rand.NewPCG(seed, 1))
			h := &history{revision: 3, replaced: map[int]time.Time{}}
			last := 0
			up := true
			if seed%2 == 0 {
				c.Retain("lease-1")
			}
			var late sync.WaitGroup
			for range 300 {
				switch random.IntN(9) {
				case 0, 1: // a write that is told, soon when up
					h.write(m)
					if up && random.IntN(2) == 0 {
						m.feed.Changed(leaseKey)
					} else if up {
						m.feed.Down(errBroken) // before it was told
						up = false
					}
				case 2:
					m.feed.Down(errBroken)
					up = false
				case 3, 4:
					m.feed.Up()
					up = true
				case 5:
					m.fail([]error{nil, nil, errBroken}[random.IntN(3)])
				case 6:
					m.mu.Lock()
					m.delay = time.Duration(random.IntN(100)) * time.Millisecond
					m.mu.Unlock()
				case 7:
					if up {
						m.feed.Confirm(time.Now())
					}
				case 8:
					late.Go(func() { see(c) }) // a read under way during what follows
				}
				time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
				last = h.check(t, c, maxAge, last)
			}
			late.Wait()
			fresh += h.fresh
			revisions += last
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if fresh < 20_000 || revisions < 200*20 {
		t.Errorf("of 60,000 views only %d were fresh, of revision %d on average at last", fresh, revisions/200)
	}
}

func (h *history) write(m *memoryStore) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.replaced[h.revision] = time.Now()
	h.revision++
	m.set(leaseKey, leaseOf("lease-1", h.revision, fmt.Sprint("s", h.revision)))
}

func (h *history) check(t *testing.T, c *Cache, maxAge time.Duration, last int) int {
	t.Helper()
	v := c.Snapshot(context.Background(), "lease-1")
	if !v.Fresh {
		return last
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fresh++
	revision := int(v.Snapshot.Lease.Revision)
	if age := time.Since(v.Confirmed); age > maxAge {
		t.Errorf("fresh at age %s", age)
	}
	if replaced, ok := h.replaced[revision]; ok && replaced.Before(v.Confirmed) {
		t.Errorf("revision %d was replaced at %s, and is said to be confirmed as of %s", revision, replaced, v.Confirmed)
	}
	if revision < last {
		t.Errorf("revision %d after %d", revision, last)
	}
	return revision
}
