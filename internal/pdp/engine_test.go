package pdp

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sluice/internal/authz"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// start is an engine with a policy set, at work until the test ends.
func start(t testing.TB, o Options) *Engine {
	t.Helper()
	e := loaded(t, o)
	ended, ctx := make(chan error, 1), t.Context()
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return e
}

// loaded is an engine with a policy set, not at work.
func loaded(t testing.TB, o Options) *Engine {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e
}

// eventually looks until it holds, or fails the test when it took too long.
func eventually(t *testing.T, within time.Duration, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); time.Sleep(time.Millisecond) {
		if time.Since(began) > within {
			t.Fatalf("it did not come true within %s", within)
		}
	}
}

func decideAs(t *testing.T, e *Engine, want authz.Code, reasons ...string) {
	t.Helper()
	d := e.Decide(t.Context(), question(t, "grants"))
	if d.Code != want || d.Allow != (want == authz.CodeAllow) || !slices.Equal(d.Reasons, reasons) {
		t.Errorf("got %v %s %v, want %s %v", d.Allow, d.Code, d.Reasons, want, reasons)
	}
}

func TestTheZeroOptionsServeTheShippedPolicies(t *testing.T) {
	e := start(t, Options{})
	decideAs(t, e, authz.CodeAllow)
	if err := e.Ready(); err != nil || e.Revision() == "" || len(e.Capabilities()) != 9 || !slices.IsSorted(e.Capabilities()) {
		t.Errorf("%v %q %v", err, e.Revision(), e.Capabilities())
	}
}

