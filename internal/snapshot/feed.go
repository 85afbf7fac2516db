package snapshot

import "time"

// feed is the Cache as its store sees it.
type feed struct{ c *Cache }

var _ Feed = feed{}

// Up implements Feed. Leases that are retained or waited for are read again
// at once, others when they are next asked for.
func (f feed) Up() {
	c := f.c
	c.mu.Lock()
	defer c.mu.Unlock()
	next := &epoch{}
	if last := c.epoch.Load(); last != nil {
		next.confirmed.Store(last.confirmed.Load()) // older than whatever is read in the new one
	}
	c.epoch.Store(next)
	c.resyncs++
	c.up, c.downErr, c.downs = true, nil, 0
	for _, e := range c.entries {
		e.failures = 0
	}
	for h := range c.active {
		c.settle(h)
	}
}

// Changed implements Feed.
func (f feed) Changed(keys ...Key) {
	c := f.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range keys {
		e := c.entries[k]
		if e == nil || e.value != nil && e.value.fixed {
			continue
		}
		e.dirty = e.loading
		if e.value != nil {
			e.value.dead.Store(true)
		}
		c.wantActive(e)
	}
}

// Confirm implements Feed.
func (f feed) Confirm(asOf time.Time) {
	at := int64(asOf.Sub(f.c.base))
	ep := f.c.epoch.Load()
	if ep != nil && at > ep.confirmed.Load() {
		ep.confirmed.Store(at)
	}
}

// Down implements Feed. What is held decides on, by its age. Requests for what
// is not held wait for one attempt to connect again, and no more.
func (f feed) Down(err error) {
	c := f.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.up, c.downErr = false, err
	c.downs++
	for _, e := range c.queue {
		e.queued = false
	}
	queued := c.queue
	c.queue = nil
	for _, e := range queued {
		c.drop(e)
	}
	if c.downs > 1 {
		for h := range c.active {
			h.wake(err)
		}
	}
}
