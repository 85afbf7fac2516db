package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sluice/internal/authz"
	"strings"

	"golang.org/x/sync/errgroup"
)

// Run watches and reads the store until ctx ends, which is no error, and
// returns when all that it started has ended.
func (c *Cache) Run(ctx context.Context) error {
	defer c.stop()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		// A fraction of the limit, so that one confirmation may come late.
		if err := c.opt.Store.Watch(ctx, feed{c}, c.opt.MaxAge/4); err != nil {
			return fmt.Errorf("watch the record store: %w", err)
		}
		return nil
	})
	for range loaders {
		g.Go(func() error { c.load(ctx); return nil })
	}
	g.Go(func() error { c.notify(ctx); return nil })
	g.Go(func() error { c.tick(ctx); return nil })
	g.Go(func() error { c.rebases(ctx); return nil })
	return g.Wait()
}

// stop ends the timers; what is held turns stale.
func (c *Cache) stop() {
	for range 2 { // nobody waits for another attempt
		feed{c}.Down(errors.New("the cache has ended"))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		if e.expiry != nil {
			e.expiry.Stop()
		}
	}
}

// CheckExtraFields reports what is no field of a kind, such as
// "lease.region".
func CheckExtraFields(fields []string) error {
	for _, f := range fields {
		kind, name, _ := strings.Cut(f, ".")
		known := slices.ContainsFunc(Kinds(), func(k authz.Kind) bool { return string(k) == kind })
		if !known || name == "" {
			return fmt.Errorf("extra field %q: want <kind>.<field>, such as lease.region", f)
		}
	}
	return nil
}
