package pdp

import (
	"context"
	"fmt"
	"slices"
	"sluice/internal/authz"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Explanation says how a decision came about.
type Explanation struct {
	Decision ExplainedDecision `json:"decision"`
	// Gates are all 32, in order, each judged on its own; it is empty when they
	// could not be judged, or are not the shipped ones.
	Gates []ExplainedGate `json:"gates"`
	// Effective lists what the lease could do now, sorted.
	Effective []authz.Capability `json:"effective"`
	Revision  string             `json:"policyRevision"`
}

// ExplainedDecision is a decision as it is written out.
type ExplainedDecision struct {
	Allow     bool         `json:"allow"`
	Code      authz.Code   `json:"code"`
	Reason    authz.Reason `json:"reason"`
	Reasons   []string     `json:"reasons"`
	Status    int          `json:"status"`
	Retryable bool         `json:"retryable"`
	Message   string       `json:"message"`
	Fault     string       `json:"fault,omitempty"` // why no answer could be reached
}

// ExplainedGate is one gate's verdict and the values that it looked at, by
// their place in the policy input; a value that is not there is null. What a
// gate says behind one that fails may rest on nothing.
type ExplainedGate struct {
	Gate      int            `json:"gate"`
	Stage     string         `json:"stage"`
	Reason    string         `json:"reason"`
	FailsWhen string         `json:"failsWhen"`
	Pass      bool           `json:"pass"`
	Values    map[string]any `json:"values"`
}

// Explain answers a question in full. Nothing is acted on by it.
func (e *Engine) Explain(ctx context.Context, q *authz.Question) Explanation {
	if e.set.Load() == nil {
		return unexplained(authz.ReasonPolicyNotLoaded)
	}
	r, reason := e.ask(ctx, e.opens, forExplanation, q)
	if reason != "" {
		return unexplained(reason)
	}
	if r.explained == nil {
		return unexplained(r.decision.Reason)
	}
	return *r.explained
}

func unexplained(reason authz.Reason) Explanation {
	return Explanation{Decision: Written(authz.Unavailable(reason)), Gates: []ExplainedGate{}, Effective: []authz.Capability{}}
}

// Written is a decision as it is written out.
func Written(d authz.Decision) ExplainedDecision {
	if d.Reasons == nil {
		d.Reasons = []string{}
	}
	return ExplainedDecision{d.Allow, d.Code, d.Reason, d.Reasons, d.Status, d.Retryable, d.Message, d.Fault}
}

func (s *policySet) explain(q *authz.Question, e *evaluation) *Explanation {
	x := &Explanation{
		Decision: Written(s.decide(q, e)), Gates: []ExplainedGate{}, Effective: []authz.Capability{}, Revision: s.revision,
	}
	if classification, err := s.classify(q, e); err == nil && classification != nil {
		x.Effective = s.effective(classification, q.Live)
	}
	if s.failing == nil {
		return x
	}
	input, err := inputTerm(q, nil, nil)
	if err != nil {
		return x
	}
	failing, err := e.ask(s, s.failing, input)
	if err != nil || failing == nil {
		return x
	}
	numbers, ok := failing.Value.(ast.Set)
	if !ok {
		return x
	}
	for _, row := range s.table {
		x.Gates = append(x.Gates, ExplainedGate{
			Gate: row.Gate, Stage: row.Stage, Reason: row.Reason, FailsWhen: row.FailsWhen,
			Pass: !numbers.Contains(ast.IntNumberTerm(row.Gate)), Values: valuesAt(input.Value, row.LooksAt),
		})
	}
	return x
}

func valuesAt(input ast.Value, paths []string) map[string]any {
	values := make(map[string]any, len(paths))
	for _, path := range paths {
		values[path] = valueAt(input, path)
	}
	return values
}

func valueAt(input ast.Value, path string) any {
	var ref ast.Ref
	for name := range strings.SplitSeq(path, ".") {
		ref = append(ref, ast.StringTerm(name))
	}
	value, err := input.Find(ref)
	if err != nil {
		return nil
	}
	plain, err := ast.JSON(value)
	if err != nil {
		return fmt.Sprintf("unreadable: %v", err)
	}
	return plain
}

// effective lists what a classification grants and the live worker verifies.
func (s *policySet) effective(classification *ast.Term, live *authz.Live) []authz.Capability {
	effective := []authz.Capability{}
	object, ok := classification.Value.(ast.Object)
	if !ok {
		return effective
	}
	for _, c := range s.capabilities {
		verdict := object.Get(ast.StringTerm(string(c)))
		if verdict == nil || !s.verified(c, live) {
			continue
		}
		if fields, ok := verdict.Value.(ast.Object); ok {
			if granted, ok := get[ast.Boolean](fields, keyGranted); ok && bool(granted) {
				effective = append(effective, c)
			}
		}
	}
	slices.Sort(effective)
	return effective
}
