package snapshot

import "time"

// feed is the Cache as its store sees it.
type feed struct{ c *Cache }

var _ Feed = feed{}

// Up implements Feed. Leases that are retained or waited for are read again
// at once, others when they are next asked for.
func (f feed) Up() {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	f.c.begin()
	signal(f.c.rebase) // one may have come while nobody listened
}

// begin begins an epoch.
func (c *Cache) begin() {
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
		if k == rebaseKey {
			signal(c.rebase)
		} else if e := c.entries[k]; e != nil {
			c.changed(e)
		}
	}
}

// changed has what was read of e no longer used, and what is being read too.
func (c *Cache) changed(e *entry) {
	if e.value != nil && e.value.fixed {
		return
	}
	e.dirty = e.loading
	c.kill(e)
	c.wantActive(e)
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
