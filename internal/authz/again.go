package authz

import (
	"context"
	"fmt"
	"slices"
)

// Lasting is what a Policy may offer besides: it says for how long an allow of
// its own says something.
type Lasting interface {
	// Lasts reports whether an allow to an open is the allow to its admit on the
	// same facts, but for what the Floor finds: an expiry that has come,
	// another worker process.
	Lasts(opened *Decision) bool
	// SameGates reports whether the gates that gave an allow are the shipped
	// ones and are asked still.
	SameGates(last *Decision) bool
	// Overlooks reports that, and that nothing else was asked that looks at the
	// control record, the phase, the time or the channel.
	Overlooks(last *Decision) bool
	// Inherit has what was derived from a snapshot derived from another, for
	// which it says the same.
	Inherit(from, to *Snapshot)
}

// Admit decides and records the second question of an open that was allowed.
// The open's answer is its answer too when it rests on exactly the same facts,
// the caller's credential among them,
// and the policy looks at nothing else that can have changed.
func (a *Authorizer) Admit(ctx context.Context, req *Request, opened *Decision) Decision {
	return a.again(ctx, req, opened, a.stands)
}

// Recheck decides and records again what was last allowed to a channel. Where
// the Floor refuses, and the reason cannot be another gate's, the policy is
// not asked: a revoked lease loses its channels before the rules are through.
// Nor is it where nothing but the control record changed, and that says of this
// lease what it said: one write to it concerns every channel at once.
func (a *Authorizer) Recheck(ctx context.Context, req *Request, last *Decision) Decision {
	return a.again(ctx, req, last, func(policy Lasting, q *Question, last *Decision) (Decision, bool) {
		if d, known := a.lost(policy, q, last); known {
			return d, true
		}
		return a.unconcerned(policy, q, last)
	})
}

// unasked is an answer that needs no evaluation, reached from the last allow and
// the facts of now; it is false where there is none.
type unasked func(policy Lasting, q *Question, last *Decision) (Decision, bool)

func (a *Authorizer) again(ctx context.Context, req *Request, last *Decision, answer unasked) Decision {
	var seen *View
	d, known := a.try(ctx, req, last, answer, &seen)
	if !known {
		d = a.decide(ctx, req, seen)
	}
	return a.record(req, d)
}

// try asks answer. A panic in there is no answer. seen is the view that was
// looked up, so that nobody waits for the store twice.
func (a *Authorizer) try(ctx context.Context, req *Request, last *Decision, answer unasked, seen **View) (d Decision, known bool) {
	defer func() {
		if p := recover(); p != nil {
			a.log().Error("panic while deciding", "panic", fmt.Sprint(p))
			known = false
		}
	}()
	policy, ok := a.Policy.(Lasting)
	q := Question{Request: req, Now: a.now(), WorkersEnabled: a.Workers.Enabled()}
	if !ok || !last.Allow || !a.callerStands(req, q.Now) {
		return Decision{}, false
	}
	q.View = a.Facts.Snapshot(ctx, req.LeaseID)
	*seen = &q.View
	q.Now = a.now()
	return answer(policy, &q, last)
}

// stands is the open's allow, only when the policy would allow again.
func (a *Authorizer) stands(policy Lasting, q *Question, opened *Decision) (Decision, bool) {
	if !policy.Lasts(opened) || q.View.Snapshot != opened.View.Snapshot || q.Request.Principal != opened.principal {
		return Decision{}, false
	}
	if worker := WorkerToAsk(q); worker != nil {
		q.Live = a.Workers.Live(q.Request, worker)
	}
	if _, reason := Floor(q); reason != "" || q.Live != opened.Live {
		return Decision{}, false
	}
	d := *opened
	d.View, d.Evaluated = q.View, 0
	return d, true
}

// unconcerned is the last allow, only when the policy would allow again.
func (a *Authorizer) unconcerned(policy Lasting, q *Question, last *Decision) (Decision, bool) {
	before, now := last.View.Snapshot, q.View.Snapshot
	if !policy.Overlooks(last) || q.Request.Principal != last.principal || !onlyControlDiffers(before, now) || !controlSaysTheSame(before, now) {
		return Decision{}, false
	}
	if worker := WorkerToAsk(q); worker != nil {
		q.Live = a.Workers.Live(q.Request, worker)
	}
	if _, reason := Floor(q); reason != "" || q.Live != last.Live {
		return Decision{}, false
	}
	policy.Inherit(before, now)
	d := *last
	d.View, d.Evaluated = q.View, 0
	return d, true
}

func onlyControlDiffers(before, now *Snapshot) bool {
	return before != nil && now != nil && before.Control != nil && now.Control != nil && before.Control != now.Control &&
		len(before.Malformed) == 0 && len(now.Malformed) == 0 &&
		before.Lease != nil && before.Lease == now.Lease && before.Environment == now.Environment &&
		before.Plugin == now.Plugin && before.Worker == now.Worker
}

// controlSaysTheSame is about gates 10 and 11, which alone look at what the
// control record says.
func controlSaysTheSame(before, now *Snapshot) bool {
	suspended := func(s *Snapshot) bool { return slices.Contains(s.Control.SuspendedTenants, s.Lease.TenantID) }
	return before.Control.DuplexEnabled == now.Control.DuplexEnabled && suspended(before) == suspended(now)
}

// lost is a denial, only when the policy would deny for the same reason.
func (a *Authorizer) lost(policy Lasting, q *Question, last *Decision) (Decision, bool) {
	code, reason := Floor(q)
	if !policy.SameGates(last) || !firstToFail(reason, q, last.View.Snapshot) {
		return Decision{}, false
	}
	d := Deny(code, reason)
	d.View, d.Live = q.View, last.Live
	return d, true
}

// firstToFail reports whether no gate before the one that the Floor names can
// fail: of a principal that stands, where gates 1 to 27 passed on the facts of
// before. Gates 8, 10 and 11 have the Floor's word only by what they look at.
func firstToFail(reason Reason, q *Question, before *Snapshot) bool {
	s := q.View.Snapshot
	if before == nil || s != nil && len(s.Malformed) > 0 {
		return false
	}
	switch reason {
	case ReasonSnapshotMissing, ReasonTenantMismatch: // 5, 7
		return true
	case ReasonLeaseExpired: // 9
		return q.Request.EnvironmentID == "" || q.Request.EnvironmentID == s.Lease.EnvironmentID
	case ReasonLeaseNotActive: // 12
		return s.Control == before.Control && s.Lease.TenantID == before.Lease.TenantID && s.Lease.EnvironmentID == before.Lease.EnvironmentID
	}
	return false
}
