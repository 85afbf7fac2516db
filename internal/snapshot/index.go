package snapshot

import (
	"hash/maphash"
	"sluice/internal/authz"
	"sync/atomic"
	"time"
)

// index finds what is held of a lease, and what requests read of it. Readers
// take no lock; writers hold Cache.mu.
//
// Among 100,000 leases nothing of one is in the processor's cache when it is
// asked for, and each step from pointer to pointer waits for memory. So this
// is an open hash table whose slots hold all that a request reads.
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

// slot is one lease as requests read it, in two lines of memory side by side.
// It is free while hash is 0; once taken it is that id's until the table is
// replaced, so that no reader stops short of what stands behind it.
//
// What is published is whole when version is even and the same before and
// after it was read; without an epoch it is nothing. It is dead from the moment
// that the lease's own record is known to have changed, until something is
// published again, or that the table is replaced.
type slot struct {
	hash     atomic.Uint64
	snapshot atomic.Pointer[authz.Snapshot]
	epoch    atomic.Pointer[epoch]
	shared   [roles - 1]atomic.Pointer[value]
	version  atomic.Uint32
	used     atomic.Bool // by a request, since the last look for something to evict

	readAt, expires atomic.Int64
	held            atomic.Pointer[held] // nil: freed
	dead            atomic.Bool
	length          uint8         // of the id
	short           [shortID]byte // the id, when it fits
}

const (
	smallestTable = 1024
	shortID       = 64 - 3*8 - 4 - 1
)

func (x *index) init() {
	x.seed = maphash.MakeSeed()
	x.table.Store(&table{slots: make([]slot, smallestTable)})
}

func (x *index) hash(id string) uint64 { return maphash.String(x.seed, id) | 1 }

// hit returns what is published of a lease and when it was read, if it is of
// the epoch and nothing of it is known to have changed.
func (x *index) hit(id string, ep *epoch, now time.Duration) (_ *authz.Snapshot, readAt time.Duration, ok bool) {
	hash, t := x.hash(id), x.table.Load()
	mask := uint64(len(t.slots) - 1)
	for i := hash >> 1 & mask; ; i = (i + 1) & mask {
		switch s := &t.slots[i]; s.hash.Load() {
		case 0:
			return nil, 0, false
		case hash:
			if !s.is(id) {
				continue
			}
			if snapshot, readAt, ok := s.read(ep, now); ok {
				if !s.used.Load() {
					s.used.Store(true)
				}
				return snapshot, readAt, true
			}
		}
	}
}

// is reports whether s is that id's.
func (s *slot) is(id string) bool {
	if len(id) <= shortID {
		return len(id) == int(s.length) && string(s.short[:len(id)]) == id
	}
	h := s.held.Load()
	return h != nil && h.id == id
}

func (s *slot) read(ep *epoch, now time.Duration) (_ *authz.Snapshot, readAt time.Duration, ok bool) {
	version := s.version.Load()
	snapshot, readAt := s.snapshot.Load(), time.Duration(s.readAt.Load())
	if ep == nil || s.epoch.Load() != ep {
		return nil, 0, false
	}
	if expires := time.Duration(s.expires.Load()); expires != 0 && now >= expires {
		return nil, 0, false
	}
	for i := range s.shared {
		if v := s.shared[i].Load(); v != nil && v.dead.Load() {
			return nil, 0, false
		}
	}
	return snapshot, readAt, !s.dead.Load() && version%2 == 0 && s.version.Load() == version
}

// write publishes j; the zero one takes everything away.
func (s *slot) write(j *joined) {
	s.version.Add(1)
	s.snapshot.Store(j.snapshot)
	s.epoch.Store(j.epoch)
	for i := range s.shared {
		s.shared[i].Store(j.shared[i])
	}
	s.readAt.Store(int64(j.readAt))
	s.expires.Store(int64(j.expires))
	s.dead.Store(false)
	s.version.Add(1)
}

// get returns what is held of a lease, or nil.
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
		s.write(&h.joined)
	}
}

// kill takes away what was published of a lease.
func (x *index) kill(id string) {
	if s := x.slot(id); s != nil {
		s.dead.Store(true)
	}
}

// used reports, once, that a request used what was published of h.
func (x *index) used(h *held) bool {
	s := x.slot(h.id)
	return s != nil && s.used.Swap(false)
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

func (t *table) put(hash uint64, h *held) *slot {
	mask := uint64(len(t.slots) - 1)
	i := hash >> 1 & mask
	for t.slots[i].hash.Load() != 0 {
		i = (i + 1) & mask
	}
	s := &t.slots[i]
	s.length = uint8(len(h.id)) // an id has 128 bytes at most
	copy(s.short[:], h.id)
	s.held.Store(h)
	s.hash.Store(hash) // last, so that a reader who sees it sees the id
	return s
}

func (x *index) remove(h *held) {
	s := x.slot(h.id)
	if s == nil || s.held.Load() != h {
		return
	}
	s.write(&joined{})
	s.held.Store(nil)
	x.live--
}

// renew copies what is live into a table in which it takes up to a half.
// Readers of the old one find everything dead there.
func (x *index) renew(old *table) *table {
	size := smallestTable
	for size < 2*(x.live+1) {
		size *= 2
	}
	t := &table{slots: make([]slot, size)}
	for i := range old.slots {
		from := &old.slots[i]
		h := from.held.Load()
		if h == nil {
			continue
		}
		to := t.put(from.hash.Load(), h)
		to.write(&h.joined)
		to.dead.Store(from.dead.Load())
		to.used.Store(from.used.Load())
	}
	x.table.Store(t)
	for i := range old.slots {
		old.slots[i].dead.Store(true)
	}
	x.taken = x.live
	return t
}
