package pdp

import (
	"context"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/topdown"

	"sluice/internal/authz"
)

// resultVar is the variable that a question binds its answer to.
const resultVar = "answer"

// deadline stops one evaluation when its time is up. OPA asks it at every
// expression, also within comprehensions and negations, and in the builtins
// that may run long; it looks at the clock at every 64th time of being asked.
// It belongs to one evaluator.
type deadline struct {
	at    time.Time
	asked uint8
	over  bool
}

func (d *deadline) reset(at time.Time) { *d = deadline{at: at} }

// Cancel is part of topdown.Cancel.
func (d *deadline) Cancel() { d.over = true }

// Cancelled is part of topdown.Cancel.
func (d *deadline) Cancelled() bool {
	d.asked++
	if d.asked%64 == 0 && !d.over {
		d.over = !time.Now().Before(d.at)
	}
	return d.over
}

// evaluate asks a set one question within a deadline. A nil term is an
// undefined answer.
func (s *policySet) evaluate(question ast.Body, input *ast.Term, cancel topdown.Cancel) (*ast.Term, error) {
	var answer *ast.Term
	answers := 0
	err := topdown.NewQuery(question).
		WithCompiler(s.compiler).
		WithStore(noStore{}).WithBaseCache(baseData{s.data}).
		WithInput(input).
		WithCancel(cancel).
		WithMetrics(metrics.NoOp()).
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
func (b baseData) Get(ref ast.Ref) ast.Value {
	v, err := b.root.Find(ref[1:])
	if err != nil {
		return nil
	}
	return v
}

// Put is part of topdown.BaseCache.
func (baseData) Put(ast.Ref, ast.Value) {}

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

// keptClassification is what a snapshot keeps: the answer of one policy set,
// and never of another.
type keptClassification struct {
	set            *policySet
	workersEnabled bool
	term           *ast.Term
}

// nothingClassified lacks every capability, and so denies every one.
var nothingClassified = emptyMap

// classify is the classification of the question's snapshot under s: the kept
// one, or a new one, which is then kept. What the gates before it will refuse
// is not classified.
func (s *policySet) classify(q *authz.Question, cancel topdown.Cancel) (*ast.Term, error) {
	snapshot := q.View.Snapshot
	if snapshot == nil || snapshot.Lease == nil || snapshot.Control == nil || len(snapshot.Malformed) > 0 {
		return nothingClassified, nil
	}
	if kept := keptFor(s, snapshot, q.WorkersEnabled); kept != nil {
		return kept, nil
	}
	input, err := inputTerm(&authz.Question{
		Request: neutral, WorkersEnabled: q.WorkersEnabled, View: authz.View{Snapshot: snapshot, Fresh: true},
	}, nil, s.needs)
	if err != nil {
		return nil, err
	}
	term, err := s.evaluate(s.classification, input, cancel)
	if err != nil || term == nil {
		return nil, err
	}
	snapshot.Derived.Store(&keptClassification{s, q.WorkersEnabled, term})
	return term, nil
}

func keptFor(s *policySet, snapshot *authz.Snapshot, workersEnabled bool) *ast.Term {
	kept, ok := snapshot.Derived.Load().(*keptClassification)
	if !ok || kept.set != s || kept.workersEnabled != workersEnabled {
		return nil
	}
	return kept.term
}

// decide is one decision, whatever happens in it.
func (s *policySet) decide(q *authz.Question, cancel topdown.Cancel) authz.Decision {
	classification, err := s.classify(q, cancel)
	if err != nil {
		return authz.Unavailable(readError(s, err))
	}
	if classification == nil {
		return authz.Unavailable(authz.ReasonUndefined)
	}
	input, err := inputTerm(q, classification, s.needs)
	if err != nil {
		return authz.Unavailable(authz.ReasonEvaluationError)
	}
	answer, err := s.evaluate(s.decision, input, cancel)
	switch {
	case err != nil:
		return authz.Unavailable(readError(s, err))
	case answer == nil:
		return authz.Unavailable(authz.ReasonUndefined)
	}
	return readDecision(answer)
}
