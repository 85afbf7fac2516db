package channel

import (
	"context"
	"slices"
	"sluice/internal/authz"
	"sync"
	"time"
)

// LeaseChanged has the channels of leases that changed together judged again.
// Like its siblings it returns at once; the rechecks run in Run.
func (r *Register) LeaseChanged(leases ...string) { r.sweep(r.of(r.byLease, leases...)) }

// WorkerChanged has the channels of a worker judged again.
func (r *Register) WorkerChanged(worker string) { r.sweep(r.of(r.byWorker, worker)) }

// EverythingChanged has every channel judged again: the policy was swapped,
// or the callers' credentials were.
func (r *Register) EverythingChanged() { r.sweep(r.all()) }

// sweep is the rechecks that one change asks for. Of channels that are kin the
// policy is asked about one, and its answer is every other's too: reached for
// each, and recorded for each. It holds for a moment only; what depends on the
// time has timers of its own.
type sweep struct {
	began   time.Time
	mu      sync.Mutex
	answers map[authz.Kinship]authz.Decision
}

func (s *sweep) get(k authz.Kinship) (authz.Decision, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, ok := s.answers[k]
	return d, ok
}

func (s *sweep) put(k authz.Kinship, d authz.Decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[k] = d
}

func (r *Register) sweep(channels []*Channel) {
	now := time.Now()
	var s *sweep
	if len(channels) > 1 {
		s = &sweep{began: now, answers: map[authz.Kinship]authz.Decision{}}
	}
	for _, c := range channels {
		c.mu.Lock()
		c.sweep = s
		c.mu.Unlock()
		r.enqueue(c, now, len(channels) <= few)
	}
}

// few is how many channels a change may touch to go before those that touch
// more.
const few = 128

func (r *Register) of(m map[string]map[*Channel]struct{}, keys ...string) []*Channel {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*Channel
	for _, key := range keys {
		for c := range m[key] {
			out = append(out, c)
		}
	}
	return out
}

func (r *Register) all() []*Channel {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*Channel, 0, len(r.channels))
	for _, c := range r.channels {
		out = append(out, c)
	}
	return out
}

// enqueue asks for a recheck because of something noticed at since. From then
// on the channel has the bound to be judged in: one that is not is undecided,
// however long the queue is.
func (r *Register) enqueue(c *Channel, since time.Time, urgent bool) {
	c.mu.Lock()
	c.asks++
	if c.since.IsZero() {
		*c.since = since
	}
	if c.overdue == nil {
		c.overdue = r.overdue(c, since)
	}
	c.mu.Unlock()
	r.queue.put(c, urgent)
}

// overdue ends the channel when what was noticed at since is not settled in time.
func (r *Register) overdue(c *Channel, since time.Time) *time.Timer {
	due := since.Add(r.limits.Load().RevocationBound * overdueShare / 100)
	return time.AfterFunc(time.Until(due), func() { r.undecided(c, since) })
}

// overdueShare is how much of the bound a recheck may take, in percent; the
// rest is for stopping.
const overdueShare = 70

// undecided ends a channel that could not be judged in time, by a denial that
// is recorded like any other.
func (r *Register) undecided(c *Channel, since time.Time) {
	a := c.question(r.callers)
	if c.Ending() == nil {
		c.End(Denied(r.authorizer.Refuse(&a.request, authz.Unavailable(authz.ReasonRecheckOverdue)), since))
	}
}

// Run judges channels again until ctx is done.
func (r *Register) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for range r.rechecks {
		wg.Go(func() { r.work(ctx) })
	}
	wg.Wait()
	return nil
}

func (r *Register) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.queue.wake:
			for c := r.queue.next(); c != nil && ctx.Err() == nil; c = r.queue.next() {
				r.recheck(ctx, c)
			}
		}
	}
}

// recheck is the second story's heart: the channel keeps its right, or ends.
func (r *Register) recheck(ctx context.Context, c *Channel) {
	if c.Ending() != nil {
		return
	}
	a := c.question(r.callers)
	ctx, cancel := context.WithTimeout(ctx, r.limits.Load().RevocationBound/2)
	defer cancel()
	d := r.judge(ctx, &a)
	if d.Allow {
		c.settle(d, &a)
		return
	}
	c.End(Denied(d, a.since))
}

// judge reaches the decision for one channel of a sweep.
func (r *Register) judge(ctx context.Context, a *asked) authz.Decision {
	s := a.sweep
	if s == nil || time.Since(s.began) > r.limits.Load().RevocationBound/2 {
		return r.authorizer.Recheck(ctx, &a.request, &a.last)
	}
	kin, ok := r.authorizer.Kin(ctx, &a.request)
	if !ok {
		return r.authorizer.Recheck(ctx, &a.request, &a.last)
	}
	if d, ok := s.get(kin); ok {
		return r.authorizer.Repeat(&a.request, d)
	}
	d := r.authorizer.Recheck(ctx, &a.request, &a.last)
	if d.Code == authz.CodeUnavailable {
		return d // what could not be decided is tried again
	}
	if still, ok := r.authorizer.Kin(ctx, &a.request); ok && still == kin { // and not that of what changed meanwhile
		s.put(kin, d)
	}
	return d
}

// Drain tells every channel to end, evenly spread over spread, and returns
// when all are gone or ctx is done. Plain requests, which end by themselves, are
// told when ctx is done: what a worker already does for one would be done twice.
func (r *Register) Drain(ctx context.Context, spread time.Duration) {
	channels := r.drained()
	for i, c := range channels {
		c.End(EndDrain)
		if wait := spread / time.Duration(len(channels)); i < len(channels)-1 {
			sleep(ctx, wait)
		}
	}
	for r.Len() > 0 && ctx.Err() == nil {
		for _, c := range r.drained() { // opened while draining
			c.End(EndDrain)
		}
		sleep(ctx, 10*time.Millisecond)
	}
	for _, c := range r.all() {
		c.End(EndDrain)
	}
	for began := time.Now(); r.Len() > 0 && time.Since(began) < lastWords; {
		sleep(context.Background(), time.Millisecond)
	}
}

// lastWords is how long those that the end of a drain cuts have to be told.
const lastWords = 100 * time.Millisecond

// drained are the channels that a drain ends.
func (r *Register) drained() []*Channel {
	return slices.DeleteFunc(r.all(), func(c *Channel) bool { return c.request.Kind == authz.PlainRequest })
}

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

var _ Authorizer = (*authz.Authorizer)(nil)
