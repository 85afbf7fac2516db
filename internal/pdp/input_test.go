package pdp

import (
	"encoding/json"
	"maps"
	"slices"
	"sluice/internal/authz"
	"sluice/policies"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
)

type schema struct {
	Type       string
	Properties map[string]schema
	AnyOf      []schema
}

// object is the alternative that an object is held against.
func (s schema) object() schema {
	for _, a := range s.AnyOf {
		if a.Type == "object" {
			return a
		}
	}
	return s
}

func (s schema) admits(kind string) bool {
	return s.Type == kind || slices.ContainsFunc(s.AnyOf, func(a schema) bool { return a.Type == kind })
}

func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	case float64:
		if v == float64(int64(v)) {
			return "integer"
		}
	}
	return "number"
}

// hold compares a value with the schema: the same fields, and their types.
func (s schema) hold(t *testing.T, path string, v any) {
	t.Helper()
	if !s.admits(kindOf(v)) {
		t.Errorf("%s is of type %s", path, kindOf(v))
	}
	object, ok := v.(map[string]any)
	properties := s.object().Properties
	if !ok || properties == nil {
		return
	}
	want := slices.Sorted(maps.Keys(properties))
	if got := slices.Sorted(maps.Keys(object)); !slices.Equal(got, want) {
		t.Errorf("%s has fields %v, and by the schema %v", path, got, want)
	}
	for name, value := range object {
		properties[name].hold(t, path+"."+name, value)
	}
}

func TestTheInputIsWhatTheSchemaSays(t *testing.T) {
	var s schema
	if err := json.Unmarshal(policies.Schema, &s); err != nil {
		t.Fatal(err)
	}
	full := question(t, "admit-same-generation")
	full.Request.Principal.Roles = []string{"operator"}
	full.Request.Principal.Claims = map[string]any{"a": []any{1, "b"}}
	bare := &authz.Question{Request: &authz.Request{}, Now: time.Unix(1, 0)}
	for name, q := range map[string]*authz.Question{"full": full, "bare": bare} {
		input, err := inputTerm(q, ast.MustParseTerm(`{"a": {"granted": true, "reason": "ALLOW"}}`), nil)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := ast.JSON(input.Value)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(plain)
		if err != nil {
			t.Fatal(err)
		}
		var doc any
		if err := json.Unmarshal(text, &doc); err != nil {
			t.Fatal(err)
		}
		s.hold(t, name, doc)
	}
}

func TestThePrintedInputLacksOnlyTheClassification(t *testing.T) {
	text, err := PrintInput(question(t, "grants"))
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	want := []string{"capability", "channel", "gateway", "now_ns", "phase", "principal", "request", "snapshot", "version"}
	if got := slices.Sorted(maps.Keys(doc)); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestNumbersBeyondFloatsReachPoliciesExactly(t *testing.T) {
	q := question(t, "grants")
	q.View.Snapshot.Lease = &authz.Record{
		Kind: authz.KindLease, TenantID: "acme",
		JSON: []byte(`{"a": 9007199254740993, "b": 18446744073709551617, "c": 0.1}`),
	}
	term, err := recordTerm(q.View.Snapshot.Lease)
	if err != nil {
		t.Fatal(err)
	}
	if want := ast.MustParseTerm(`{"a": 9007199254740993, "b": 18446744073709551617, "c": 0.1}`); !term.Equal(want) {
		t.Errorf("got %v", term)
	}
}

// A policy sees of the request what it looks at, however it looks.
func TestWhatPoliciesLookAtIsThere(t *testing.T) {
	for _, rule := range []string{
		`deny contains input.request.path`,
		"deny contains r.path if r := input.request",
		"deny contains i.request.path if i := input",
		`deny contains input.request[f] if f := "path"`,
		`deny contains input[f].path if f := "request"`,
		`deny contains object.get(input, ["request", "path"], "none")`,
		`deny contains v if { walk(input, [["request", "path"], v]) }`,
		"import input.request as asked\n\ndeny contains asked.path",
		`deny contains data.acme.path` + "\n",
		`deny contains v if { some k, v in input.request; k == "path" }`,
		`deny contains v if { v := path(input) }` + "\n\npath(i) := i.request.path",
		`deny contains json.unmarshal(json.marshal(input)).request.path`,
	} {
		set := custom(rule)
		set["acme/lib.rego"] = "package acme\n\npath := input.request.path\n"
		s, err := load(t, Options{Path: set.dir(t)})
		if err != nil {
			t.Fatal(rule, err)
		}
		d := s.decide(question(t, "grants"), patient())
		if len(d.Reasons) != 2 || d.Reasons[1] != "/v1/leases/lease-1/duplex" {
			t.Errorf("%s: got %+v", rule, d)
		}
	}
}

func TestTheAgeIsThereForThoseWhoLook(t *testing.T) {
	s, err := load(t, Options{Path: custom(`deny contains "old" if input.snapshot.age_ms >= 1500`).dir(t)})
	if err != nil {
		t.Fatal(err)
	}
	q := question(t, "grants")
	q.View.Confirmed = q.Now.Add(-1500*time.Millisecond + time.Microsecond)
	if d := s.decide(q, patient()); !d.Allow {
		t.Errorf("got %+v", d)
	}
	q.Now = q.Now.Add(time.Millisecond)
	if d := s.decide(q, patient()); d.Allow {
		t.Error("an old snapshot was young")
	}
}

// What is kept with a snapshot answers only for what it was made of.
func TestWhatIsKeptAnswersForNothingElse(t *testing.T) {
	s := loaded(t, Options{}).set.Load()
	q := question(t, "grants")
	live := q.Live
	for range 2 {
		for _, step := range []struct {
			change func()
			want   authz.Reason
		}{
			{func() {}, authz.ReasonAllow},
			{func() { q.Live = nil }, authz.ReasonWorkerUnavailable},
			{func() { q.Live = live; q.View.Fresh = false }, authz.ReasonSnapshotStale},
			{func() { q.View.Fresh = true; q.WorkersEnabled = false }, "WORKERS_DISABLED"},
			{func() { q.WorkersEnabled = true; q.Request.EnvironmentID = "other" }, "ENVIRONMENT_MISMATCH"},
			{func() { q.Request.EnvironmentID = "" }, authz.ReasonAllow},
			{func() { q.Request.Capability = "reusableLeases" }, "NARROWED"},
			{func() { q.Request.Capability = authz.DuplexCommandStream }, authz.ReasonAllow},
		} {
			step.change()
			if d := s.decide(q, patient()); d.Reason != step.want {
				t.Errorf("got %s, want %s", d.Reason, step.want)
			}
		}
	}
}
