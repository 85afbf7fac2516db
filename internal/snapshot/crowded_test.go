package snapshot

import (
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
