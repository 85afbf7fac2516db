package snapshot

import (
	"hash/maphash"
	"sync"
)

// index finds what is held of a lease. It is split so that requests on
// different leases do not meet on one lock.
type index struct {
	seed   maphash.Seed
	shards [64]struct {
		mu   sync.RWMutex
		held map[string]*held
		_    [64]byte // a cache line between two locks
	}
}

func (x *index) init() {
	x.seed = maphash.MakeSeed()
	for i := range x.shards {
		x.shards[i].held = map[string]*held{}
	}
}

func (x *index) get(id string) *held {
	s := &x.shards[maphash.String(x.seed, id)%uint64(len(x.shards))]
	s.mu.RLock()
	h := s.held[id]
	s.mu.RUnlock()
	return h
}

func (x *index) put(h *held) {
	s := &x.shards[maphash.String(x.seed, h.id)%uint64(len(x.shards))]
	s.mu.Lock()
	s.held[h.id] = h
	s.mu.Unlock()
}

func (x *index) remove(h *held) {
	s := &x.shards[maphash.String(x.seed, h.id)%uint64(len(x.shards))]
	s.mu.Lock()
	delete(s.held, h.id)
	s.mu.Unlock()
}
