package snapshot

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
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
