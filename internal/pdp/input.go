package pdp

import (
	"fmt"
	"sluice/internal/authz"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
)

var (
	keyVersion          = ast.StringTerm("version")
	keyPhase            = ast.StringTerm("phase")
	keyNowNS            = ast.StringTerm("now_ns")
	keyCapability       = ast.StringTerm("capability")
	keyRequest          = ast.StringTerm("request")
	keyPrincipal        = ast.StringTerm("principal")
	keySnapshot         = ast.StringTerm("snapshot")
	keyClassification   = ast.StringTerm("classification")
	keyGateway          = ast.StringTerm("gateway")
	keyWorkersEnabled   = ast.StringTerm("workers_enabled")
	keyChannel          = ast.StringTerm("channel")
	keyState            = ast.StringTerm("state")
	keyAgeMS            = ast.StringTerm("age_ms")
	keyLease            = ast.StringTerm("lease")
	keyEnvironment      = ast.StringTerm("environment")
	keyPlugin           = ast.StringTerm("plugin")
	keyWorker           = ast.StringTerm("worker")
	keyControl          = ast.StringTerm("control")
	keyLive             = ast.StringTerm("live")
	keyLeaseExpiresAtNS = ast.StringTerm("lease_expires_at_ns")
	keyMalformed        = ast.StringTerm("malformed")

	withWorkers    = ast.ObjectTerm(ast.Item(keyWorkersEnabled, yes))
	withoutWorkers = ast.ObjectTerm(ast.Item(keyWorkersEnabled, no))
)

// neutral is the request that a classification is asked for: it is a function
// of the records alone, and sees nobody's question.
var neutral = &authz.Request{Phase: authz.Open}

// inputTerm is the policy input of a question (outward contract, section 6),
// as far as set looks at it; nil looks at everything. classification is nil
// where the policy shall compute it.
func inputTerm(q *authz.Question, classification *ast.Term, set *policySet) (*ast.Term, error) {
	r := q.Request
	at := readInstants(q.Now, principalExpiry(r.Principal), leaseExpiry(q.View.Snapshot))
	principal, err := principalTerm(r.Principal, at.principal)
	if err != nil {
		return nil, err
	}
	snapshot, err := set.snapshotTerm(q, at.lease)
	if err != nil {
		return nil, err
	}
	gateway := withoutWorkers
	if q.WorkersEnabled {
		gateway = withWorkers
	}
	items := [...][2]*ast.Term{
		ast.Item(keyVersion, versionOne),
		ast.Item(keyPhase, phaseTerm(r.Phase)),
		ast.Item(keyNowNS, number(at.now)),
		ast.Item(keyCapability, set.capabilityTerm(r.Capability)),
		ast.Item(keyRequest, set.requestTerm(r)),
		ast.Item(keyPrincipal, principal),
		ast.Item(keySnapshot, snapshot),
		ast.Item(keyGateway, gateway),
		ast.Item(keyChannel, channelTerm(r.Channel)),
		ast.Item(keyClassification, classification),
	}
	if classification == nil {
		return ast.ObjectTerm(items[:len(items)-1]...), nil
	}
	return ast.ObjectTerm(items[:]...), nil
}

func phaseTerm(p authz.Phase) *ast.Term {
	switch p {
	case authz.Open:
		return phaseOpen
	case authz.Admit:
		return phaseAdmit
	case authz.Recheck:
		return phaseRecheck
	}
	return ast.StringTerm(string(p))
}

// capabilityTerm is shared for the capabilities that the set knows.
func (s *policySet) capabilityTerm(c authz.Capability) *ast.Term {
	if s != nil {
		if term, known := s.names[c]; known {
			return term
		}
	}
	return ast.StringTerm(string(c))
}

func principalExpiry(p *authz.Principal) *time.Time {
	if p == nil {
		return nil
	}
	return p.ExpiresAt
}

func leaseExpiry(s *authz.Snapshot) *time.Time {
	if s == nil || s.Lease == nil {
		return nil
	}
	return s.Lease.ExpiresAt
}

var noSnapshot = &authz.Snapshot{}

// snapshotTerm is the snapshot as policies see it, all of it.
func snapshotTerm(q *authz.Question, expires int64) (*ast.Term, error) {
	s := q.View.Snapshot
	if s == nil {
		s = noSnapshot
	}
	items := [10][2]*ast.Term{
		{keyState, stale},
		{keyAgeMS, number(age(q))},
		{keyLeaseExpiresAtNS, null},
		{keyMalformed, kinds(s.Malformed)},
		{keyLive, liveTerm(q.Live)},
	}
	if q.View.Fresh {
		items[0][1] = fresh
	}
	if leaseExpiry(s) != nil {
		items[2][1] = number(expires)
	}
	for i, part := range []struct {
		key    *ast.Term
		record *authz.Record
	}{{keyLease, s.Lease}, {keyEnvironment, s.Environment}, {keyPlugin, s.Plugin}, {keyWorker, s.Worker}, {keyControl, s.Control}} {
		term, err := recordTerm(part.record)
		if err != nil {
			return nil, err
		}
		items[5+i] = ast.Item(part.key, term)
	}
	return ast.ObjectTerm(items[:]...), nil
}

// age is how old the snapshot was at the time of the question, in
// milliseconds; 0 when it was never confirmed, and stale.
func age(q *authz.Question) int64 {
	if q.View.Confirmed.IsZero() {
		return 0
	}
	return max(0, q.Now.Sub(q.View.Confirmed).Milliseconds())
}

func kinds(malformed []authz.Kind) *ast.Term {
	names := make([]string, len(malformed))
	for i, k := range malformed {
		names[i] = string(k)
	}
	return list(names)
}

// PrintInput is the policy input of a question as JSON, without a
// classification, so that `opa eval -i` over it gives the same decision.
func PrintInput(q *authz.Question) ([]byte, error) {
	term, err := inputTerm(q, nil, nil)
	if err != nil {
		return nil, err
	}
	text, err := ast.JSON(term.Value)
	if err != nil {
		return nil, fmt.Errorf("writing the policy input: %w", err)
	}
	return marshalInput(text)
}
