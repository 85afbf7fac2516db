package pdp

import (
	"encoding/json"
	"sluice/internal/authz"
	"sluice/policies"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/util"
)

func mustAsk(t testing.TB, s *policySet, input *ast.Term) *ast.Term {
	t.Helper()
	answer, err := patient().ask(s, s.decision, input)
	if err != nil || answer == nil {
		t.Fatalf("%v, %v", answer, err)
	}
	return answer
}

// Whatever a policy answers: it allows only in the one shape that says so.
func FuzzDecisionsAreReadExactly(f *testing.F) {
	for _, seed := range []string{
		`{"allow": true, "code": "ALLOW", "reason": "ALLOW", "reasons": [], "status": 200, "retryable": false, "message": ""}`,
		`{"allow": true, "code": "ALLOW", "reason": "ALLOW", "reasons": [], "status": 200, "retryable": false, "message": "", "limits": {"idle_timeout_ms": 5}}`,
		`{"allow": false, "code": "UNAUTHENTICATED", "reason": "X", "reasons": ["X"], "status": 401, "retryable": false, "message": "m"}`,
		`{"allow": "true"}`, `[]`, `null`, `1e999`, `{"allow": true, "code": "ALLOW", "reason": "ALLOW", "reasons": [], "status": 2e2, "retryable": false, "message": ""}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var doc any
		if util.UnmarshalJSON(text, &doc) != nil {
			return
		}
		value, err := ast.InterfaceToValue(doc)
		if err != nil {
			return
		}
		d := readDecision(ast.NewTerm(value))
		if !d.Allow {
			if d.Status < 400 || len(d.Reasons) == 0 || d.Code == authz.CodeAllow {
				t.Errorf("a denial that is none: %+v", d)
			}
			return
		}
		object, ok := doc.(map[string]any)
		if !ok || object["allow"] != true || object["code"] != "ALLOW" || object["status"] != json.Number("200") {
			t.Errorf("%s allows: %+v", text, d)
		}
	})
}

func TestThePoliciesWordsAreTheGateways(t *testing.T) {
	tables, err := loadTree(policies.FS, "sluice", "policies", nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(tables.data["sluice"])
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Tables struct {
			Outward map[authz.Code]struct {
				Status    int
				Retryable bool
				Message   string
			}
			Codes map[string]authz.Code
		}
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	for code := range denials {
		want, got := code.Outward(), doc.Tables.Outward[code]
		if code == authz.CodeRouteBusy {
			continue // a limit's, and no gate's
		}
		if got.Status != want.Status || got.Retryable != want.Retryable || got.Message != want.Message {
			t.Errorf("%s: %+v, want %+v", code, got, want)
		}
	}
	if len(doc.Tables.Outward) != len(denials)-1 {
		t.Errorf("%d codes have words", len(doc.Tables.Outward))
	}
	for reason, code := range doc.Tables.Codes {
		if code != "capability" && code != "support" && !denials[code] {
			t.Errorf("%s has code %s", reason, code)
		}
	}
}
