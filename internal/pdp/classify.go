package pdp

import (
	"slices"
	"sluice/internal/authz"
	"sync/atomic"

	"github.com/open-policy-agent/opa/v1/ast"
)

// kept is what a snapshot keeps: the classification that one policy set gave
// it, and never another's, and the snapshot's term as the last question saw it.
type kept struct {
	set            *policySet
	workersEnabled bool
	classification *ast.Term
	last           atomic.Pointer[keptTerm]
	effective      atomic.Pointer[keptEffective]
}

// keptEffective is what the snapshot's lease could do with one live document.
type keptEffective struct {
	live         *authz.Live
	capabilities []authz.Capability
}

// effectiveWith returns what the classification grants and live verifies.
func (k *kept) effectiveWith(live *authz.Live) []authz.Capability {
	if last := k.effective.Load(); last != nil && last.live == live {
		return last.capabilities
	}
	capabilities := k.set.effective(k.classification, live)
	k.effective.Store(&keptEffective{live, capabilities})
	return capabilities
}

// keptTerm is a snapshot's term, for all that it is made of besides the
// snapshot.
type keptTerm struct {
	live    *authz.Live
	fresh   bool
	expires int64
	term    *ast.Term
	rules   []keptRules // by capability, in the set's order
}

// keptRules is what the rules that look at nothing else evaluated to for one
// snapshot's term and one capability. A nil one keeps nothing.
type keptRules struct{ list atomic.Pointer[[]ruleValue] }

func (k *keptRules) values() []ruleValue {
	if k == nil {
		return nil
	}
	if list := k.list.Load(); list != nil {
		return *list
	}
	return nil
}

// keep keeps what is in the cache after an evaluation. What a later one adds, as a
// denial does to an allow, is kept too.
func (k *keptRules) keep(c *ruleCache, known []ruleValue, steady []ast.Ref) {
	if k == nil {
		return
	}
	if list := c.keep(known, steady); len(list) > len(known) {
		k.list.Store(&list)
	}
}

// keptRules is where the rules are kept that looked at the snapshot in input.
func (s *policySet) keptRules(q *authz.Question, input *ast.Term) *keptRules {
	k := keptFor(s, q.View.Snapshot, q.WorkersEnabled)
	if k == nil {
		return nil
	}
	last := k.last.Load()
	i, known := slices.BinarySearch(s.capabilities, q.Request.Capability)
	if last == nil || !known || input.Get(keySnapshot) != last.term {
		return nil
	}
	return &last.rules[i]
}

// nothingClassified lacks every capability, and so denies every one.
var nothingClassified = emptyMap

// classify is the classification of the question's snapshot under s: the kept
// one, or a new one, which is then kept. What the gates before it will refuse
// is not classified.
func (s *policySet) classify(q *authz.Question, e *evaluation) (*ast.Term, error) {
	snapshot := q.View.Snapshot
	if snapshot == nil || snapshot.Lease == nil || snapshot.Control == nil || len(snapshot.Malformed) > 0 {
		return nothingClassified, nil
	}
	if k := keptFor(s, snapshot, q.WorkersEnabled); k != nil {
		return k.classification, nil
	}
	input, err := inputTerm(&authz.Question{
		Request: neutral, WorkersEnabled: q.WorkersEnabled, View: authz.View{Snapshot: snapshot, Fresh: true},
	}, nil, s)
	if err != nil {
		return nil, err
	}
	term, err := e.ask(s, s.classification, input)
	if err != nil || term == nil {
		return nil, err
	}
	snapshot.Derived.Store(&kept{set: s, workersEnabled: q.WorkersEnabled, classification: term})
	return term, nil
}

func keptFor(s *policySet, snapshot *authz.Snapshot, workersEnabled bool) *kept {
	if snapshot == nil {
		return nil
	}
	k, ok := snapshot.Derived.Load().(*kept)
	if !ok || k.set != s || k.workersEnabled != workersEnabled {
		return nil
	}
	return k
}

// snapshotTerm is the snapshot as policies see it. It is kept with the
// snapshot, unless the policies look at its age, which never stands still.
func (s *policySet) snapshotTerm(q *authz.Question, expires int64) (*ast.Term, error) {
	if s == nil || s.needs.age || q.View.Snapshot == nil {
		return snapshotTerm(q, expires)
	}
	k := keptFor(s, q.View.Snapshot, q.WorkersEnabled)
	if k == nil {
		return snapshotTerm(q, expires)
	}
	if last := k.last.Load(); last != nil && last.live == q.Live && last.fresh == q.View.Fresh && last.expires == expires {
		return last.term, nil
	}
	term, err := snapshotTerm(q, expires)
	if err == nil {
		k.last.Store(&keptTerm{q.Live, q.View.Fresh, expires, term, make([]keptRules, len(s.capabilities))})
	}
	return term, err
}