func TestNegativeOptionsAreRefused(t *testing.T) {
	for _, o := range []Options{{Timeout: -1}, {Evaluators: -1}, {Queue: -1}, {Required: []string{""}}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}

func TestWithoutAPolicyEverythingIsDenied(t *testing.T) {
	e, err := New(Options{Path: filepath.Join(t.TempDir(), "absent")})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Reload(t.Context()); err == nil {
		t.Error("an absent path was loaded")
	}
	q := question(t, "grants")
	if d := e.Decide(t.Context(), q); d.Allow || d.Code != authz.CodeUnavailable || d.Reason != authz.ReasonPolicyNotLoaded {
		t.Errorf("got %+v", d)
	}
	if ready, reason := e.Teardown(t.Context(), q); ready || reason != "POLICY_NOT_LOADED" {
		t.Errorf("got %v %s", ready, reason)
	}
	if x := e.Explain(t.Context(), q); x.Decision.Allow || x.Decision.Reason != authz.ReasonPolicyNotLoaded {
		t.Errorf("got %+v", x)
	}
	if err := e.Ready(); err == nil || !strings.Contains(err.Error(), "POLICY_NOT_LOADED") || !strings.Contains(err.Error(), "absent") {
		t.Errorf("got %v", err)
	}
	if e.Revision() != "" || e.Capabilities() != nil || e.Effective(q.View.Snapshot, q.Live) != nil {
		t.Error("something is known without a policy")
	}
}

func TestATeamsReasonsAreKeptInOrderAndImproperOnesStillDeny(t *testing.T) {
	long := strings.Repeat("é", 65) // 130 bytes
	for rules, want := range map[string][]string{
		`deny contains "b" if true` + "\n" + `deny contains "a" if true`: {"CUSTOM_DENY", "a", "b"},
		`deny contains 7 if true`:                                   {"CUSTOM_DENY", "INVALID_REASON"},
		`deny contains false if true`:                               {"CUSTOM_DENY", "INVALID_REASON"},
		`deny contains "" if true`:                                  {"CUSTOM_DENY", "INVALID_REASON"},
		`deny contains "` + long + `" if true`:                      {"CUSTOM_DENY", "INVALID_REASON"},
		`deny contains input.request.path if true`:                  {"CUSTOM_DENY", "/v1/leases/lease-1/duplex"},
		`deny contains input.request.headers["Accept-Language"][1]`: {"CUSTOM_DENY", "de"},
	} {
		decideAs(t, start(t, Options{Path: custom(rules).dir(t)}), authz.CodeDuplexDenied, want...)
	}
}

func TestAnErrorInATeamsRulesIsADenial(t *testing.T) {
	for name, rules := range map[string]string{
		"a builtin that fails":    `deny contains "x" if to_number(input.request.method) == 1`,
		"two values of one":       "deny contains \"x\" if pick(1) == 3\n\npick(x) := 1 if x > 0\n\npick(x) := 2 if x > 0",
		"a value that conflicts":  "deny contains \"x\" if pick == 3\n\npick := 1 if input.version == 1\n\npick := 2 if input.version > 0",
		"limits that fail":        `limits := {"idle_timeout_ms": to_number(input.request.method)} if true`,
		"limits of two values":    "limits := {\"idle_timeout_ms\": 1} if input.version == 1\n\nlimits := {\"idle_timeout_ms\": 2} if input.version > 0",
		"a division by nothing":   `deny contains "x" if 1 / (input.version - 1) == 1`,
		"an error behind a match": "deny contains \"a\" if true\n\ndeny contains \"b\" if to_number(input.request.method) == 1",
	} {
		t.Run(name, func(t *testing.T) {
			decideAs(t, start(t, Options{Path: custom(rules).dir(t)}), authz.CodeUnavailable, "EVALUATION_ERROR")
		})
	}
}

func TestAnErrorOfATeamsRulesCountsOnlyWhenItIsAsked(t *testing.T) {
	e := start(t, Options{Path: custom(`deny contains "x" if to_number(input.request.method) == 1`).dir(t)})
	if d := e.Decide(t.Context(), question(t, "lease-released")); d.Reason != "LEASE_NOT_ACTIVE" {
		t.Errorf("got %+v", d)
	}
}

func TestLimitsAreReadExactly(t *testing.T) {
	second := authz.Limits{IdleTimeout: time.Second, MaxLifetime: 2 * time.Second, MaxMessageBytes: 3}
	for limits, want := range map[string]authz.Limits{
		`{}`: {},
		`{"idle_timeout_ms": 1000, "max_lifetime_ms": 2000, "max_message_bytes": 3}`: second,
		`{"max_lifetime_ms": 9223372036854775807}`:                                   {MaxLifetime: time.Duration(1<<63-1) / time.Millisecond * time.Millisecond},
	} {
		e := start(t, Options{Path: custom(`limits := ` + limits).dir(t)})
		if d := e.Decide(t.Context(), question(t, "grants")); !d.Allow || d.Limits != want {
			t.Errorf("%s: got %+v", limits, d)
		}
	}
	for _, limits := range []string{`[]`, `"x"`, `{"idle_timeout_ms": 0}`, `{"idle_timeout_ms": -1}`, `{"idle_timeout_ms": 1.5}`, `{"idle_timeout_ms": "1"}`, `{"idle_timeout": 1}`, `{"max_message_bytes": 99999999999999999999}`} {
		decideAs(t, start(t, Options{Path: custom(`limits := ` + limits).dir(t)}), authz.CodeUnavailable, "DECISION_MALFORMED")
	}
}

func TestADecisionOfAnotherShapeIsADenial(t *testing.T) {
	allow := `{"allow": true, "code": "ALLOW", "reason": "ALLOW", "reasons": [], "status": 200, "retryable": false, "message": ""}`
	deny := `{"allow": false, "code": "SANDBOX_CAPABILITY_DENIED", "reason": "OWN", "reasons": ["OWN"], "status": 403, "retryable": false, "message": "x"}`
	with := func(object, old, new string) string { return strings.Replace(object, old, new, 1) }
	malformed := map[string]string{
		"no object":             `true`,
		"a list":                `[]`,
		"nothing in it":         `{}`,
		"allow alone":           `{"allow": true}`,
		"allow as a word":       with(allow, "true", `"true"`),
		"allow as a number":     with(allow, "true", `1`),
		"allow as null":         with(allow, "true", `null`),
		"a field too many":      with(allow, `{`, `{"more": 1, `),
		"no message":            with(allow, `, "message": ""`, ``),
		"a reason that is none": with(allow, `"reason": "ALLOW"`, `"reason": null`),
		"allow with a denial":   with(allow, `"code": "ALLOW"`, `"code": "UNAUTHENTICATED"`),
		"allow with reasons":    with(allow, `[]`, `["X"]`),
		"allow with a status":   with(allow, `200`, `403`),
		"allow and 200.0":       with(allow, `200`, `"200"`),
		"deny with allow":       with(deny, `"SANDBOX_CAPABILITY_DENIED"`, `"ALLOW"`),
		"deny with a new code":  with(deny, `"SANDBOX_CAPABILITY_DENIED"`, `"NO"`),
		"deny without reasons":  with(deny, `["OWN"]`, `[]`),
		"deny of another":       with(deny, `["OWN"]`, `["OTHER"]`),
		"deny because ALLOW":    with(with(deny, `"OWN"`, `"ALLOW"`), `"OWN"`, `"ALLOW"`),
		"reasons of no words":   with(deny, `["OWN"]`, `["OWN", 1]`),
		"reasons too long":      with(deny, `["OWN"]`, `["OWN", "`+strings.Repeat("x", 129)+`"]`),
		"reasons too many":      with(deny, `["OWN"]`, `["OWN"`+strings.Repeat(`, "x"`, 17)+`]`),
		"reasons that are none": with(deny, `["OWN"]`, `"OWN"`),
		"a status that is none": with(deny, `403`, `7`),
	}
	for name, decision := range malformed {
		t.Run(name, func(t *testing.T) {
			decideAs(t, replaced(t, "decision := "+decision), authz.CodeUnavailable, "DECISION_MALFORMED")
		})
	}
	decideAs(t, replaced(t, "decision := "+allow), authz.CodeAllow)
	decideAs(t, replaced(t, "decision := "+deny), authz.CodeCapabilityDenied, "OWN")
	decideAs(t, replaced(t, "decision := 1 if false"), authz.CodeUnavailable, "DECISION_UNDEFINED")
	decideAs(t, replaced(t, "decision := 1 if input.version == 1\n\ndecision := 2 if input.version > 0"), authz.CodeUnavailable, "DECISION_MALFORMED")
	decideAs(t, replaced(t, "decision contains "+allow), authz.CodeUnavailable, "DECISION_MALFORMED")
	decideAs(t, replaced(t, "decision[x] := "+allow+" if some x in [1, 2]"), authz.CodeUnavailable, "DECISION_MALFORMED")
}

// replaced is an engine whose decision is a team's own.
func replaced(t *testing.T, decision string) *Engine {
	t.Helper()
	return start(t, Options{Replace: true, Path: files{"a.rego": "package sluice.authz\n\n" + decision + "\n"}.dir(t)})
}

func TestReplacedGatesAreNotExplainedByTheShippedOnes(t *testing.T) {
	e := replaced(t, `decision := {"allow": false, "code": "UNAUTHENTICATED", "reason": "OWN", "reasons": ["OWN"], "status": 401, "retryable": false, "message": ""}`)
	if x := e.Explain(t.Context(), question(t, "grants")); x.Decision.Reason != "OWN" || len(x.Gates) != 0 {
		t.Errorf("got %+v", x)
	}
}

func TestWordsAndStatusFollowFromTheCode(t *testing.T) {
	e := replaced(t, `decision := {"allow": false, "code": "UNAUTHENTICATED", "reason": "OWN", "reasons": ["OWN"], "status": 200, "retryable": true, "message": "a secret"}`)
	d := e.Decide(t.Context(), question(t, "grants"))
	if d.Status != 401 || d.Retryable || d.Message != "Authentication is required." {
		t.Errorf("got %+v", d)
	}
}

func TestAClassificationOfAnotherShapeGrantsNothing(t *testing.T) {
	for name, classification := range map[string]string{
		"undefined": `classification := {"a": 1} if input.version == 0`,
		"truthy":    `classification := {"duplexCommandStream": {"granted": "true", "reason": "ALLOW"}}`,
		"empty":     `classification := {}`,
	} {
		t.Run(name, func(t *testing.T) {
			rules := "package sluice.capability\n\n" + classification + "\n"
			e := start(t, Options{Replace: true, Path: files{"a.rego": rules}.dir(t)})
			if d := e.Decide(t.Context(), question(t, "grants")); d.Allow {
				t.Errorf("got %+v", d)
			}
		})
	}
}

// runaways do not end by themselves in any time that matters.
var runaways = map[string]string{
	"a comprehension":            `deny contains "x" if count([1 | some a in numbers.range(1, 30000); some b in numbers.range(1, 30000); a == b + 100000]) > 0`,
	"a comprehension in a not":   `deny contains "x" if not count([1 | some a in numbers.range(1, 30000); some b in numbers.range(1, 30000); a == b + 100000]) == 0`,
	"every":                      `deny contains "x" if { every a in numbers.range(1, 30000) { some b in numbers.range(1, 30000); b == 30000; a > 0 } }`,
	"a builtin that counts on":   `deny contains "x" if count(numbers.range(1, 4000000000)) == 1`,
	"a function of many answers": "deny contains \"x\" if { some a in numbers.range(1, 30000); some b in numbers.range(1, 30000); f(a, b) }\n\nf(a, b) if a * b < 0",
}

func TestARunawayRuleIsStoppedAndTheEvaluatorGoesOn(t *testing.T) {
	for name, rules := range runaways {
		t.Run(name, func(t *testing.T) {
			const timeout = 50 * time.Millisecond
			e := start(t, Options{Path: custom(rules).dir(t), Timeout: timeout, Evaluators: 1})
			began := time.Now()
			decideAs(t, e, authz.CodeUnavailable, "EVALUATION_TIMEOUT")
			if took := time.Since(began); took < timeout || took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
			if d := e.Decide(t.Context(), question(t, "lease-released")); d.Reason != "LEASE_NOT_ACTIVE" && d.Reason != authz.ReasonEvaluationTimeout {
				t.Errorf("then %+v", d)
			}
		})
	}
}

func TestARecheckThatRanOutOfTimeIsTriedOnceMore(t *testing.T) {
	const timeout = 30 * time.Millisecond
	e := start(t, Options{Path: custom(runaways["a comprehension"]).dir(t), Timeout: timeout})
	q := question(t, "grants")
	q.Request.Phase = authz.Recheck
	q.Request.Channel = &authz.ChannelFacts{Generation: q.Live.Generation}
	began := time.Now()
	if d := e.Decide(t.Context(), q); d.Reason != authz.ReasonEvaluationTimeout {
		t.Errorf("got %+v", d)
	}
	if took := time.Since(began); took < 2*timeout {
		t.Errorf("it took %s, once", took)
	}
}

func TestAPanicIsADenialAndTheEvaluatorGoesOn(t *testing.T) {
	e := start(t, Options{Evaluators: 1})
	whole := e.set.Load()
	broken := *whole
	broken.compiler = nil
	e.set.Store(&broken)
	decideAs(t, e, authz.CodeUnavailable, "EVALUATION_ERROR")
	q := question(t, "grants")
	if ready, reason := e.Teardown(t.Context(), q); ready || reason != "EVALUATION_ERROR" {
		t.Errorf("got %v %s", ready, reason)
	}
	if x := e.Explain(t.Context(), q); x.Decision.Reason != authz.ReasonEvaluationError {
		t.Errorf("got %+v", x)
	}
	e.set.Store(whole)
	decideAs(t, e, authz.CodeAllow)
}

func TestAFullQueueRefusesAtOnce(t *testing.T) {
	e := loaded(t, Options{Queue: 1}) // nobody evaluates
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan authz.Decision)
	go func() { waits <- e.Decide(ctx, question(t, "grants")) }()
	eventually(t, time.Minute, func() bool { return e.opens.waiting.Load() == 1 })
	decideAs(t, e, authz.CodeUnavailable, "EVALUATION_BUSY")
	cancel()
	if d := <-waits; d.Allow || d.Reason != authz.ReasonEvaluationBusy {
		t.Errorf("a caller that gave up got %+v", d)
	}
}

