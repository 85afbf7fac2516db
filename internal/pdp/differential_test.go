package pdp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"sluice/internal/authz"
	"sluice/internal/pdp"
	"sluice/internal/snapshot"
	"sluice/policies"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/util"
)

const (
	states = 20_000
	seed   = 1

	oneInMany = 16 // of the states is looked at more closely
)

// customRules are a security team's own; facts.custom says the same in Go.
const customRules = `package sluice.custom

import rego.v1

deny contains "subject is banned" if input.principal.subject == "banned"

deny contains "no deletes" if input.request.method == "DELETE"
`

func TestTheOracleAnswersEveryVectorAsItSays(t *testing.T) {
	for _, v := range readVectors(t, "decision.jsonl") {
		f, err := readCase(v.Case)
		if err != nil {
			t.Fatalf("%s: %v", v.Name, err)
		}
		got, _ := judge(f)
		if got.Allow != v.Want.Allow || got.Code != string(v.Want.Code) || got.Reason != string(v.Want.Reason) {
			t.Errorf("%s: %s: got %+v, want %+v", v.Name, v.Why, got, v.Want)
		}
	}
	for _, v := range readVectors(t, "teardown.jsonl") {
		f, err := readCase(v.Case)
		if err != nil {
			t.Fatalf("%s: %v", v.Name, err)
		}
		if got := judgeTeardown(f); got != (teardown{v.Want.Ready, string(v.Want.Reason)}) {
			t.Errorf("%s: %s: got %+v, want %+v", v.Name, v.Why, got, v.Want)
		}
	}
}

// The three readings of decision.md agree: plain Go gate by gate, Rego over
// raw records in one evaluation, and the engine, which classifies first.
func TestTheEngineAndRegoOverRawRecordsAgreeWithTheOracleOnEveryState(t *testing.T) {
	d := &differential{
		engine:   runEngine(t, pdp.Options{Path: customDir(t), Timeout: time.Minute}),
		decision: prepareRaw(t, "data.sluice.authz.decision"),
		failing:  prepareRaw(t, "data.sluice.explain.failing"),
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // the heap is small, the garbage is not
	cases := newGenerator(seed).cases(states)
	each(cases, func(i int, c generated) { d.compare(t.Context(), c, i%oneInMany == 0) })
	d.report(t)
}

func TestTheDecoderAgreesWithTheOracleOnEveryRecord(t *testing.T) {
	each(newGenerator(seed+1).cases(states/2), func(_ int, c generated) {
		root, err := scan(c.line)
		if err != nil {
			t.Errorf("%v: %v", c.did, err)
			return
		}
		for _, kind := range snapshot.Kinds() {
			record := root.at("records", string(kind))
			key := record.at("id") // what the record says, so that the rest decides
			if !record.set() {
				continue
			}
			_, err := snapshot.Decode(kind, keyOf(kind, key), record.raw, nil)
			if want := wellFormed(string(kind), key, record); want != (err == nil) {
				t.Errorf("%s, %v: well-formed is %v, but the decoder says %v", kind, c.did, want, err)
			}
		}
		if live := root.at("live"); live.set() {
			_, err := snapshot.DecodeLive(live.raw)
			if want := wellFormed("live", nil, live); want != (err == nil) {
				t.Errorf("live document, %v: well-formed is %v, but the decoder says %v", c.did, want, err)
			}
		}
	})
}

func keyOf(kind authz.Kind, id *node) string {
	if kind == authz.KindControl || !id.is(text) {
		return ""
	}
	return id.str
}

// each hands out the cases to as many goroutines as there are processors.
func each(cases []generated, f func(int, generated)) {
	var all sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		all.Go(func() {
			for i := w; i < len(cases); i += workers {
				f(i, cases[i])
			}
		})
	}
	all.Wait()
}

func customDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "custom.rego"), []byte(customRules), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// prepareRaw compiles the shipped files and the team's with nothing of the
// engine, as `opa eval` would.
func prepareRaw(t testing.TB, question string) rego.PreparedEvalQuery {
	t.Helper()
	options := []func(*rego.Rego){
		rego.Query(question),
		rego.Module("custom_of_the_team.rego", customRules),
		rego.StrictBuiltinErrors(true),
	}
	err := fs.WalkDir(policies.FS, ".", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".rego") {
			var source []byte
			source, err = fs.ReadFile(policies.FS, path)
			options = append(options, rego.Module(path, string(source)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	source, err := fs.ReadFile(policies.FS, "sluice/tables/data.json")
	if err != nil {
		t.Fatal(err)
	}
	var tables any
	if err := util.UnmarshalJSON(source, &tables); err != nil {
		t.Fatal(err)
	}
	data := map[string]any{"sluice": map[string]any{"tables": tables}}
	options = append(options, rego.Store(inmem.NewFromObjectWithOpts(data, inmem.OptReturnASTValuesOnRead(true))))
	query, err := rego.New(options...).PrepareForEval(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return query
}

// differential asks the three and keeps where they differ.
type differential struct {
	engine            *pdp.Engine
	decision, failing rego.PreparedEvalQuery
	answers           sync.Map // of decision, by input
	snapshots         sync.Map // by the text of the records

	mu        sync.Mutex
	gates     map[int]int    // how many states each gate decided; 0 is none, an allow
	allowed   map[string]int // by capability
	teardowns map[string]int // by reason
	differ    []string
}

func (d *differential) compare(ctx context.Context, c generated, closely bool) {
	f, err := readCase(c.line)
	if err != nil {
		d.note(c, "the oracle cannot read it: %v", err)
		return
	}
	q, err := pdp.ReadCase(c.line, nil)
	if err != nil {
		d.note(c, "the engine cannot read it: %v", err)
		return
	}
	// As in the gateway, equal records are one snapshot with one classification.
	joined, _ := d.snapshots.LoadOrStore(f.stored, q.View.Snapshot)
	q.View.Snapshot = joined.(*authz.Snapshot)
	want, gate := judge(f)
	d.compareEngine(ctx, c, want, q)
	input, err := pdp.PrintInput(q)
	if err != nil {
		d.note(c, "the engine cannot print it: %v", err)
		return
	}
	d.compareRaw(ctx, c, want, input)
	ready, reason := d.engine.Teardown(ctx, q)
	down := judgeTeardown(f)
	if (teardown{ready, reason}) != down {
		d.note(c, "the engine's teardown is %v %s, the oracle's %+v", ready, reason, down)
	}
	d.count(f.capability, gate, down.Reason)
	if closely {
		d.compareExplained(ctx, c, gate, input)
		d.compareAgain(ctx, c, *f, q)
	}
}

func (d *differential) compareEngine(ctx context.Context, c generated, want verdict, q *authz.Question) {
	decision := d.engine.Decide(ctx, q)
	if got := written(decision); !reflect.DeepEqual(got, want) {
		d.note(c, "the engine says %+v, the oracle %+v", got, want)
	}
	if _, reason := authz.Floor(q); decision.Allow && reason != "" {
		d.note(c, "the engine allows it, below the floor: %s", reason)
	}
}

// compareRaw asks in one evaluation, which classifies and decides. It asks
// once for all states that give the same input, as many malformed ones do.
func (d *differential) compareRaw(ctx context.Context, c generated, want verdict, input []byte) {
	answer, known := d.answers.Load(string(input))
	if !known {
		var got verdict
		err := ask(ctx, d.decision, input, &got)
		answer = rawAnswer{got, err}
		d.answers.Store(string(input), answer)
	}
	if got := answer.(rawAnswer); got.err != nil || !reflect.DeepEqual(got.verdict, want) {
		d.note(c, "Rego over raw records says %+v, the oracle %+v", got, want)
	}
}

type rawAnswer struct {
	verdict
	err error
}

// compareExplained holds the first gate that explain calls failing, each judged
// on its own, against the one where the oracle stopped.
func (d *differential) compareExplained(ctx context.Context, c generated, gate int, input []byte) {
	var failing []int // sorted
	err := ask(ctx, d.failing, input, &failing)
	if first := append(failing, 0)[0]; err != nil || first != gate {
		d.note(c, "gate %d fails first by explain, %d by the oracle: %v", first, gate, err)
	}
}

// compareAgain asks the engine about the same snapshot, principal and live
// document again, with the rest of the question changed: what it keeps with
// them must not answer for more than it was computed from.
func (d *differential) compareAgain(ctx context.Context, c generated, f facts, q *authz.Question) {
	ask := func(change string) {
		want, _ := judge(&f)
		d.compareEngine(ctx, generated{c.line, append(slices.Clone(c.did), "asked again: "+change)}, want, q)
	}
	first, now := f.capability, f.now
	for _, capability := range capabilities {
		f.capability, q.Request.Capability = capability, authz.Capability(capability)
		ask(capability)
	}
	f.capability, q.Request.Capability = first, authz.Capability(first)
	f.workersEnabled, q.WorkersEnabled = !f.workersEnabled, !q.WorkersEnabled
	ask("worker links the other way")
	f.workersEnabled, q.WorkersEnabled = !f.workersEnabled, !q.WorkersEnabled
	f.now = time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)
	q.Now = f.now
	ask("beyond 2262")
	f.now, q.Now = now, now
	principal, environment := q.Request.Principal, q.Request.EnvironmentID
	banned := &authz.Principal{Subject: "banned", TenantID: "t-other"}
	if principal != nil {
		banned.TenantID = principal.TenantID
	}
	for _, other := range []*authz.Principal{nil, {Subject: "s", TenantID: "t-other"}, banned} {
		was := f.principal
		f.principal, q.Request.Principal = value(principalText(other)), other
		ask(fmt.Sprintf("by %+v", other))
		f.principal, q.Request.Principal = was, principal
	}
	was := f.environmentID
	f.environmentID, q.Request.EnvironmentID = value(`"env-other"`), "env-other"
	ask("in another environment")
	f.environmentID, q.Request.EnvironmentID = was, environment
	phase, opened, channel := f.phase, f.opened, q.Request.Channel
	f.phase, f.opened = value(`"recheck"`), value(`"g-other"`)
	q.Request.Phase, q.Request.Channel = authz.Recheck, &authz.ChannelFacts{Generation: "g-other"}
	ask("for a channel of another process")
	f.phase, f.opened = phase, opened
	q.Request.Channel = channel
	if q.Request.Phase = authz.Open; phase.set() {
		q.Request.Phase = authz.Phase(phase.str)
	}
	ask("as at first")
}

func principalText(p *authz.Principal) string {
	if p == nil {
		return "null"
	}
	return fmt.Sprintf(`{"subject": %q, "tenantId": %q}`, p.Subject, p.TenantID)
}

// value is a text as the oracle reads it.
func value(text string) *node {
	n, err := scan([]byte(text))
	if err != nil {
		panic(err)
	}
	return n
}

// ask asks Rego about a policy input without a classification, as `gateway eval
// --print-input` writes it.
func ask(ctx context.Context, query rego.PreparedEvalQuery, input []byte, answer any) error {
	value, err := ast.ValueFromReader(bytes.NewReader(input))
	if err != nil {
		return err
	}
	results, err := query.Eval(ctx, rego.EvalParsedInput(value))
	if err != nil {
		return err
	}
	if len(results) != 1 || len(results[0].Expressions) != 1 {
		return fmt.Errorf("%d results", len(results))
	}
	text, err := json.Marshal(results[0].Expressions[0].Value)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, answer)
}

func written(d authz.Decision) verdict {
	v := verdict{d.Allow, string(d.Code), string(d.Reason), d.Reasons, d.Status, d.Retryable, d.Message}
	if v.Reasons == nil {
		v.Reasons = []string{}
	}
	return v
}

func (d *differential) count(capability string, gate int, teardown string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gates == nil {
		d.gates, d.allowed, d.teardowns = map[int]int{}, map[string]int{}, map[string]int{}
	}
	d.gates[gate]++
	d.teardowns[teardown]++
	if gate == 0 {
		d.allowed[capability]++
	}
}

func (d *differential) note(c generated, format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.differ = append(d.differ, fmt.Sprintf("%v: %s\n%.4000s", c.did, fmt.Sprintf(format, args...), c.line))
}

// report fails the test where the three differ, and where the generator left
// a gate or an answer untried.
func (d *differential) report(t *testing.T) {
	t.Helper()
	for i, difference := range d.differ {
		if i == 20 {
			t.Errorf("and %d more", len(d.differ)-i)
			break
		}
		t.Error(difference)
	}
	const often = 40
	for _, g := range gates {
		if n := d.gates[g.number]; n < often {
			t.Errorf("gate %d, %s, decided only %d states", g.number, g.reason, n)
		}
	}
	for _, capability := range capabilities {
		if n := d.allowed[capability]; n < often {
			t.Errorf("%s was allowed only %d times", capability, n)
		}
	}
	for _, reason := range teardownReasons {
		if n := d.teardowns[reason]; n < often {
			t.Errorf("the teardown was %s only %d times", reason, n)
		}
	}
}
