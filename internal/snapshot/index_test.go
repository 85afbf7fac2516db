package snapshot

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
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

// A hit reads as few lines of memory as joined says.
func TestWhatAHitReadsTakesTwoLines(t *testing.T) {
	const line = 64
	j := joined{}
	if size := unsafe.Sizeof(j); size != 2*line || unsafe.Offsetof(j.dead) != line {
		t.Errorf("it takes %d bytes, the first part %d", size, unsafe.Offsetof(j.dead))
	}
}

func TestIdsOfEveryLengthAreToldApart(t *testing.T) {
	var x index
	x.init()
	hold := func(id string) *held {
		h := &held{id: id, joined: &joined{id: id, length: uint8(len(id))}}
		copy(h.joined.short[:], id)
		return h
	}
	for n := 1; n <= maxID; n++ {
		x.put(hold(strings.Repeat("a", n)))
	}
	for n := 1; n <= maxID; n++ {
		id := strings.Repeat("a", n)
		if j := x.hit(id); j == nil || j.id != id || x.get(id).joined != j {
			t.Errorf("%d bytes: got %+v", n, j)
		}
		if hold(id).joined.is(id[:n-1] + "b") {
			t.Errorf("%d bytes: another id is the same", n)
		}
	}
}