func TestRechecksHaveALaneOfTheirOwn(t *testing.T) {
	e := loaded(t, Options{Queue: 1})
	e.opens.waiting.Add(1) // it stays full
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { e.run(e.rechecks, ctx.Done()) })
	q := question(t, "recheck-new-generation")
	if d := e.Decide(t.Context(), q); d.Reason != authz.ReasonWorkerChanged {
		t.Errorf("got %+v", d)
	}
	cancel()
	all.Wait()
}

func TestWhenTheEngineEndsWaitingQuestionsAreDenied(t *testing.T) {
	e := loaded(t, Options{})
	waits := make(chan authz.Decision)
	go func() { waits <- e.Decide(t.Context(), question(t, "grants")) }()
	eventually(t, time.Minute, func() bool { return e.opens.waiting.Load() == 1 })
	close(e.stopped)
	if d := <-waits; d.Allow || d.Reason != authz.ReasonEvaluationBusy {
		t.Errorf("got %+v", d)
	}
}

// A builtin need not listen when it is told to stop. What it comes to after that
// counts for nothing.
func TestWhatIsFoundTooLateIsADenial(t *testing.T) {
	e := loaded(t, Options{})
	set := e.set.Load()
	for what, denied := range map[asked]func(result) bool{
		forDecision:    func(r result) bool { return r.decision.Reason == authz.ReasonEvaluationTimeout && !r.decision.Allow },
		forTeardown:    func(r result) bool { return !r.ready && r.reason == string(authz.ReasonEvaluationTimeout) },
		forExplanation: func(r result) bool { return r.explained.Decision.Reason == authz.ReasonEvaluationTimeout },
	} {
		v := &evaluator{asked: what, question: question(t, "grants")}
		if r := e.try(set, v, time.Nanosecond, new(evaluation)); !denied(r) {
			t.Errorf("%d: got %+v", what, r)
		}
		if r := e.try(set, v, time.Minute, new(evaluation)); denied(r) {
			t.Errorf("%d: with time, it got %+v", what, r)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		v.ctx = over
		e.setTimeout(time.Minute)
		if r := e.work(v, e.opens, new(evaluation)); !denied(r) {
			t.Errorf("%d: for a caller that is gone, it got %+v", what, r)
		}
	}
}

func TestABuiltinThatDoesNotListenEndsInADenialEveryTime(t *testing.T) {
	e := start(t, Options{Timeout: 2 * time.Millisecond, Path: custom(`deny contains "x" if bits.lsh(1, 400000) == 0`).dir(t)})
	for _, name := range []string{"grants", "grants again", "recheck", "recheck again"} {
		q := question(t, "grants")
		if strings.HasPrefix(name, "recheck") {
			q.Request.Phase, q.Request.Channel = authz.Recheck, &authz.ChannelFacts{Generation: q.Live.Generation}
		}
		if d := e.Decide(t.Context(), q); d.Allow || d.Reason != authz.ReasonEvaluationTimeout {
			t.Errorf("%s: got %+v", name, d)
		}
	}
}

func TestAnEvaluatorThatIsLostIsReplaced(t *testing.T) {
	e := start(t, Options{Evaluators: 1})
	v := <-e.opens.free
	v.end()
	v.resume = func() (struct{}, bool) { panic("lost") }
	e.opens.free <- v
	func() {
		defer func() { _ = recover() }()
		e.Decide(t.Context(), question(t, "grants"))
		t.Error("it did not panic")
	}()
	decideAs(t, e, authz.CodeAllow)
	v = <-e.opens.free
	v.end() // and resume tells that it is over
	e.opens.free <- v
	decideAs(t, e, authz.CodeUnavailable, "EVALUATION_ERROR")
	decideAs(t, e, authz.CodeAllow)
}

// What the machine takes away is given back, up to the timeout.
func TestTheTimeoutIsOfEvaluationAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 50 * time.Millisecond
		for name, c := range map[string]struct {
			gaps    []time.Duration // between two looks at the clock
			overdue bool
		}{
			"it runs without end":                {slices.Repeat([]time.Duration{time.Millisecond}, 50), true},
			"it is done in time":                 {slices.Repeat([]time.Duration{time.Millisecond}, 49), false},
			"it waits for the machine":           {[]time.Duration{time.Millisecond, 45 * time.Millisecond, 20 * time.Millisecond}, false},
			"it waits, and runs without end":     {append(slices.Repeat([]time.Duration{time.Millisecond}, 49), 45*time.Millisecond, time.Millisecond), true},
			"it never asks whether it may go on": {[]time.Duration{101 * time.Millisecond}, true},
			"it asks now and then":               {slices.Repeat([]time.Duration{20 * time.Millisecond}, 5), true},
		} {
			e := new(evaluation)
			e.begin(timeout)
			got := false
			for _, gap := range c.gaps {
				time.Sleep(gap)
				got = e.overdue(time.Now())
			}
			if got != c.overdue {
				t.Errorf("%s: overdue is %v", name, got)
			}
		}
	})
}

