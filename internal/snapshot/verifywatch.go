package snapshot

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Watch implements Store, and follows the keys file meanwhile. Changed keys
// begin another epoch: whatever was read is read and judged again, by the keys
// of now.
func (s *Verifier) Watch(ctx context.Context, feed Feed, every time.Duration) error {
	f := &epochFeed{next: feed}
	g, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	g.Go(func() error {
		defer cancel()
		return s.next.Watch(ctx, f, every)
	})
	g.Go(func() error {
		s.opt.Keys.watch(ctx, s.opt.Look, func(changed bool, err error) { s.rejudge(f, changed, err) })
		return nil
	})
	return g.Wait()
}

func (s *Verifier) rejudge(f *epochFeed, changed bool, err error) {
	if err != nil {
		s.opt.Log.Error("the changed keys file is not usable; the last good one stays", "error", err)
	}
	if changed {
		s.opt.Log.Info("keys were read again", "keys", s.opt.Keys.Len())
		f.again()
	}
}

// epochFeed is a Feed on which another epoch can be begun from outside, one
// call at a time.
type epochFeed struct {
	mu   sync.Mutex
	next Feed
	up   bool
}

var _ Feed = (*epochFeed)(nil)

// again begins another epoch. While the store is down there is none to end:
// the next one comes with Up.
func (f *epochFeed) again() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.up {
		f.next.Up()
	}
}

// Up implements Feed.
func (f *epochFeed) Up() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.up = true
	f.next.Up()
}

// Changed implements Feed.
func (f *epochFeed) Changed(keys ...Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next.Changed(keys...)
}

// Confirm implements Feed.
func (f *epochFeed) Confirm(asOf time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next.Confirm(asOf)
}

// Down implements Feed.
func (f *epochFeed) Down(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.up = false
	f.next.Down(err)
}
