package pdp

import (
	"encoding/json"
	"errors"
	"fmt"
	"sluice/internal/authz"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Bounds of what a decision may hold.
const (
	maxReason  = 128 // bytes
	maxReasons = 17  // the gate's and sixteen of the team's
)

// readDecision reads a decision exactly: whatever is not of the agreed shape
// in every part is malformed, and a denial. Status and words follow from the
// code, so that no policy can tell a caller more than the code does.
func readDecision(term *ast.Term) authz.Decision {
	d, err := parseDecision(term.Value)
	if err != nil {
		return unanswered(authz.ReasonMalformed, err)
	}
	return d
}

// unanswered is the denial because no answer could be reached, and why.
func unanswered(reason authz.Reason, err error) authz.Decision {
	d := authz.Unavailable(reason)
	d.Fault = err.Error()
	return d
}

func parseDecision(value ast.Value) (authz.Decision, error) {
	object, ok := value.(ast.Object)
	if !ok {
		return authz.Decision{}, errors.New("the decision is no object")
	}
	allow, ok1 := get[ast.Boolean](object, keyAllow)
	code, ok2 := get[ast.String](object, keyCode)
	reason, ok3 := get[ast.String](object, keyReason)
	status, ok4 := get[ast.Number](object, keyStatus)
	_, ok5 := get[ast.Boolean](object, keyRetryable)
	_, ok6 := get[ast.String](object, keyMessage)
	if !(ok1 && ok2 && ok3 && ok4 && ok5 && ok6) {
		return authz.Decision{}, errors.New("a field of the decision is missing or of another type")
	}
	reasons, err := parseReasons(object.Get(keyReasons))
	if err != nil {
		return authz.Decision{}, err
	}
	limits, fields, err := parseLimits(object.Get(keyLimits))
	if err != nil {
		return authz.Decision{}, err
	}
	if object.Len() != 7+fields {
		return authz.Decision{}, errors.New("the decision has a field that nobody knows")
	}
	if n, ok := status.Int(); !ok || n < 200 || n > 599 {
		return authz.Decision{}, errors.New("the decision's status is no status")
	}
	if allow {
		return allowed(code, reason, reasons, status, limits)
	}
	return denied(code, reason, reasons)
}

func allowed(code, reason ast.String, reasons []string, status ast.Number, limits authz.Limits) (authz.Decision, error) {
	if code != ast.String(authz.CodeAllow) || reason != ast.String(authz.ReasonAllow) || len(reasons) > 0 || status != "200" {
		return authz.Decision{}, errors.New("the decision allows and denies at once")
	}
	return authz.Decision{
		Allow: true, Code: authz.CodeAllow, Reason: authz.ReasonAllow, Reasons: []string{}, Status: 200, Limits: limits,
	}, nil
}

func denied(code, reason ast.String, reasons []string) (authz.Decision, error) {
	if !denials[authz.Code(code)] {
		return authz.Decision{}, fmt.Errorf("the decision denies with %q, which is no code of a denial", string(code))
	}
	if len(reasons) == 0 || reasons[0] != string(reason) || reason == ast.String(authz.ReasonAllow) {
		return authz.Decision{}, errors.New("the decision's reasons do not begin with its reason")
	}
	d := authz.Deny(authz.Code(code), authz.Reason(reason))
	d.Reasons = reasons
	return d, nil
}

var denials = map[authz.Code]bool{
	authz.CodeDuplexDenied: true, authz.CodeDuplexUnsupported: true, authz.CodeCapabilityDenied: true,
	authz.CodeUnauthenticated: true, authz.CodeCredentialExpired: true, authz.CodeRouteBusy: true,
	authz.CodeWorkerUnavailable: true, authz.CodeUnavailable: true,
}

var (
	keyAllow     = ast.StringTerm("allow")
	keyCode      = ast.StringTerm("code")
	keyReason    = ast.StringTerm("reason")
	keyReasons   = ast.StringTerm("reasons")
	keyRetryable = ast.StringTerm("retryable")
	keyMessage   = ast.StringTerm("message")
	keyLimits    = ast.StringTerm("limits")
	keyReady     = ast.StringTerm("ready")
	keyGranted   = ast.StringTerm("granted")
)

func get[T ast.Value](object ast.Object, key *ast.Term) (T, bool) {
	if t := object.Get(key); t != nil {
		v, ok := t.Value.(T)
		return v, ok
	}
	var zero T
	return zero, false
}

func parseReasons(term *ast.Term) ([]string, error) {
	if term == nil {
		return nil, errors.New("the decision has no reasons")
	}
	items, ok := term.Value.(*ast.Array)
	if !ok || items.Len() > maxReasons {
		return nil, errors.New("the decision's reasons are no list, or too many")
	}
	if items.Len() == 0 {
		return nil, nil
	}
	reasons := make([]string, items.Len())
	for i := range reasons {
		s, ok := items.Elem(i).Value.(ast.String)
		if !ok || s == "" || len(s) > maxReason {
			return nil, fmt.Errorf("a reason is no string of 1 to %d bytes", maxReason)
		}
		reasons[i] = string(s)
	}
	return reasons, nil
}

// parseLimits reads the limits, and how many fields of the decision they are.
func parseLimits(term *ast.Term) (authz.Limits, int, error) {
	var l authz.Limits
	if term == nil {
		return l, 0, nil
	}
	object, ok := term.Value.(ast.Object)
	if !ok {
		return l, 1, errors.New("the decision's limits are no object")
	}
	err := object.Iter(func(k, v *ast.Term) error {
		n, ok := v.Value.(ast.Number)
		amount, whole := n.Int64()
		if !ok || !whole || amount <= 0 {
			return fmt.Errorf("limit %v is no positive integer", k)
		}
		switch k.Value {
		case ast.String("idle_timeout_ms"):
			l.IdleTimeout = milliseconds(amount)
		case ast.String("max_lifetime_ms"):
			l.MaxLifetime = milliseconds(amount)
		case ast.String("max_message_bytes"):
			l.MaxMessageBytes = amount
		default:
			return fmt.Errorf("nobody knows limit %v", k)
		}
		return nil
	})
	return l, 1, err
}

func milliseconds(n int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(min(n, most)) * time.Millisecond
}

// readError is the reason for an evaluation that failed.
func readError(set *policySet, err error) authz.Reason {
	e, ok := errors.AsType[*topdown.Error](err)
	switch {
	case ok && e.Code == topdown.CancelErr:
		return authz.ReasonEvaluationTimeout
	case ok && e.Code == topdown.ConflictErr && set.owns(e.Location):
		return authz.ReasonMalformed
	default:
		return authz.ReasonEvaluationError
	}
}

// marshalInput writes an input as one line of JSON.
func marshalInput(doc any) ([]byte, error) {
	text, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("writing the policy input: %w", err)
	}
	return text, nil
}