func TestASwapCountsFromTheNextDecisionOn(t *testing.T) {
	var swaps atomic.Int32
	dir := custom(`deny contains "no" if false`).dir(t)
	e := start(t, Options{Path: dir, OnSwap: func() { swaps.Add(1) }})
	q := question(t, "grants") // one snapshot, which keeps what was derived from it
	if d := e.Decide(t.Context(), q); !d.Allow {
		t.Fatalf("got %+v", d)
	}
	first := e.Revision()
	custom(`deny contains "yes" if true`).write(t, dir)
	if err := e.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := e.Decide(t.Context(), q); d.Reason != "CUSTOM_DENY" {
		t.Errorf("got %+v", d)
	}
	if err := e.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if swaps.Load() != 1 || e.Revision() == first {
		t.Errorf("%d swaps, revision %s", swaps.Load(), e.Revision())
	}
}

func TestAClassificationNeverOutlivesItsPolicySet(t *testing.T) {
	dir := t.TempDir()
	e := start(t, Options{Path: dir, Replace: true})
	q := question(t, "grants")
	if d := e.Decide(t.Context(), q); !d.Allow {
		t.Fatalf("got %+v", d)
	}
	if got := e.Effective(q.View.Snapshot, q.Live); !slices.Contains(got, authz.DuplexCommandStream) {
		t.Errorf("got %v", got)
	}
	tables, err := os.ReadFile("../../policies/sluice/tables/data.json")
	if err != nil {
		t.Fatal(err)
	}
	narrower := strings.Replace(string(tables), `"lease_policy": ["reusableLeases"`, `"lease_policy": ["reusableLeases", "duplexCommandStream"`, 1)
	files{"sluice/tables/data.json": narrower}.write(t, dir)
	if err := e.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := e.Effective(q.View.Snapshot, q.Live); got != nil {
		t.Errorf("the old set's word counts: %v", got)
	}
	if d := e.Decide(t.Context(), q); d.Reason != "NARROWED" {
		t.Errorf("got %+v", d)
	}
}

