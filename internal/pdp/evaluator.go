package pdp

import (
	"context"
	"fmt"
	"iter"
	"runtime/debug"
	"sluice/internal/authz"
	"sync/atomic"
	"time"
)

// asked says what a question is to find out.
type asked uint8

const (
	forDecision asked = iota
	forTeardown
	forExplanation
)

// result is what an evaluation found out. The zero result denies.
type result struct {
	decision  authz.Decision
	ready     bool
	reason    string // of ready
	explained *Explanation
}

// evaluator evaluates one question after another on a stack of its own, which has
// grown once and for all: a coroutine, that whoever asks switches to and back
// from. A goroutine that is woken instead costs a fifth of an evaluation.
type evaluator struct {
	resume func() (struct{}, bool)
	end    func()

	ctx      context.Context // of whoever asks
	asked    asked
	question *authz.Question
	result   result
}

func (e *Engine) newEvaluator(l *lane) *evaluator {
	v := new(evaluator)
	v.resume, v.end = iter.Pull(func(rest func(struct{}) bool) {
		evaluation := new(evaluation)
		for {
			v.result = e.work(v, l, evaluation)
			if !rest(struct{}{}) {
				return
			}
		}
	})
	return v
}

// lane is a few evaluators, and a bounded number of callers that wait for one.
type lane struct {
	free       chan *evaluator // those at rest; empty while the engine does not run
	evaluators int
	waiting    atomic.Int64
	queue      int64        // how many may wait
	retries    bool         // what ran out of time is tried once more, at once
	timeout    atomic.Int64 // of one evaluation, in nanoseconds
}

func newLane(evaluators, queue int, retries bool) *lane {
	return &lane{free: make(chan *evaluator, evaluators), evaluators: evaluators, queue: int64(queue), retries: retries}
}

// run lends the lane its evaluators until done, and returns when all are back.
func (e *Engine) run(l *lane, done <-chan struct{}) {
	for range l.evaluators {
		l.free <- e.newEvaluator(l)
	}
	<-done
	for range l.evaluators {
		(<-l.free).end()
	}
}

// stubborn is how long an evaluation may go on after it was told to stop, within
// a builtin, before what it comes to counts for nothing.
const stubborn = 20 * time.Millisecond

// patience is how long a question may take once an evaluator has it: twice the
// timeout, for the machine may run something else.
func (l *lane) patience() time.Duration {
	once := 2*time.Duration(l.timeout.Load()) + stubborn
	if l.retries {
		return 2 * once
	}
	return once
}

// ask waits for an evaluator, no longer than ctx or the engine lives, and has it
// evaluate the question. It returns the reason when it got none.
func (e *Engine) ask(ctx context.Context, l *lane, what asked, q *authz.Question) (r result, reason authz.Reason) {
	v := l.take(ctx, e.stopped)
	if v == nil {
		return result{}, authz.ReasonEvaluationBusy
	}
	rests := false
	defer func() {
		if !rests { // it panicked outside of the evaluation, and is no more
			v = e.newEvaluator(l)
		}
		v.ctx, v.question, v.result = nil, nil, result{}
		l.free <- v // there is room for all
	}()
	if q.Request == nil {
		about := *q
		about.Request = neutral
		q = &about
	}
	v.ctx, v.asked, v.question = ctx, what, q
	if _, rests = v.resume(); !rests {
		return result{}, authz.ReasonEvaluationError
	}
	return v.result, ""
}

// take returns nil where no evaluator is to be had.
func (l *lane) take(ctx context.Context, stopped <-chan struct{}) *evaluator {
	if ctx.Err() != nil {
		return nil
	}
	select {
	case v := <-l.free:
		return v
	default:
	}
	defer l.waiting.Add(-1)
	if l.waiting.Add(1) > l.queue {
		return nil
	}
	select {
	case v := <-l.free:
		return v
	case <-ctx.Done():
	case <-stopped:
	}
	return nil
}

// work answers a question under the set that is active when it is done: a set
// that took over meanwhile is asked anew. The question's facts are of when it was
// asked: an answer that comes too late for them is none.
func (e *Engine) work(v *evaluator, l *lane, evaluation *evaluation) result {
	began := time.Now()
	timeout := time.Duration(l.timeout.Load())
	retries := l.retries
	for range 4 {
		set := e.set.Load()
		if set == nil {
			return unavailable(authz.ReasonPolicyNotLoaded)
		}
		r := e.try(set, v, timeout, evaluation)
		late := time.Since(began) > l.patience() || v.ctx.Err() != nil
		switch {
		case late:
			return r.tooLate()
		case e.set.Load() != set:
		case retries && r.decision.Reason == authz.ReasonEvaluationTimeout:
			retries = false
		default:
			return r
		}
	}
	return unavailable(authz.ReasonEvaluationBusy)
}

// tooLate is a result that counts for nothing but for what went wrong.
func (r result) tooLate() result {
	if d := r.decision; d.Allow || d.Code != authz.CodeUnavailable {
		r.decision = authz.Unavailable(authz.ReasonEvaluationTimeout)
		r.decision.Fault, r.decision.Policy, r.decision.Evaluated = d.Fault, d.Policy, d.Evaluated
	}
	if r.ready || r.reason == "" {
		r.ready, r.reason = false, string(authz.ReasonEvaluationTimeout)
	}
	if r.explained != nil && r.explained.Decision.Code != authz.CodeUnavailable {
		r.explained.Decision = Written(r.decision)
	}
	return r
}

func unavailable(reason authz.Reason) result {
	return result{decision: authz.Unavailable(reason), reason: string(reason)}
}

// try is one evaluation; a panic within is a denial, and the evaluator lives. So
// is one that is over too late: a builtin need not listen when it is told to stop.
func (e *Engine) try(set *policySet, v *evaluator, timeout time.Duration, evaluation *evaluation) (r result) {
	defer func() {
		if p := recover(); p != nil {
			e.opt().Log.Error("panic while evaluating", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			r = unavailable(authz.ReasonEvaluationError)
		}
	}()
	evaluation.begin(timeout)
	switch v.asked {
	case forDecision:
		r.decision = set.decide(v.question, evaluation)
	case forTeardown:
		r.ready, r.reason = set.tearDown(v.question, evaluation)
	case forExplanation:
		r.explained = set.explain(v.question, evaluation)
	}
	now := time.Now()
	r.decision.Policy, r.decision.Evaluated = set.revision, now.Sub(evaluation.began)
	if evaluation.overdue(now) {
		return r.tooLate()
	}
	return r
}
