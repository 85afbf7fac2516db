package pdp

import (
	"context"
	"fmt"
	"runtime/debug"
	"sluice/internal/authz"
	"sync"
	"sync/atomic"
	"time"
)

// asked says what a job is to find out.
type asked uint8

const (
	forDecision asked = iota
	forTeardown
	forExplanation
)

// job is one question on its way through an evaluator. It holds a copy of the
// question, since a caller that stops waiting goes on to change its request.
type job struct {
	asked    asked
	question authz.Question
	request  authz.Request
	result   result

	started   atomic.Int64 // since the epoch, in nanoseconds; 0: it waits
	abandoned atomic.Bool
	done      chan struct{} // holds one token when the result is there
	overrun   *time.Timer
}

// result is what a job found out. The zero result denies.
type result struct {
	decision  authz.Decision
	ready     bool
	reason    string // of ready
	explained *Explanation
}

var jobs = sync.Pool{New: func() any {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &job{done: make(chan struct{}, 1), overrun: timer}
}}

func newJob(what asked, q *authz.Question) *job {
	j := jobs.Get().(*job)
	j.asked, j.question = what, *q
	if q.Request != nil {
		j.request = *q.Request
	} else {
		j.request = *neutral
	}
	j.question.Request = &j.request
	j.started.Store(0)
	return j
}

// release gives a finished job back. An abandoned one is left to the collector.
func (j *job) release() {
	j.question, j.request, j.result = authz.Question{}, authz.Request{}, result{}
	jobs.Put(j)
}

// lane is a bounded queue and the evaluators that serve it.
type lane struct {
	queue      chan *job
	evaluators int
	retries    bool         // what ran out of time is tried once more, at once
	timeout    atomic.Int64 // of one evaluation, in nanoseconds
}

// stubborn is how long an evaluation may go on after it was told to stop,
// within a builtin, before its caller is answered without it.
const stubborn = 20 * time.Millisecond

// patience is how long a caller waits for an evaluation that has begun: twice
// the timeout, for the machine may have run something else.
func (l *lane) patience() time.Duration {
	once := 2*time.Duration(l.timeout.Load()) + stubborn
	if l.retries {
		return 2 * once
	}
	return once
}

// ask waits for a job's result, no longer than ctx or the engine lives. It
// returns the reason when there is none.
func (l *lane) ask(ctx context.Context, stopped <-chan struct{}, j *job) authz.Reason {
	select {
	case l.queue <- j:
	default:
		return authz.ReasonEvaluationBusy
	}
	j.overrun.Reset(l.patience())
	defer j.overrun.Stop()
	for {
		select {
		case <-j.done:
			return ""
		case <-j.overrun.C:
			left := l.patience()
			if started := j.started.Load(); started != 0 {
				left -= time.Since(time.Unix(0, started))
			}
			if left > 0 {
				j.overrun.Reset(left)
				continue
			}
		case <-ctx.Done():
		case <-stopped:
		}
		j.abandoned.Store(true)
		if j.started.Load() != 0 {
			return authz.ReasonEvaluationTimeout
		}
		return authz.ReasonEvaluationBusy
	}
}

// serve evaluates the lane's jobs, one after another on one goroutine: its
// stack has grown once and for all.
func (e *Engine) serve(ctx context.Context, l *lane) {
	evaluation := new(evaluation)
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-l.queue:
			if j.abandoned.Load() {
				continue
			}
			j.started.Store(time.Now().UnixNano())
			e.work(j, l, evaluation)
			j.done <- struct{}{}
		}
	}
}

// work does a job under the set that is active when it is done: a set that
// took over meanwhile is asked anew.
func (e *Engine) work(j *job, l *lane, evaluation *evaluation) {
	for range 3 {
		set := e.set.Load()
		if set == nil {
			j.result = unavailable(authz.ReasonPolicyNotLoaded)
			return
		}
		timeout := time.Duration(l.timeout.Load())
		j.result = e.try(set, j, timeout, evaluation)
		if l.retries && j.result.decision.Reason == authz.ReasonEvaluationTimeout && !j.abandoned.Load() {
			j.result = e.try(set, j, timeout, evaluation)
		}
		if e.set.Load() == set {
			return
		}
	}
	j.result = unavailable(authz.ReasonEvaluationBusy)
}

func unavailable(reason authz.Reason) result {
	return result{decision: authz.Unavailable(reason), reason: string(reason)}
}

// try is one evaluation; a panic within is a denial, and the evaluator lives.
func (e *Engine) try(set *policySet, j *job, timeout time.Duration, evaluation *evaluation) (r result) {
	defer func() {
		if p := recover(); p != nil {
			e.opt().Log.Error("panic while evaluating", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			r = unavailable(authz.ReasonEvaluationError)
		}
	}()
	began := time.Now()
	evaluation.begin(timeout)
	switch j.asked {
	case forDecision:
		r.decision = set.decide(&j.question, evaluation)
		r.decision.Policy, r.decision.Evaluated = set.revision, time.Since(began)
	case forTeardown:
		r.ready, r.reason = set.tearDown(&j.question, evaluation)
	case forExplanation:
		r.explained = set.explain(&j.question, evaluation)
	}
	return r
}
