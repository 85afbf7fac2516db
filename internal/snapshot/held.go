package snapshot

import (
	"container/list"
	"slices"
	"sluice/internal/authz"
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
	joined joined // the last; its epoch is nil until it was read once
	lease  *value // the lease's own record in it
	used   bool   // waited for, since the last look for something to evict

	retained int
	waiters  int
	wait     *wait    // what the waiters wait for; nil: nothing is awaited
	deps     []*entry // what it rests on, or is being read for it
	fresh    bool     // as last told, while retained
	noticed  bool     // stands in Cache.notices
	segment  *segment
	place    *list.Element
}

// last is what was joined last, or nil.
func (h *held) last() *joined {
	if h.joined.epoch == nil {
		return nil
	}
	return &h.joined
}

// wait ends when the lease was joined, or could not be (err).
type wait struct {
	done      chan struct{}
	err       error
	joined    joined // as of its end
	uncounted bool   // among the waiters
}

// joined is a snapshot and what it rests on besides the lease's own record.
type joined struct {
	snapshot *authz.Snapshot
	epoch    *epoch
	shared   [roles - 1]*value // from roleControl on; nil where the lease's ids lead nowhere
	readAt   time.Duration     // when the first of the reads was sent
	expires  time.Duration     // when the store forgets the first of them; 0: never
	// changed is just after the first read was sent of those records of which a
	// change was told before the answer was there; 0: of none. Who came before
	// that may use what was joined, and nobody else.
	changed time.Duration
}

// unchanged reports that h's snapshot says what is known of its records now,
// though they may have been read again since. It is for a lease that was joined
// and could not be joined anew.
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

// confirmed is as of when it is known to have been what the store held.
func (j *joined) confirmed() time.Duration { return j.epoch.confirms(j.readAt) }

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
		h.wait.err, h.wait.joined = err, h.joined
		close(h.wait.done)
		h.wait = nil
	}
}
