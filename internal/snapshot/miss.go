package snapshot

import (
	"context"
	"errors"
	"sluice/internal/authz"
	"time"
)

var (
	errNoID    = errors.New("lease id is no id")
	errSlow    = errors.New("the store did not answer in time")
	errCrowded = errors.New("too many requests wait for the store")
)

// miss is Snapshot for what is not held, or not confirmed.
func (c *Cache) miss(ctx context.Context, id string) authz.View {
	if !ValidID(id) {
		return authz.View{Err: errNoID}
	}
	timer := time.NewTimer(c.patience(ctx, id))
	defer timer.Stop()
	for arrived := c.now(); ; {
		h, w, err := c.await(id)
		if err == nil {
			err = w.over(ctx, timer.C)
		}
		if err != nil {
			view := c.fallback(h, err)
			c.leave(h, w)
			return view
		}
		j := &w.joined
		c.leave(h, w)
		if j.epoch == c.epoch.Load() && (j.changed == 0 || j.changed > arrived) {
			return c.view(j.snapshot, j.confirmed(), c.now(), nil)
		}
	}
}

// patience is how long somebody may wait for the store. Who has a time of their
// own, as rechecks have, may take it for what is known to have changed: there is
// no other answer.
func (c *Cache) patience(ctx context.Context, id string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.index.get(id)
	if h == nil || h.last() == nil {
		return waitUnseen
	}
	if until, ok := ctx.Deadline(); ok && !h.unchanged(c.now()) {
		return max(time.Until(until), waitHeld)
	}
	return waitHeld
}

// over waits until w has ended. What was joined may be of no use, and a record
// that always changes must not keep a request for ever.
func (w *wait) over(ctx context.Context, timeout <-chan time.Time) error {
	select {
	case <-w.done:
		if w.err != nil {
			return w.err
		}
	case <-timeout:
		return errSlow
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-timeout:
		return errSlow
	default:
		return nil
	}
}

// await returns what to wait for until id is joined, which may be over already
// (then leave is to be called), or the error that makes waiting useless.
func (c *Cache) await(id string) (*held, *wait, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.held(id)
	h.used = true
	if _, _, ok := c.index.hit(id, c.epoch.Load(), c.now()); ok {
		return h, joinedAlready(h), nil
	}
	if c.waiting >= maxWaiting {
		return h, nil, errCrowded
	}
	h.waiters++
	c.waiting++
	c.activate(h)
	if c.settle(h) {
		done := joinedAlready(h)
		c.leaveLocked(h)
		return h, done, nil
	}
	// One attempt to connect, at the start or after a loss, is waited for.
	if !c.up && c.downs > 1 {
		c.leaveLocked(h)
		return h, nil, c.downErr
	}
	if h.wait == nil {
		h.wait = &wait{done: make(chan struct{})}
	}
	return h, h.wait, nil
}

// joinedAlready is a wait that is over, and that nobody is counted for.
func joinedAlready(h *held) *wait {
	w := &wait{done: make(chan struct{}), joined: h.joined, uncounted: true}
	close(w.done)
	return w
}

func (c *Cache) leave(h *held, w *wait) {
	if w == nil || w.uncounted {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaveLocked(h)
}

func (c *Cache) leaveLocked(h *held) {
	h.waiters--
	c.waiting--
	c.rest(h)
	c.trim()
}

// fallback is what can be said of a lease that could not be read. What it was
// decides on by its own confirmation, unless it is known to have changed: a
// revocation that was told of holds, also when it cannot be read.
func (c *Cache) fallback(h *held, err error) authz.View {
	c.mu.Lock()
	now, j := c.now(), h.joined
	known := h.last() != nil
	if !c.up {
		err = c.downErr
	}
	unchanged := known && h.unchanged(now)
	c.mu.Unlock()
	if !known {
		return authz.View{Err: err}
	}
	view := c.view(j.snapshot, j.confirmed(), now, err)
	if !unchanged {
		view.Fresh, view.Err = false, err
	}
	return view
}
