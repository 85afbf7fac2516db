package snapshot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sluice/internal/authz"
	"sync"
	"sync/atomic"
	"time"
)

// Options configure a Cache.
type Options struct {
	// Store is where the records are. Required.
	Store Store
	// MaxAge is how long a snapshot decides without being confirmed again.
	// Default 10s.
	MaxAge time.Duration
	// ExtraFields are record fields beyond the table that policy may see, such
	// as "lease.region".
	ExtraFields []string
	// Override, when set, is asked before the store is; a record that it
	// answers (nil: there is none) stands in place of the store's. It must be
	// quick, and must not change its answers.
	Override func(kind authz.Kind, id string) (*authz.Record, bool)
	// OnChange, when set, is called for the held leases whose snapshots became
	// others, or turned stale or fresh: with all at once that one change did that
	// to. It is called by one goroutine at a time, off the path of requests, and
	// must not block for long.
	OnChange func(leaseIDs []string)
	// MaxLeases bounds the leases held. What is retained stays beyond it, and
	// leaves no room for others, which are then read for each request.
	// Default 131072.
	MaxLeases int
	// MaxAbsent bounds the ids that are remembered as no lease, in a space of
	// their own: a flood of made-up ids evicts no lease. Default 8192.
	MaxAbsent int
	// MaxBytes bounds the records held, by their text. Default 512 MiB.
	MaxBytes int64
	// MaxMarks bounds the revisions remembered of records that are no longer
	// held; beyond it the longest unused are forgotten. Default 2097152.
	MaxMarks int
	// Marks, when set, has the marks outlive a restart. Its Run is not the
	// cache's.
	Marks *MarkLog
	// Log is for malformed records and the store's ups and downs. Default: none.
	Log *slog.Logger
}

// Cache joins the records of leases into snapshots and keeps them. It is an
// authz.Facts. New starts nothing; Run does the reading and watching.
//
// A snapshot goes round like this:
//
//	          first request, Retain              every record read
//	(unknown) ---------------------> (reading) --------------------> (joined)
//	                                     ^                              |
//	                                     |  a record changed, expired,  |
//	                                     +------ or a new epoch --------+
//
// A joined snapshot of the running epoch, none of whose records is known to
// have changed, is handed out without a lock and without a store call. The epoch's confirmation gives its age.
type Cache struct {
	opt  Options
	base time.Time // the origin of every time here, on the monotonic clock

	epoch atomic.Pointer[epoch] // nil before the first Up

	telling sync.Mutex // held while OnChange is called

	index index // of held by lease id; read without a lock

	mu      sync.Mutex // guards what is below, and every held and entry
	up      bool
	downErr error
	downs   int // attempts to be up that failed in a row, the loss counted
	resyncs uint64
	entries map[Key]*entry
	marks   *marks
	active  map[*held]struct{} // retained or waited for
	waiting int                // requests that wait for a read
	leases  segment
	absent  segment
	bytes   int64
	queue   []*entry // to be read
	failed  map[*entry]struct{}
	notices []*held // to be told of
	rebased int64   // the number of the last rebase that was done
	work    chan struct{}
	notice  chan struct{}
	rebase  chan struct{}
}

// epoch is a time in which the store told of every change. Its confirmation
// only advances, and stays readable when it is over.
type epoch struct {
	confirmed atomic.Int64 // since Cache.base
}

// confirms is as of when what was read in the epoch, at readAt, is known to
// have been what the store held.
func (e *epoch) confirms(readAt time.Duration) time.Duration {
	return max(readAt, time.Duration(e.confirmed.Load()))
}

const (
	// How long a request waits for a read: with a snapshot that still may
	// decide by its age, and without any.
	waitHeld   = 80 * time.Millisecond
	waitUnseen = 450 * time.Millisecond
	// readTimeout is for one round of reading.
	readTimeout = 400 * time.Millisecond
	// maxWaiting bounds the requests that wait for a read.
	maxWaiting = 16384
	// readyGrace is how long, and at least half the age limit, the store may be
	// out of reach before the gateway says that it is not ready: long enough
	// to reconnect.
	readyGrace = 3 * time.Second
)

