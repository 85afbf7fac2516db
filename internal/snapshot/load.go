package snapshot

import (
	"context"
	"fmt"
	"sluice/internal/authz"
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

// read reads a batch and decodes it: that takes its time, and so not the lock.
func (c *Cache) read(ctx context.Context, batch []*entry) ([]reading, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	keys := make([]Key, len(batch))
	for i, e := range batch {
		keys[i] = e.key
	}
	values, err := c.opt.Store.Read(ctx, keys)
	if err == nil && len(values) != len(keys) {
		err = fmt.Errorf("the store answered %d of %d records", len(values), len(keys))
	}
	if err != nil {
		return nil, err
	}
	readings := make([]reading, len(values))
	for i, v := range values {
		readings[i] = c.decode(keys[i], v)
	}
	return readings, nil
}

// reading is a value that was read, decoded.
type reading struct {
	Value
	record  *authz.Record // nil: there is none, or it is malformed
	content digest
	fault   string // what makes it malformed
}

func (c *Cache) decode(k Key, v Value) reading {
	r := reading{Value: v}
	switch {
	case v.Odd != "":
		r.fault = v.Odd
	case v.Found && v.Err == nil:
		record, content, err := decode(k.Kind, k.ID, v.Text, c.opt.ExtraFields)
		if err != nil {
			r.fault = err.Error()
		} else {
			r.record, r.content = record, content
		}
	}
	return r
}

// finish takes what was read. What was read in an epoch that is over may have
// changed untold: it is not kept. A record of which something was told between
// the sending and the answer may be the one from before that change: it is joined
// for those who came before it was sent, until the next read of it is there.
// (Were it dropped, a record that is written as often as a read takes would never
// be read, nor a revocation in it be seen.)
func (c *Cache) finish(batch []*entry, ep *epoch, issued time.Duration, values []reading, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var accepted []*entry
	for i, e := range batch {
		changed := e.dirty
		e.dirty = false
		switch {
		case ep != c.epoch.Load():
			e.loading = false
			c.wantActive(e)
		case err != nil:
			e.loading = false
			c.fail(e, err)
		case values[i].Err != nil:
			e.loading = false
			c.fail(e, values[i].Err)
		default:
			c.accept(e, values[i], issued, changed)
			accepted = append(accepted, e)
		}
	}
	for _, e := range accepted { // which are loading still: none is to be read again for another
		for h := range e.active {
			c.joinBy(h, c.latest)
		}
	}
	now := c.now()
	for _, e := range accepted {
		e.loading = false
		if c.current(e, now) == nil {
			c.wantActive(e)
		}
	}
	for _, e := range batch {
		c.drop(e)
	}
}
