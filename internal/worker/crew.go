package worker

import (
	"context"
	"errors"
	"sync"
)

var errNotRunning = errors.New("worker links are not running")

// crew is the goroutines of Links: all of them end with the context that it
// was opened with, and close waits for the last. The zero crew takes nobody.
type crew struct {
	mu   sync.Mutex
	ctx  context.Context // nil while it is not open
	done sync.WaitGroup
}

func (c *crew) open(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx != nil {
		return errors.New("they run already")
	}
	c.ctx = ctx
	return nil
}

func (c *crew) close() {
	c.mu.Lock()
	c.ctx = nil
	c.mu.Unlock()
	c.done.Wait()
}

// stands says whether the crew is open.
func (c *crew) stands() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ctx != nil && c.ctx.Err() == nil
}

// start runs f, unless the crew is not open or about to close.
func (c *crew) start(f func(context.Context)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx == nil || c.ctx.Err() != nil {
		return false
	}
	ctx := c.ctx
	c.done.Go(func() { f(ctx) })
	return true
}
