package pdp_test

import (
	"slices"
	"sluice/internal/authz"
	"sluice/internal/pdp"
	"strings"
	"testing"
	"time"
)

func TestWhatIsNoCaseIsRefused(t *testing.T) {
	for _, line := range []string{
		``, `nonsense`, `null`, `[]`, `"x"`, `{}`, `{"request": null}`, `{"request": "x"}`, `{"request": []}`,
		`{"request": {}, "now": "yesterday"}`, `{"request": {}, "now": 7}`, `{"request": {}} {"request": {}}`, `{"Request": {}}`,
	} {
		if q, err := pdp.ReadCase([]byte(line), nil); err == nil {
			t.Errorf("%s is the case %+v", line, q)
		}
	}
}

func TestAnEmptyCaseHasItsDefaults(t *testing.T) {
	before := time.Now()
	q, err := pdp.ReadCase([]byte(`{"request": {}}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if q.Now.Before(before) || q.Request.Phase != authz.Open || q.Request.Channel != nil || !q.WorkersEnabled || !q.View.Fresh || q.Request.Principal != nil || q.Live != nil {
		t.Errorf("got %+v", q)
	}
}

func TestWrongTypesInACaseNeverGrant(t *testing.T) {
	q, err := pdp.ReadCase([]byte(`{
		"phase": 7, "workersEnabled": "true", "stale": "false", "openedGeneration": {},
		"request": {"leaseId": 1, "capability": [], "environmentId": 3, "principal": {"tenantId": 5, "roles": ["a", 1], "expiresAt": "soon"}},
		"records": [], "live": "running", "headers": {"x-a": "1", "X-B": ["2", "3"]}
	}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := q.Request
	switch {
	case r.Phase == authz.Open || r.Channel == nil || r.Channel.Generation != "":
		t.Errorf("phase %q, channel %+v", r.Phase, r.Channel)
	case q.WorkersEnabled || q.View.Fresh || q.Live != nil || q.View.Snapshot.Lease != nil:
		t.Errorf("got %+v", q)
	case r.LeaseID != "" || r.Capability != "" || r.EnvironmentID == "":
		t.Errorf("got %+v", r)
	case r.Principal.TenantID != "" || r.Principal.ExpiresAt == nil || r.Principal.ExpiresAt.After(q.Now):
		t.Errorf("got %+v", r.Principal)
	case !slices.Equal(r.Headers["X-A"], []string{"1"}) || !slices.Equal(r.Headers["X-B"], []string{"2", "3"}):
		t.Errorf("got %v", r.Headers)
	}
	for _, principal := range []string{`"x"`, `7`, `[]`, `true`, `null`} {
		q, err := pdp.ReadCase([]byte(`{"request": {"principal": `+principal+`}}`), nil)
		if err != nil || q.Request.Principal != nil {
			t.Errorf("%s is a principal: %v", principal, err)
		}
	}
}

func TestOnlyRecordsThatTheIDsLeadToAreRead(t *testing.T) {
	q, err := pdp.ReadCase([]byte(`{"request": {"leaseId": "l"}, "records": {
		"lease": {"id": "l", "tenantId": "t", "status": "active", "revision": 1, "pin": {"pluginId": "../p", "workerId": 7}, "region": "eu"},
		"environment": "garbage", "plugin": "garbage", "worker": "garbage", "control": null
	}}`), []string{"lease.region"})
	if err != nil {
		t.Fatal(err)
	}
	s := q.View.Snapshot
	if s.Lease == nil || s.Environment != nil || s.Plugin != nil || s.Worker != nil || s.Control != nil || len(s.Malformed) != 0 {
		t.Errorf("got %+v", s)
	}
	if !strings.Contains(string(s.Lease.JSON), `"region":"eu"`) {
		t.Errorf("an extra field is lost: %s", s.Lease.JSON)
	}
}

// No line turns an error into an allow: what is allowed stands on the floor.
func FuzzNoCaseIsAllowedBelowTheFloor(f *testing.F) {
	for _, v := range readVectors(f, "decision.jsonl") {
		f.Add([]byte(v.Case))
	}
	f.Add([]byte(`{"request": {"leaseId": "lease-1", "capability": "duplexCommandStream", "principal": {"tenantId": "acme"}}}`))
	e := runEngine(f, pdp.Options{})
	f.Fuzz(func(t *testing.T, line []byte) {
		q, err := pdp.ReadCase(line, nil)
		if err != nil {
			return
		}
		d := e.Decide(t.Context(), q)
		if !d.Allow {
			return
		}
		if _, reason := authz.Floor(q); reason != "" {
			t.Errorf("allowed, though %s: %s", reason, line)
		}
	})
}

// No facts make a capability effective that is not in all four sets: what the
// family supports, the plugin declares, the worker implements and the lease
// allows.
func TestNothingIsEffectiveThatIsNotInAllFourSets(t *testing.T) {
	e := runEngine(t, pdp.Options{})
	effective := 0
	for _, c := range newGenerator(seed + 7).cases(3000) {
		f, err := readCase(c.line)
		if err != nil {
			t.Fatal(err)
		}
		q, err := pdp.ReadCase(c.line, nil)
		if err != nil {
			t.Fatal(err)
		}
		e.Decide(t.Context(), q)
		for _, capability := range e.Effective(q.View.Snapshot, q.Live) {
			effective++
			f.capability = string(capability)
			supported := slices.Contains(f.trait().families, f.family())
			allowed := !f.narrowed() && (!f.trait().optIn || f.optIn().isTrue())
			if !supported || !f.declared() || !f.verified() || !allowed {
				t.Errorf("%s is effective: supported %v, declared %v, verified %v, allowed %v\n%s",
					capability, supported, f.declared(), f.verified(), allowed, c.line)
			}
		}
	}
	if effective < 1000 {
		t.Errorf("only %d were effective", effective)
	}
}

func TestAKeyOfACaseThatNobodyReadsIsNamed(t *testing.T) {
	_, notes, err := pdp.ReadCaseNoting([]byte(`{"request": {"leaseID": "l", "principal": {"tenant": "acme"}}, "records": {"leases": {}}, "Stale": 1}`), nil)
	want := []string{"Stale", "records.leases", "request.leaseID", "request.principal.tenant"}
	if err != nil || !slices.Equal(notes.Ignored, want) {
		t.Errorf("got %+v, %v", notes, err)
	}
}

func TestACaseThatGoesOnInTheNextLineSaysWhatToDo(t *testing.T) {
	if _, err := pdp.ReadCase([]byte(`{`), nil); err == nil || !strings.Contains(err.Error(), "jq -c .") {
		t.Errorf("got %v", err)
	}
	if _, err := pdp.ReadCase([]byte(`nonsense`), nil); err == nil || strings.Contains(err.Error(), "jq") {
		t.Errorf("got %v", err)
	}
}

func TestWhatIsMalformedInACaseIsTold(t *testing.T) {
	_, notes, err := pdp.ReadCaseNoting([]byte(`{"request": {"leaseId": "l"}, "live": 7, "records": {"lease": {"id": "l"}, "control": {"revision": 1}}}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(notes.Malformed) != 2 || !strings.Contains(notes.Malformed["lease"], "tenantId") || notes.Malformed["live"] == "" {
		t.Errorf("got %v", notes)
	}
}
