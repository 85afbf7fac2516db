package snapshot

import (
	"hash/maphash"
	"sync/atomic"
)

// index finds what is held of a lease. Readers take no lock; writers hold
// Cache.mu. It is an open hash table rather than a sync.Map, whose tree costs
// nearly three times as much at 100,000 leases: each of its levels is memory
// that is not in the processor's cache.
type index struct {
	seed  maphash.Seed
	table atomic.Pointer[table]
	live  int // slots with a held
	taken int // slots that were ever used, the freed ones too
}

// table is a power of two of slots, at most three quarters of them taken.
type table struct {
	slots []slot
}

// slot is free while hash is 0; once taken it stays taken until the table is
// replaced, so that no reader stops short of what stands behind it. A slot
// whose held is nil was freed. Whoever still reads a replaced table finds what
// was joined then, which is dead when it was replaced too.
type slot struct {
	hash   atomic.Uint64
	joined atomic.Pointer[joined] // the held's; nil: it has none
	held   atomic.Pointer[held]
}

const smallestTable = 1024

func (x *index) init() {
	x.seed = maphash.MakeSeed()
	x.table.Store(&table{slots: make([]slot, smallestTable)})
}

func (x *index) hash(id string) uint64 { return maphash.String(x.seed, id) | 1 }

// hit returns what was joined of a lease, or nil. It is all that a request needs.
func (x *index) hit(id string) *joined {
	hash, t := x.hash(id), x.table.Load()
	mask := uint64(len(t.slots) - 1)
	for i := hash >> 1 & mask; ; i = (i + 1) & mask {
		switch s := &t.slots[i]; s.hash.Load() {
		case 0:
			return nil
		case hash:
			if j := s.joined.Load(); j != nil && j.is(id) {
				return j
			}
		}
	}
}

func (x *index) get(id string) *held {
	if s := x.slot(id); s != nil {
		return s.held.Load()
	}
	return nil
}

// slot is where an id is held, or nil.
func (x *index) slot(id string) *slot {
	hash, t := x.hash(id), x.table.Load()
	mask := uint64(len(t.slots) - 1)
	for i := hash >> 1 & mask; ; i = (i + 1) & mask {
		switch s := &t.slots[i]; s.hash.Load() {
		case 0:
			return nil
		case hash:
			if h := s.held.Load(); h != nil && h.id == id {
				return s
			}
		}
	}
}

// publish gives requests what was joined of h, if h is held still.
func (x *index) publish(h *held) {
	if s := x.slot(h.id); s != nil {
		s.joined.Store(h.joined)
	}
}

// put adds h, whose id is not there.
func (x *index) put(h *held) {
	t := x.table.Load()
	if 4*(x.taken+1) > 3*len(t.slots) {
		t = x.renew(t)
	}
	t.put(x.hash(h.id), h)
	x.live++
	x.taken++
}

func (t *table) put(hash uint64, h *held) {
	mask := uint64(len(t.slots) - 1)
	i := hash >> 1 & mask
	for t.slots[i].hash.Load() != 0 {
		i = (i + 1) & mask
	}
	t.slots[i].held.Store(h) // first, so that a reader who sees the hash sees it
	t.slots[i].joined.Store(h.joined)
	t.slots[i].hash.Store(hash)
}

func (x *index) remove(h *held) {
	s := x.slot(h.id)
	if s == nil || s.held.Load() != h {
		return
	}
	s.joined.Store(nil)
	s.held.Store(nil)
	x.live--
}

// renew copies what is live into a table in which it takes up to a half.
// Readers of the old one finish there.
func (x *index) renew(old *table) *table {
	size := smallestTable
	for size < 2*(x.live+1) {
		size *= 2
	}
	t := &table{slots: make([]slot, size)}
	for i := range old.slots {
		if h := old.slots[i].held.Load(); h != nil {
			t.put(old.slots[i].hash.Load(), h)
		}
	}
	x.table.Store(t)
	x.taken = x.live
	return t
}
