package snapshot

import (
	"container/list"
	"slices"
	"sluice/internal/authz"
	"sync/atomic"
	"time"
)

// The records that a snapshot joins, in this order everywhere.
const (
	roleLease = iota
	roleControl
	roleEnvironment
	rolePlugin
	roleWorker
	roles
)

// held is one lease id that somebody asked for. Cache.mu guards it.
type held struct {
	id     string
	joined *joined // nil until it was read once
	lease  *value  // that joined says
	used   bool    // since the last look for something to evict

	retained int
	waiters  int
	wait     *wait    // what the waiters wait for; nil: nothing is awaited
	deps     []*entry // what it rests on, or is being read for it
	fresh    bool     // as last told, while retained
	noticed  bool     // stands in Cache.notices
	segment  *segment
	place    *list.Element
}

// wait ends when the lease was joined, or could not be (err).
type wait struct {
	done chan struct{}
	err  error
}

// joined is a snapshot and all that a request reads of a lease, without a lock.
// It is immutable but for its flags.
//
// Among 100,000 leases nothing of one is in the processor's cache when it is
// asked for. So this stands in two lines of memory, side by side, behind one
// slot of the index.
type joined struct {
	snapshot *authz.Snapshot
	epoch    *epoch
	shared   [roles - 1]*value // what it rests on from roleControl on; nil where the lease's ids lead nowhere
	readAt   time.Duration     // when the first of the reads was sent
	expires  time.Duration     // when the store forgets the first of them; 0: never

	dead   atomic.Bool // the lease's own record is known to have changed since, or is held no more
	used   atomic.Bool // by a request
	id     string
	length uint8         // of the id
	short  [shortID]byte // the id, when it fits
}

const shortID = 64 - 4 - 4 - 16 - 1

// is reports whether j is that lease's.
func (j *joined) is(id string) bool {
	if len(id) > shortID {
		return j.id == id
	}
	return len(id) == int(j.length) && string(j.short[:len(id)]) == id
}

// stands reports that nothing it rests on is known to have changed.
func (j *joined) stands(now time.Duration) bool {
	if j.dead.Load() || j.expires != 0 && now >= j.expires {
		return false
	}
	for _, v := range &j.shared {
		if v != nil && v.dead.Load() {
			return false
		}
	}
	return true
}

// unchanged reports that h's snapshot says what is known of its records now,
// though they may have been read again since. It is for a lease that could not
// be joined anew.
func (h *held) unchanged(now time.Duration) bool {
	for _, v := range append(h.joined.shared[:], h.lease) {
		if v == nil || v.fixed {
			continue
		}
		last := v.entry.value
		if last == nil || last.dead.Load() || last.expired(now) || last.record != v.record || last.malformed != v.malformed {
			return false
		}
	}
	return true
}

// forget has requests that still find h's snapshot look again.
func (h *held) forget() {
	if h.joined != nil {
		h.joined.dead.Store(true)
	}
}

// recentlyUsed reports it once.
func (h *held) recentlyUsed() bool {
	used := h.used || h.joined != nil && h.joined.used.Swap(false)
	h.used = false
	return used
}

// confirmed is as of when it is known to have been what the store held.
func (j *joined) confirmed() time.Duration {
	return max(j.readAt, time.Duration(j.epoch.confirmed.Load()))
}

// held returns what is held of a lease, and begins to hold it.
func (c *Cache) held(id string) *held {
	h := c.index.get(id)
	if h == nil {
		h = &held{id: id}
		c.index.put(h)
		c.absent.add(h) // until it is known to be a lease
	}
	return h
}

// activate has h's records read as soon as they change.
func (c *Cache) activate(h *held) {
	if _, ok := c.active[h]; ok {
		return
	}
	c.active[h] = struct{}{}
	for _, e := range h.deps {
		e.enlist(h)
	}
}

// rest undoes activate when nobody needs h any more.
func (c *Cache) rest(h *held) {
	if h.retained > 0 || h.waiters > 0 {
		return
	}
	delete(c.active, h)
	for _, e := range h.deps {
		e.dismiss(h)
	}
}

// depend makes deps what h rests on.
func (c *Cache) depend(h *held, deps []*entry) {
	if slices.Equal(h.deps, deps) {
		return
	}
	_, active := c.active[h]
	for _, e := range deps {
		e.refs++
		if active {
			e.enlist(h)
		}
	}
	old := h.deps
	h.deps = deps
	for _, e := range old {
		if active && !slices.Contains(deps, e) {
			e.dismiss(h)
		}
		e.refs--
		c.drop(e)
	}
}

// wake ends the wait for h.
func (h *held) wake(err error) {
	if h.wait != nil {
		h.wait.err = err
		close(h.wait.done)
		h.wait = nil
	}
}