// NewCache returns a Cache that holds nothing yet.
func NewCache(opt Options) (*Cache, error) {
	if opt.Store == nil {
		return nil, errors.New("snapshot cache: no store")
	}
	if opt.MaxAge < 0 || opt.MaxLeases < 0 || opt.MaxAbsent < 0 || opt.MaxBytes < 0 || opt.MaxMarks < 0 {
		return nil, errors.New("snapshot cache: a limit is negative")
	}
	if err := CheckExtraFields(opt.ExtraFields); err != nil {
		return nil, err
	}
	opt.MaxAge = or(opt.MaxAge, 10*time.Second)
	opt.MaxLeases = or(opt.MaxLeases, 131072)
	opt.MaxAbsent = or(opt.MaxAbsent, 8192)
	opt.MaxBytes = or(opt.MaxBytes, 512<<20)
	opt.MaxMarks = or(opt.MaxMarks, 2097152)
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	c := &Cache{
		opt: opt, base: time.Now(),
		entries: map[Key]*entry{}, marks: newMarks((opt.MaxMarks + 1) / 2),
		active: map[*held]struct{}{}, failed: map[*entry]struct{}{},
		leases: segment{max: opt.MaxLeases}, absent: segment{max: opt.MaxAbsent},
		work: make(chan struct{}, 1), notice: make(chan struct{}, 1), rebase: make(chan struct{}, 1),
		downErr: errors.New("the store was not reached yet"),
	}
	c.index.init()
	c.remember()
	return c, nil
}

// remember takes the marks that were kept.
func (c *Cache) remember() {
	if c.opt.Marks == nil {
		return
	}
	state := c.opt.Marks.take()
	if state == nil {
		return
	}
	for name, m := range state.marks {
		c.marks.keep(name, m)
	}
	c.rebased = state.rebase
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Snapshot implements authz.Facts. For a confirmed snapshot it takes no lock,
// allocates nothing and asks nobody. Else it waits for a
// read that it shares with everyone who asks for the same records: at most
// 80ms where a snapshot is held that still may decide by its age, at most
// 450ms where none is, and as long as ctx has where what is held is known to have
// changed and ctx has a deadline.
func (c *Cache) Snapshot(ctx context.Context, leaseID string) authz.View {
	if view, ok := c.hit(leaseID); ok {
		return view
	}
	return c.miss(ctx, leaseID)
}

func (c *Cache) hit(id string) (authz.View, bool) {
	now, ep := c.now(), c.epoch.Load()
	snapshot, readAt, ok := c.index.hit(id, ep, now)
	if !ok {
		return authz.View{}, false
	}
	return c.view(snapshot, ep.confirms(readAt), now, nil), true
}

// young reports that j may decide by its age.
func (c *Cache) young(j *joined, now time.Duration) bool { return now-j.confirmed() <= c.opt.MaxAge }

// view judges the age of a snapshot. Cache.mu is not held.
func (c *Cache) view(s *authz.Snapshot, confirmed, now time.Duration, err error) authz.View {
	v := authz.View{Snapshot: s, Confirmed: c.base.Add(confirmed), Fresh: now-confirmed <= c.opt.MaxAge}
	if !v.Fresh {
		v.Err = c.whyStale(now-confirmed, err)
	}
	return v
}

func (c *Cache) whyStale(age time.Duration, err error) error {
	if err == nil {
		c.mu.Lock()
		err = c.downErr
		c.mu.Unlock()
	}
	if err == nil {
		err = errors.New("the store does not confirm")
	}
	return fmt.Errorf("snapshot was not confirmed for %s: %w", age.Round(time.Millisecond), err)
}

// now is the time since base: one monotonic reading, no wall clock.
func (c *Cache) now() time.Duration { return time.Since(c.base) }

// Retain keeps a lease from being evicted, until as many calls of Release,
// and has its changes read and told at once. A channel retains its lease.
func (c *Cache) Retain(leaseID string) {
	if !ValidID(leaseID) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.held(leaseID)
	h.retained++
	if h.retained == 1 {
		h.fresh = true // who retains it has just decided by it; anything else is news
		c.activate(h)
		c.settle(h)
	}
}

// Release undoes one Retain.
func (c *Cache) Release(leaseID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.index.get(leaseID)
	if h == nil || h.retained == 0 {
		return
	}
	h.retained--
	c.rest(h)
	c.trim()
}
