package authz

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// Facts answers what the store says of a lease.
type Facts interface {
	// Snapshot returns the joined snapshot of a lease. It reads the store only
	// when the snapshot is not held or not confirmed; what could not be read
	// or confirmed is not Fresh. It is safe for concurrent use.
	Snapshot(ctx context.Context, leaseID string) View
}

// Workers is the link to the workers.
type Workers interface {
	// Enabled says whether this gateway runs worker links at all.
	Enabled() bool
	// Live returns the worker's live document as far as it is known for this
	// request without touching the worker, or nil. At a recheck it may start
	// one shared probe in the background; it never waits.
	Live(req *Request, worker *Record) *Live
	// Ask asks the worker: it opens a link or probes, within the worker
	// time-outs. The document is nil when there is none.
	Ask(ctx context.Context, req *Request, worker *Record) (*Live, error)
}

// Question is everything a decision is a function of.
type Question struct {
	Request        *Request
	View           View
	Live           *Live
	Now            time.Time
	WorkersEnabled bool

	asked bool // the worker was, whatever it answered
}

// Policy answers questions. It never fails: what it cannot answer is a denial
// with the reason why.
type Policy interface {
	// Capabilities lists the capabilities of the policy's table, sorted;
	// empty while no policy is loaded.
	Capabilities() []Capability
	// Decide is safe for concurrent use. It waits for an evaluator no longer
	// than its bounded queue and evaluates no longer than its deadline.
	Decide(ctx context.Context, q *Question) Decision
}

// Classes is what a Policy may offer besides: a comparable value that stands for
// the policy of now and what it can see of a request, apart from what Kinship
// holds. It is false when every request is its own.
type Classes interface {
	Class(req *Request) (any, bool)
}

// Recorder takes every decision, before anyone acts on it. It must not block.
type Recorder interface {
	RecordDecision(req *Request, d *Decision)
}

// Callers says what has become of a credential.
type Callers interface {
	// Current returns the principal that p's credential stands for now, or
	// nil when the credential was withdrawn.
	Current(p *Principal) *Principal
}

// Authorizer is the one path to a decision. All fields are required but Log
// and Now; it is safe for concurrent use.
type Authorizer struct {
	Facts    Facts
	Workers  Workers
	Policy   Policy
	Recorder Recorder
	Log      *slog.Logger
	Now      func() time.Time // time.Now when nil
}

// Authorize decides req and records the decision. When everything allows, it
// calls reserve (which may be nil) with the allowing decision for a place
// under the limits; a reason from reserve refuses. The order of the steps is the order of effects: the
// store is not asked before the caller is known, the worker not before it is
// all that is missing.
func (a *Authorizer) Authorize(ctx context.Context, req *Request, reserve func(*Decision) Reason) Decision {
	d := a.decide(ctx, req, nil)
	if d.Allow && reserve != nil {
		if reason := reserve(&d); reason != "" {
			view, live := d.View, d.Live
			d = Busy(reason)
			d.View, d.Live = view, live
		}
	}
	return a.record(req, d)
}

// Refuse records a denial that was reached before any fact was looked at,
// such as a caller's rate.
func (a *Authorizer) Refuse(req *Request, d Decision) Decision {
	d.Allow = false
	return a.record(req, d)
}

func (a *Authorizer) record(req *Request, d Decision) Decision {
	d.ID = NewID()
	d.At = a.now()
	a.Recorder.RecordDecision(req, &d)
	return d
}

// Look answers what an open of each capability would be told now, for a
// caller that may know: its own tenant's lease, well-formed and confirmed.
// Any other answer is a denial, the same for a missing, a malformed and a
// foreign lease. The look is recorded as one decision.
func (a *Authorizer) Look(ctx context.Context, req *Request) (map[Capability]bool, Decision) {
	granted, d := a.look(ctx, req)
	return granted, a.record(req, d)
}

func (a *Authorizer) look(ctx context.Context, req *Request) (map[Capability]bool, Decision) {
	table := a.Policy.Capabilities()
	if len(table) == 0 {
		return nil, Unavailable(ReasonPolicyNotLoaded)
	}
	granted := make(map[Capability]bool, len(table))
	var last Question
	for _, c := range table {
		one := *req
		one.Capability, one.Phase = c, Open
		q, d := a.reachFrom(ctx, &one, &last)
		last = q
		switch s := d.View.Snapshot; {
		case d.Code == CodeUnauthenticated, d.Code == CodeCredentialExpired, d.Code == CodeUnavailable:
			return nil, d
		case s == nil || s.Lease == nil || s.Lease.TenantID != req.Principal.TenantID:
			view := d.View
			d = Deny(CodeCapabilityDenied, d.Reason)
			d.View = view
			return nil, d
		}
		granted[c] = d.Allow
	}
	return granted, Decision{Allow: true, Code: CodeAllow, Reason: ReasonAllow, Status: 200, View: last.View, Live: last.Live}
}

// reachFrom is reach for the next capability of a look: on the same facts, and
// a worker that was asked once is not asked again.
func (a *Authorizer) reachFrom(ctx context.Context, req *Request, last *Question) (q Question, d Decision) {
	defer func() {
		if p := recover(); p != nil {
			a.log().Error("panic while deciding", "panic", fmt.Sprint(p))
			d = Unavailable(ReasonEvaluationError)
		}
		if req.Conn != nil {
			_ = req.Conn.Close()
		}
	}()
	if last.View.Snapshot == nil || !last.asked {
		return a.reach(ctx, req, nil)
	}
	q = *last
	q.Request, q.Now = req, a.now()
	return q, a.answer(ctx, &q)
}