func TestAClassIsOfOnePolicySet(t *testing.T) {
	dir := custom("deny contains \"no\" if false").dir(t)
	e := start(t, Options{Path: dir})
	r := question(t, "grants").Request
	before, ok := e.Class(r)
	if again, _ := e.Class(r); !ok || again != before {
		t.Fatalf("%v, then %v", before, again)
	}
	custom("deny contains \"no\" if input.capability == \"none\"").write(t, dir)
	if err := e.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after, ok := e.Class(r); !ok || after == before {
		t.Error("what the old set allowed would be allowed by the new one")
	}
}

// Once Reload has returned, nothing is decided by the old set any more.
func TestNoDecisionUnderLoadIsTheOldSetsAfterTheSwap(t *testing.T) {
	dir := custom("deny contains \"no\" if false").dir(t)
	e := start(t, Options{Path: dir})
	var swapped atomic.Bool
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			q := question(t, "grants")
			for range 200 {
				after := swapped.Load()
				if d := e.Decide(t.Context(), q); after && d.Allow {
					t.Error("an allow after the swap")
					return
				}
			}
		})
	}
	custom("deny contains \"yes\" if true").write(t, dir)
	if err := e.Reload(t.Context()); err != nil {
		t.Error(err)
	}
	swapped.Store(true)
	all.Wait()
	decideAs(t, e, authz.CodeDuplexDenied, "CUSTOM_DENY", "yes")
}

func TestABadSetLeavesTheOldOneAtWork(t *testing.T) {
	dir := custom(`deny contains "old" if true`).dir(t)
	e := start(t, Options{Path: dir})
	custom(`deny contains "new" if if`).write(t, dir)
	if err := e.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "team.rego:3:") {
		t.Errorf("got %v", err)
	}
	if err := e.Ready(); err != nil {
		t.Error(err)
	}
	decideAs(t, e, authz.CodeDuplexDenied, "CUSTOM_DENY", "old")
}
