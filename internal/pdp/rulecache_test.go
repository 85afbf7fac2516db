package pdp

import (
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
	"pgregory.net/rapid"
)

// OPA's own cache says what ours must.
func TestTheRuleCacheAnswersAsOPAsOwnDoes(t *testing.T) {
	parts := []*ast.Term{
		ast.VarTerm("data"), ast.StringTerm("a"), ast.StringTerm("b"), ast.IntNumberTerm(1), ast.ArrayTerm(ast.StringTerm("a")),
		ast.ObjectTerm(ast.Item(ast.StringTerm("k"), null)),
	}
	ours := new(ruleCache)
	rapid.Check(t, func(t *rapid.T) {
		ours.reset(nil)
		theirs := topdown.NewVirtualCache()
		reused := make(ast.Ref, 0, 8) // as OPA reuses the references that it hands over
		depth := 0
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			reused = reused[:0]
			for range rapid.IntRange(1, 7).Draw(t, "length") {
				reused = append(reused, rapid.SampledFrom(parts).Draw(t, "part"))
			}
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				ours.Push()
				theirs.Push()
				depth++
			case 1:
				if depth > 0 {
					ours.Pop()
					theirs.Pop()
					depth--
				}
			case 2, 3:
				if old, undefined := theirs.Get(reused); old != nil || undefined {
					continue // a value is never replaced within an evaluation
				}
				term := rapid.SampledFrom([]*ast.Term{nil, yes, no, emptyList}).Draw(t, "term")
				ours.Put(reused, term)
				theirs.Put(reused, term)
			default:
				got, gotUndefined := ours.Get(reused)
				want, wantUndefined := theirs.Get(reused)
				if got != want || gotUndefined != wantUndefined {
					t.Fatalf("%v: %v %v, want %v %v", reused, got, gotUndefined, want, wantUndefined)
				}
			}
		}
	})
}
