package pdp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sluice/internal/authz"
	"sync"
	"sync/atomic"
	"time"
)

// Engine is the authz.Policy that asks Rego. Its methods are safe for
// concurrent use. Questions are answered while Run runs; before, they wait,
// and after it ended they are denied.
type Engine struct {
	options  atomic.Pointer[Options]
	set      atomic.Pointer[policySet]
	opens    *lane
	rechecks *lane
	stopped  chan struct{} // closed when Run ended

	reload sync.Mutex // one at a time
	fault  atomic.Pointer[error]
	seen   atomic.Pointer[string] // the path's state when it was last read
}

// New returns an engine without a policy set: Reload or Run loads one. It
// starts nothing.
func New(o Options) (*Engine, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configuring policies: %w", err)
	}
	e := &Engine{
		opens:    newLane(o.Evaluators, o.Queue, false),
		rechecks: newLane(max(1, o.Evaluators/2), o.Queue, true),
		stopped:  make(chan struct{}),
	}
	e.setTimeout(o.Timeout)
	e.options.Store(&o)
	return e, nil
}

var errNotLoaded = errors.New("no policy set has been loaded")

// Ready is nil when a policy set is active, or says why none is.
func (e *Engine) Ready() error {
	if e.set.Load() != nil {
		return nil
	}
	if fault := e.fault.Load(); fault != nil {
		return fmt.Errorf("%s: %w", authz.ReasonPolicyNotLoaded, *fault)
	}
	return fmt.Errorf("%s: %w", authz.ReasonPolicyNotLoaded, errNotLoaded)
}

// Revision names the content of the active set: the shipped packages' and,
// after a dash, the team's. It is "" while none is active.
func (e *Engine) Revision() string {
	if set := e.set.Load(); set != nil {
		return set.revision
	}
	return ""
}

// Capabilities is part of authz.Policy.
func (e *Engine) Capabilities() []authz.Capability {
	if set := e.set.Load(); set != nil {
		return set.capabilities // sorted, and never changed
	}
	return nil
}

// Decide is part of authz.Policy. Rechecks have a lane of their own.
func (e *Engine) Decide(ctx context.Context, q *authz.Question) authz.Decision {
	if e.set.Load() == nil {
		return authz.Unavailable(authz.ReasonPolicyNotLoaded)
	}
	l := e.opens
	if q.Request.Phase == authz.Recheck {
		l = e.rechecks
	}
	r, reason := e.ask(ctx, l, forDecision, q)
	if reason != "" {
		return authz.Unavailable(reason)
	}
	return r.decision
}

// Teardown answers whether it is worth calling the worker now to destroy the
// lease's sandbox, and why. What could not be answered is not ready, with the
// reason.
func (e *Engine) Teardown(ctx context.Context, q *authz.Question) (ready bool, reason string) {
	if e.set.Load() == nil {
		return false, string(authz.ReasonPolicyNotLoaded)
	}
	r, denied := e.ask(ctx, e.opens, forTeardown, q)
	if denied != "" {
		return false, string(denied)
	}
	return r.ready, r.reason
}

// Effective lists the capabilities that the snapshot grants and the live
// worker verifies, sorted; they are not to be changed. It evaluates nothing: it is nil when the active set
// has not classified the snapshot, as when no decision got that far.
func (e *Engine) Effective(s *authz.Snapshot, live *authz.Live) []authz.Capability {
	set := e.set.Load()
	if set == nil || s == nil {
		return nil
	}
	for _, workersEnabled := range []bool{true, false} {
		if k := keptFor(set, s, workersEnabled); k != nil {
			return k.effectiveWith(live)
		}
	}
	return nil
}

func (e *Engine) opt() *Options { return e.options.Load() }

func (e *Engine) setTimeout(d time.Duration) {
	e.opens.timeout.Store(int64(d))
	e.rechecks.timeout.Store(int64(d))
}

// Reconfigure reloads from other sources: the options' Path, Replace, Required
// and RunTests; their Timeout, which is not 0, holds from then on. When they
// give no set, nothing is changed.
func (e *Engine) Reconfigure(ctx context.Context, sources Options) error {
	before := e.opt()
	next := *before
	next.Path, next.Replace, next.Required, next.RunTests = sources.Path, sources.Replace, sources.Required, sources.RunTests
	e.options.Store(&next)
	err := e.Reload(ctx)
	if err != nil {
		e.options.Store(before)
		return err
	}
	e.setTimeout(sources.Timeout)
	return nil
}

// Reload builds a set from the binary's packages and the configured path, and
// swaps it in. A bad one is refused, with the file, line and column where
// there is one, and the old one stays.
func (e *Engine) Reload(ctx context.Context) error {
	e.reload.Lock()
	defer e.reload.Unlock()
	if e.opt().Path != "" {
		state := pathState(e.opt().Path) // before it is read: a change meanwhile is another state
		e.seen.Store(&state)
	}
	set, err := buildSet(ctx, *e.opt())
	e.opt().OnReload(err)
	if err != nil {
		err = fmt.Errorf("loading policies: %w", err)
		e.fault.Store(&err)
		return err
	}
	e.fault.Store(nil)
	old := e.set.Load()
	if old != nil && old.revision == set.revision {
		return nil
	}
	e.set.Store(set)
	e.opt().Log.Info("policy set active", "revision", set.revision)
	if old != nil && e.opt().OnSwap != nil {
		e.opt().OnSwap()
	}
	return nil
}

// Run evaluates questions and follows the configured path until ctx ends. It
// loads a set first, if none is active; one that cannot be loaded is logged
// and tried again when the path changes.
func (e *Engine) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	defer close(e.stopped)
	defer all.Wait()
	for _, l := range []*lane{e.opens, e.rechecks} {
		all.Go(func() { e.run(l, ctx.Done()) })
	}
	if e.set.Load() == nil {
		e.reloadLogged(ctx)
	}
	return e.follow(ctx)
}

var _ authz.Policy = (*Engine)(nil)

// verified reports whether a live worker has every method that a capability
// needs.
func (s *policySet) verified(c authz.Capability, live *authz.Live) bool {
	methods, known := s.methods[c]
	if !known || live == nil {
		return false
	}
	for _, needed := range methods {
		if !slices.ContainsFunc(needed, func(m string) bool { return slices.Contains(live.SupportedMethods, m) }) {
			return false
		}
	}
	return true
}
