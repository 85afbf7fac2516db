package snapshot

import (
	"context"
	"time"
)

// tell has OnChange called for h.
func (c *Cache) tell(h *held) {
	if c.opt.OnChange == nil || h.noticed {
		return
	}
	h.noticed = true
	c.notices = append(c.notices, h)
	signal(c.notice)
}

// notify calls OnChange until ctx ends.
func (c *Cache) notify(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.notice:
		}
		c.telling.Lock()
		c.tellDue(ctx)
		c.telling.Unlock()
	}
}

// notifyNow is notify's work on the goroutine that read the change, which is
// one less to be woken on the way to a revocation. While others are told, it is
// left to notify.
func (c *Cache) notifyNow(ctx context.Context) {
	if c.telling.TryLock() {
		defer c.telling.Unlock()
		c.tellDue(ctx)
	}
}

func (c *Cache) tellDue(ctx context.Context) {
	c.mu.Lock()
	due := c.notices
	c.notices = nil
	for _, h := range due {
		h.noticed = false
	}
	c.mu.Unlock()
	if len(due) == 0 || ctx.Err() != nil {
		return
	}
	ids := make([]string, len(due))
	for i, h := range due {
		ids[i] = h.id
	}
	c.opt.OnChange(ids)
}

// judgeFreshness tells of a retained lease that turned stale or fresh.
func (c *Cache) judgeFreshness(h *held) {
	if h.retained == 0 {
		return
	}
	if fresh := c.isFresh(h); fresh != h.fresh {
		h.fresh = fresh
		c.tell(h)
	}
}

// isFresh is what a request would be told now. A lease that is being read
// again stays what it was until that has failed.
func (c *Cache) isFresh(h *held) bool {
	j, now := h.last(), c.now()
	if j == nil {
		return false
	}
	if !c.young(j, now) {
		return false
	}
	if h.unchanged(now) {
		return true
	}
	for _, e := range h.deps {
		if e.failures > 1 {
			return false
		}
	}
	return c.up && h.fresh
}

// tick tries again what could not be read, and looks for leases that have
// grown too old: nothing else says so when the store falls silent.
func (c *Cache) tick(ctx context.Context) {
	ticker := time.NewTicker(min(max(c.opt.MaxAge/20, 10*time.Millisecond), 250*time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		c.mu.Lock()
		for e := range c.failed {
			delete(c.failed, e)
			c.wantActive(e)
		}
		for h := range c.active {
			c.judgeFreshness(h)
		}
		c.mu.Unlock()
	}
}
