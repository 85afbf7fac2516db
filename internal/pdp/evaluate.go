package pdp

import (
	"context"
	"sluice/internal/authz"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// resultVar is the variable that a question binds its answer to.
const resultVar = "answer"

// evaluation is what one evaluator uses for one evaluation after another: its
// deadline, which is OPA's cancel, and its rule cache.
type evaluation struct {
	timeout  time.Duration
	began    time.Time
	deadline time.Time
	looked   time.Time     // at the clock
	lost     time.Duration // that the deadline was moved by
	asked    uint8
	over     bool
	rules    ruleCache
}

// begin gives what is evaluated next timeout from now.
func (e *evaluation) begin(timeout time.Duration) {
	now := time.Now()
	e.timeout, e.began, e.looked, e.deadline = timeout, now, now, now.Add(timeout)
	e.lost, e.asked, e.over = 0, 0, false
}

// Cancel is part of topdown.Cancel.
func (e *evaluation) Cancel() { e.over = true }

// Cancelled is part of topdown.Cancel. OPA asks at every expression, also
// within comprehensions and negations, and in the builtins that may run long;
// the clock is looked at every 64th time.
func (e *evaluation) Cancelled() bool {
	e.asked++
	if e.asked%64 == 0 && !e.over {
		e.over = e.overdue(time.Now())
	}
	return e.over
}

// overdue looks at the clock. Between two looks lie microseconds: where it is
// much more, the machine ran something else, and that is not the evaluation's
// time. Since it may have been a slow builtin, no more than the timeout is given
// back.
func (e *evaluation) overdue(now time.Time) bool {
	if gap := now.Sub(e.looked); gap > e.timeout/5 {
		back := min(gap, e.timeout-e.lost)
		e.lost += back
		e.deadline = e.deadline.Add(back)
	}
	e.looked = now
	return !now.Before(e.deadline)
}

// noMetadata is shared by all queries: OPA would make one for each.
var noMetadata = map[string]any{}

// ask asks a set one question. A nil term is an undefined answer. known is what
// rules evaluated to before, on what they look at of this input.
func (e *evaluation) ask(s *policySet, question ast.Body, input *ast.Term, known ...ruleValue) (*ast.Term, error) {
	e.rules.reset(known)
	var answer *ast.Term
	answers := 0
	err := topdown.NewQuery(question).
		WithCompiler(s.compiler).
		WithStore(noStore{}).WithBaseCache(s.data).WithVirtualCache(&e.rules).
		WithInput(input).
		WithCancel(e).
		WithMetrics(metrics.NoOp()).
		WithRequestMetadata(noMetadata).
		WithStrictBuiltinErrors(true).
		Iter(context.Background(), func(r topdown.QueryResult) error {
			answer = r[ast.Var(resultVar)]
			answers++
			return nil
		})
	if err != nil {
		return nil, err
	}
	if answers > 1 {
		return nil, &topdown.Error{Code: topdown.ConflictErr, Message: "more than one answer"}
	}
	return answer, nil
}

// baseData answers reads of base documents from one shared immutable object.
type baseData struct{ root ast.Value }

// Get is part of topdown.BaseCache.
func (b *baseData) Get(ref ast.Ref) ast.Value {
	v, err := b.root.Find(ref[1:])
	if err != nil {
		return nil
	}
	return v
}

// Put is part of topdown.BaseCache.
func (*baseData) Put(ast.Ref, ast.Value) {}

// noStore is asked for what baseData does not have, and has nothing.
type noStore struct {
	storage.PolicyNotSupported
	storage.WritesNotSupported
	storage.TriggersNotSupported
}

var errNotFound = &storage.Error{Code: storage.NotFoundErr, Message: "no such document"}

func (noStore) NewTransaction(context.Context, ...storage.TransactionParams) (storage.Transaction, error) {
	return nil, nil
}

func (noStore) Read(context.Context, storage.Transaction, storage.Path) (any, error) {
	return nil, errNotFound
}
func (noStore) Commit(context.Context, storage.Transaction) error { return nil }
func (noStore) Abort(context.Context, storage.Transaction)        {}
func (noStore) Truncate(context.Context, storage.Transaction, storage.TransactionParams, storage.Iterator) error {
	return errNotFound
}

// decide is one decision, whatever happens in it.
func (s *policySet) decide(q *authz.Question, e *evaluation) authz.Decision {
	classification, err := s.classify(q, e)
	if err != nil {
		return unanswered(readError(s, err), err)
	}
	if classification == nil {
		return authz.Unavailable(authz.ReasonUndefined)
	}
	input, err := inputTerm(q, classification, s)
	if err != nil {
		return unanswered(authz.ReasonEvaluationError, err)
	}
	kept := s.keptRules(q, input)
	known := kept.values()
	answer, err := e.ask(s, s.decision, input, known...)
	switch {
	case err != nil:
		return unanswered(readError(s, err), err)
	case answer == nil:
		return authz.Unavailable(authz.ReasonUndefined)
	}
	if !e.overdue(time.Now()) {
		kept.keep(&e.rules, known, s.steady)
	}
	return readDecision(answer)
}
