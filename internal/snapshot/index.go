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
// is an open hash table in two parts: entries, small enough to be near, and
// slots, which lie side by side and hold all that a request reads.
type index struct {
	seed  maphash.Seed
	table atomic.Pointer[table]
	live  int // slots with a held
}

// table is a power of two of entries, and slots for three quarters of them.
//
// An entry is 0, or half of the id's hash above the number of its slot, from
// 1. Once it is set it is that id's until the table is replaced, so that no
// reader stops short of what stands behind it.
type table struct {
	entries []atomic.Uint64
	slots   []slot
	taken   int // slots that were ever used, the freed ones too
}

// slot is one lease as requests read it, in two lines of memory side by side.
//
// What is published is whole when version is even and the same before and
// after it was read. Without an epoch it is nothing: from the moment that the
// lease's own record is known to have changed, until something is published
// again, and in a table that was replaced.
type slot struct {
	short    [shortID]byte // the id, when it fits
	length   uint8         // of the id
	version  atomic.Uint32
	used     atomic.Bool // by a request, since the last look for something to evict
	snapshot atomic.Pointer[authz.Snapshot]

	epoch           atomic.Pointer[epoch]
	readAt, expires atomic.Int64
	shared          [roles - 1]atomic.Pointer[value]
	held            atomic.Pointer[held] // nil: freed
}

const (
	smallestTable = 1024
	shortID       = 64 - 8 - 2*4 - 1 // a UUID fits
)

func (x *index) init() {
	x.seed = maphash.MakeSeed()
	x.table.Store(newTable(smallestTable))
}

func newTable(size int) *table {
	return &table{entries: make([]atomic.Uint64, size), slots: make([]slot, size/4*3)}
}

func (x *index) hash(id string) uint64 { return maphash.String(x.seed, id) }

// home is where the entry of a hash stands, or behind it.
func (t *table) home(hash uint64) int { return int(hash & uint64(len(t.entries)-1)) }

// next returns the slot of the entry at i or behind it that holds the same
// half of hash, and where to go on; nil: there is none before a free entry.
func (t *table) next(hash uint64, i int) (*slot, int) {
	for mask := len(t.entries) - 1; ; i++ {
		e := t.entries[i&mask].Load()
		if e == 0 {
			return nil, 0
		}
		if e>>32 == hash>>32 {
			return &t.slots[uint32(e)-1], i + 1
		}
	}
}

// hit returns what is published of a lease and when it was read, if it is of
// the epoch and nothing of it is known to have changed.
func (x *index) hit(id string, ep *epoch, now time.Duration) (_ *authz.Snapshot, readAt time.Duration, ok bool) {
	hash, t := x.hash(id), x.table.Load()
	for s, i := t.next(hash, t.home(hash)); s != nil; s, i = t.next(hash, i) {
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
	return nil, 0, false
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
	return snapshot, readAt, version%2 == 0 && s.version.Load() == version
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
	for s, i := t.next(hash, t.home(hash)); s != nil; s, i = t.next(hash, i) {
		if h := s.held.Load(); h != nil && h.id == id {
			return s
		}
	}
	return nil
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
		s.epoch.Store(nil)
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
	if t.taken == len(t.slots) {
		t = x.renew(t)
	}
	t.put(x.hash(h.id), h)
	x.live++
}

func (t *table) put(hash uint64, h *held) *slot {
	s := &t.slots[t.taken]
	t.taken++
	s.length = uint8(len(h.id)) // an id has 128 bytes at most
	copy(s.short[:], h.id)
	s.held.Store(h)
	i, mask := t.home(hash), len(t.entries)-1
	for t.entries[i&mask].Load() != 0 {
		i++
	}
	// Last, so that a reader who sees it sees the id.
	t.entries[i&mask].Store(hash>>32<<32 | uint64(t.taken))
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
// Readers of the old one find nothing published there.
func (x *index) renew(old *table) *table {
	size := smallestTable
	for size < 2*(x.live+1) {
		size *= 2
	}
	t := newTable(size)
	for i := range old.slots[:old.taken] {
		from := &old.slots[i]
		h := from.held.Load()
		if h == nil {
			continue
		}
		to := t.put(x.hash(h.id), h)
		to.write(&h.joined)
		to.epoch.Store(from.epoch.Load())
		to.used.Store(from.used.Load())
	}
	x.table.Store(t)
	for i := range old.slots {
		old.slots[i].epoch.Store(nil)
	}
	return t
}