// decide never panics and never allows by accident: a panic anywhere below is
// a denial, and the Floor has the last word.
func (a *Authorizer) decide(ctx context.Context, req *Request, seen *View) (d Decision) {
	defer func() {
		if p := recover(); p != nil {
			a.log().Error("panic while deciding", "panic", fmt.Sprint(p))
			d = Unavailable(ReasonEvaluationError)
		}
	}()
	_, d = a.reach(ctx, req, seen)
	return d
}

// Question returns what a decision on req rests on now: the facts, and the
// worker's document, asked for only when it is all that is missing. Nothing is
// decided or recorded; it is for explaining.
func (a *Authorizer) Question(ctx context.Context, req *Request) Question {
	q, _ := a.reach(ctx, req, nil)
	return q
}

// reach takes the steps in the order of their effects. seen is the view of now,
// if it was looked up already.
func (a *Authorizer) reach(ctx context.Context, req *Request, seen *View) (Question, Decision) {
	q := Question{Request: req, Now: a.now(), WorkersEnabled: a.Workers.Enabled()}
	if !a.callerStands(req, q.Now) {
		return q, a.answer(ctx, &q)
	}
	if seen != nil {
		q.View = *seen
	} else {
		q.View = a.Facts.Snapshot(ctx, req.LeaseID)
	}
	worker := WorkerToAsk(&q)
	if worker != nil {
		q.Live = a.Workers.Live(req, worker)
	}
	q.Now = a.now()
	d := a.answer(ctx, &q)

	onlyWorkerMissing := d.Reason == ReasonWorkerUnavailable && q.Live == nil
	if !onlyWorkerMissing || worker == nil || req.Phase == Recheck {
		return q, d
	}
	live, err := a.Workers.Ask(ctx, req, worker)
	q.asked = true
	if err != nil {
		a.log().Debug("worker did not answer", "worker", worker.ID, "error", err)
		d.Fault = err.Error()
	}
	if live == nil {
		return q, d
	}
	q.Live = live
	q.View = a.Facts.Snapshot(ctx, req.LeaseID) // asking took its time
	q.Now = a.now()
	return q, a.answer(ctx, &q)
}

// Kinship is what the answer to a recheck is a function of, the time apart: of
// equal kin, one answer holds for all at one moment.
type Kinship struct {
	snapshot    *Snapshot
	live        *Live
	fresh       bool
	principal   *Principal
	capability  Capability
	environment string
	channel     ChannelFacts // but for its id and time
	class       any
}

// Kin returns the kinship of a recheck on the facts of now, without deciding
// anything. It is false when no other recheck can have the same answer for
// certain.
func (a *Authorizer) Kin(ctx context.Context, req *Request) (Kinship, bool) {
	classes, ok := a.Policy.(Classes)
	if !ok || req.Channel == nil {
		return Kinship{}, false
	}
	class, ok := classes.Class(req)
	if !ok {
		return Kinship{}, false
	}
	q := Question{Request: req, View: a.Facts.Snapshot(ctx, req.LeaseID), WorkersEnabled: a.Workers.Enabled()}
	k := Kinship{
		snapshot: q.View.Snapshot, fresh: q.View.Fresh, principal: req.Principal, capability: req.Capability,
		environment: req.EnvironmentID, channel: *req.Channel, class: class,
	}
	k.channel.ID, k.channel.OpenedAt = "", time.Time{}
	if worker := WorkerToAsk(&q); worker != nil {
		k.live = a.Workers.Live(req, worker)
	}
	return k, true
}

// Repeat records for req what was just decided for its kin.
func (a *Authorizer) Repeat(req *Request, d Decision) Decision {
	d.Evaluated = 0
	return a.record(req, d)
}

// callerStands is gates 1 to 3, asked before anything is looked up. The
// policy gives the reason.
func (a *Authorizer) callerStands(req *Request, now time.Time) bool {
	if req.Principal == nil || expired(req.Principal.ExpiresAt, now) {
		return false
	}
	for _, c := range a.Policy.Capabilities() {
		if c == req.Capability {
			return true
		}
	}
	return false
}

func (a *Authorizer) answer(ctx context.Context, q *Question) Decision {
	return Answer(ctx, a.Policy, q)
}

// Answer asks the policy and holds an allow against the Floor. Nothing is
// recorded: whoever acts on an answer goes through an Authorizer.
func Answer(ctx context.Context, policy Policy, q *Question) Decision {
	d := policy.Decide(ctx, q)
	if d.Allow {
		if code, reason := Floor(q); reason != "" {
			evaluated := d.Evaluated
			d = Deny(code, reason)
			d.Evaluated = evaluated
		}
	}
	d.View, d.Live, d.principal = q.View, q.Live, q.Request.Principal
	return d
}

// WorkerToAsk is the lease's worker, when there is a well-formed record of it
// and it may serve the lease's tenant; another tenant's worker is never
// touched.
func WorkerToAsk(q *Question) *Record {
	s := q.View.Snapshot
	if !q.WorkersEnabled || s == nil || s.Lease == nil || s.Worker == nil {
		return nil
	}
	if s.Worker.TenantID != "" && s.Worker.TenantID != s.Lease.TenantID {
		return nil
	}
	return s.Worker
}

func (a *Authorizer) now() time.Time {
	if a.Now != nil {
		return a.Now()
	}
	return time.Now()
}

func (a *Authorizer) log() *slog.Logger {
	if a.Log != nil {
		return a.Log
	}
	return slog.New(slog.DiscardHandler)
}
