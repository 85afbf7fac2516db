package snapshot

import (
	"context"
	"fmt"
	"time"
)

const (
	loaders   = 4  // reads of the store at the same time
	batchSize = 32 // records in one of them: a few megabytes at worst
)

// load is one loader: it takes what is queued and reads it together, on its
// own time and not on that of a request, which may go away.
func (c *Cache) load(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.work:
		}
		for {
			batch, ep := c.take()
			if len(batch) == 0 {
				break
			}
			issued := c.now()
			values, err := c.read(ctx, batch)
			c.finish(batch, ep, issued, values, err)
			c.notifyNow(ctx)
		}
	}
}

// take takes a batch off the queue, and leaves the rest to the next loader.
func (c *Cache) take() ([]*entry, *epoch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(c.queue), batchSize)
	batch := append([]*entry(nil), c.queue[:n]...)
	c.queue = append(c.queue[:0], c.queue[n:]...)
	for _, e := range batch {
		e.queued, e.loading, e.dirty = false, true, false
	}
	if len(c.queue) > 0 {
		signal(c.work)
	}
	return batch, c.epoch.Load()
}

func (c *Cache) read(ctx context.Context, batch []*entry) (values []Value, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	keys := make([]Key, len(batch))
	for i, e := range batch {
		keys[i] = e.key
	}
	values, err = c.opt.Store.Read(ctx, keys)
	if err == nil && len(values) != len(keys) {
		err = fmt.Errorf("the store answered %d of %d records", len(values), len(keys))
	}
	return values, err
}

// finish takes what was read. A record of which something was told between
// the sending and the answer may be the one from before the change, and one
// read in an epoch that is over may have changed untold: neither is kept.
func (c *Cache) finish(batch []*entry, ep *epoch, issued time.Duration, values []Value, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, e := range batch {
		e.loading = false // one after the other: the rest is not to be read again
		switch {
		case e.dirty || ep != c.epoch.Load():
			e.dirty = false
			c.wantActive(e)
		case err != nil:
			c.fail(e, err)
		case values[i].Err != nil:
			c.fail(e, values[i].Err)
		default:
			c.accept(e, values[i], issued)
		}
		c.drop(e)
	}
}
