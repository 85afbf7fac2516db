package pdp

import (
	"sluice/internal/authz"

	"github.com/open-policy-agent/opa/v1/ast"
)

// tearDown asks whether a teardown is worth an attempt now. It reads the
// answer exactly; what is no answer is not ready.
func (s *policySet) tearDown(q *authz.Question, e *evaluation) (bool, string) {
	input, err := inputTerm(q, nothingClassified, s)
	if err != nil {
		return false, string(authz.ReasonEvaluationError)
	}
	answer, err := e.ask(s, s.teardown, input)
	switch {
	case err != nil:
		return false, string(readError(s, err))
	case answer == nil:
		return false, string(authz.ReasonUndefined)
	}
	object, ok := answer.Value.(ast.Object)
	if !ok || object.Len() != 2 {
		return false, string(authz.ReasonMalformed)
	}
	ready, ok1 := get[ast.Boolean](object, keyReady)
	reason, ok2 := get[ast.String](object, keyReason)
	if !ok1 || !ok2 || reason == "" || len(reason) > maxReason {
		return false, string(authz.ReasonMalformed)
	}
	return bool(ready), string(reason)
}
