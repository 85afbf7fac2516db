package snapshot

import (
	"fmt"
	"math/rand/v2"
	"sluice/internal/authz"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
)

func TestTheIndexIsAMap(t *testing.T) {
	var x index
	x.init()
	random := rand.New(rand.NewPCG(1, 1))
	want := map[string]*held{}
	for range 200_000 {
		id := fmt.Sprint(random.IntN(5000))
		if h := want[id]; h != nil && random.IntN(2) == 0 {
			x.remove(h)
			delete(want, id)
		} else if h == nil {
			want[id] = &held{id: id}
			x.put(want[id])
		}
		if got := x.get(id); got != want[id] {
			t.Fatalf("%s: got %v, want %v", id, got, want[id])
		}
	}
	for i := range 5000 {
		if id := fmt.Sprint(i); x.get(id) != want[id] {
			t.Fatalf("%s is lost", id)
		}
	}
	if slots := len(x.table.Load().slots); slots > 1<<15 {
		t.Errorf("%d slots for %d", slots, len(want))
	}
}

func TestReadersOfTheIndexAlwaysFindWhatStays(t *testing.T) {
	var x index
	x.init()
	for i := range 100 {
		x.put(&held{id: fmt.Sprint("stays-", i)})
	}
	var done atomic.Bool
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for i := 0; !done.Load(); i++ {
				id := fmt.Sprint("stays-", i%100)
				if h := x.get(id); h == nil || h.id != id {
					t.Errorf("%s: got %v", id, h)
					return
				}
			}
		})
	}
	for i := range 20_000 {
		h := &held{id: fmt.Sprint("goes-", i)}
		x.put(h)
		if i%3 > 0 {
			x.remove(h)
		}
	}
	done.Store(true)
	readers.Wait()
}

// A hit reads as few lines of memory as slot says.
func TestASlotTakesTwoLines(t *testing.T) {
	const line = 64
	s := slot{}
	if size := unsafe.Sizeof(s); size != 2*line || unsafe.Offsetof(s.epoch) != line {
		t.Errorf("it takes %d bytes, the first part %d", size, unsafe.Offsetof(s.epoch))
	}
}

func TestIdsOfEveryLengthAreToldApart(t *testing.T) {
	var x index
	x.init()
	now := &epoch{}
	for n := 1; n <= maxID; n++ {
		x.put(&held{id: strings.Repeat("a", n), joined: joined{epoch: now, readAt: time.Duration(n)}})
	}
	for n := 1; n <= maxID; n++ {
		id := strings.Repeat("a", n)
		h := x.get(id)
		x.publish(h)
		if _, readAt, ok := x.hit(id, now, 0); !ok || readAt != time.Duration(n) || h.id != id {
			t.Errorf("%d bytes: got %d", n, readAt)
		}
		if _, _, ok := x.hit(id[:n-1]+"b", now, 0); ok {
			t.Errorf("%d bytes: another id is the same", n)
		}
	}
}

// Whatever a reader gets was published whole, and was not killed before it
// began to look.
func TestAHitIsWholeAndAlive(t *testing.T) {
	var x index
	x.init()
	h := &held{id: "lease-1"}
	x.put(h)
	epochs := []*epoch{{}, {}}
	var killed atomic.Int64 // what was published up to here is dead
	var all sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				dead := killed.Load()
				turn := rand.IntN(2)
				snapshot, readAt, ok := x.hit("lease-1", epochs[turn], 0)
				if !ok {
					continue
				}
				n := int64(readAt)
				if n <= dead || n%2 != int64(turn) || snapshot.LeaseID != fmt.Sprint(n) {
					t.Errorf("got %d, %s after %d was killed", n, snapshot.LeaseID, dead)
					return
				}
			}
		})
	}
	others := 0
	for n := int64(1); n <= 4000; n++ {
		h.joined = joined{snapshot: &authz.Snapshot{LeaseID: fmt.Sprint(n)}, epoch: epochs[n%2], readAt: time.Duration(n)}
		x.publish(h)
		switch n % 4 {
		case 0:
			x.kill("lease-1")
			killed.Store(n)
		case 1: // which has the table replaced now and then
			others++
			x.put(&held{id: fmt.Sprint("other-", others)})
		case 2:
			x.remove(h)
			killed.Store(n)
			x.put(h)
		}
	}
	close(done)
	all.Wait()
}
