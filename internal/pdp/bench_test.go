package pdp

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"runtime/debug"
	"slices"
	"sluice/internal/authz"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// benchQuestion is the named vector as a question, with the headers of a
// browser's handshake.
func benchQuestion(b testing.TB, name string) *authz.Question {
	b.Helper()
	f, err := os.Open("../../policy_test/decision.jsonl")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var v struct {
			Name string
			Case json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			b.Fatal(err)
		}
		if v.Name != name {
			continue
		}
		q, err := ReadCase(v.Case, nil)
		if err != nil {
			b.Fatal(err)
		}
		r := q.Request
		r.ID, r.Method, r.Path, r.Host, r.Protocol = authz.NewID(), "GET", "/v1/leases/lease-1/duplex", "gateway.example", "websocket"
		r.RemoteAddress = "192.0.2.7:51234"
		r.Headers = map[string][]string{
			"Upgrade": {"websocket"}, "Connection": {"Upgrade"}, "Origin": {"https://console.example"},
			"User-Agent": {"bench/1"}, "Sec-Websocket-Version": {"13"}, "Accept-Language": {"en", "de"},
		}
		return q
	}
	b.Fatalf("no vector is called %s", name)
	return nil
}

func benchEngine(b *testing.B) *Engine {
	b.Helper()
	e, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	if err := e.Reload(b.Context()); err != nil {
		b.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- e.Run(b.Context()) }()
	b.Cleanup(func() { <-ended })
	return e
}

// trivialQuery is what a one-rule policy costs with OPA's evaluator and
// nothing of ours.
func trivialQuery(b *testing.B, input *ast.Term) func() {
	compiler := ast.MustCompileModules(map[string]string{
		"trivial.rego": "package trivial\n\nallow if input.snapshot.state == \"fresh\"\n",
	})
	query, err := compiler.QueryCompiler().Compile(ast.MustParseBody("x = data.trivial.allow"))
	if err != nil {
		b.Fatal(err)
	}
	store, ctx := inmem.New(), context.Background()
	txn, err := store.NewTransaction(ctx)
	if err != nil {
		b.Fatal(err)
	}
	cancel := topdown.NewCancel()
	return func() {
		_ = topdown.NewQuery(query).WithCompiler(compiler).WithStore(store).WithTransaction(txn).
			WithInput(input).WithCancel(cancel).
			Iter(ctx, func(topdown.QueryResult) error { return nil })
	}
}

// trivialEval is the same through OPA's rego package, with the building of its
// one-field input, as a program would ask it.
func trivialEval(b *testing.B) func() {
	ctx := context.Background()
	query, err := rego.New(rego.Query("data.trivial.allow"),
		rego.Module("trivial.rego", "package trivial\n\nallow if input.state == \"fresh\"\n")).PrepareForEval(ctx)
	if err != nil {
		b.Fatal(err)
	}
	return func() {
		if _, err := query.Eval(ctx, rego.EvalInput(map[string]any{"state": "fresh"})); err != nil {
			b.Fatal(err)
		}
	}
}

func timed(run func()) func() time.Duration {
	return func() time.Duration {
		began := time.Now()
		run()
		return time.Since(began)
	}
}

// BenchmarkRatios runs everything in turn within one loop, so that what else
// the machine does hits all alike, and reports ratios and allocations.
func BenchmarkRatios(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // collecting is not what is compared
	e := benchEngine(b)
	set := e.set.Load()
	grant, denial := benchQuestion(b, "grants"), benchQuestion(b, "worker-starting")
	unclassified := benchQuestion(b, "grants").View.Snapshot
	alone := new(evaluation)
	input, err := inputTerm(grant, nothingClassified, nil)
	if err != nil {
		b.Fatal(err)
	}
	took := make(chan time.Duration)
	fresh := func(q *authz.Question) func() time.Duration { // as of a connection that has just come
		return func() time.Duration {
			go func() {
				began := time.Now()
				e.Decide(context.Background(), q)
				took <- time.Since(began)
			}()
			return <-took
		}
	}
	runs := []struct {
		name string
		run  func() time.Duration
	}{
		{"trivial", timed(trivialQuery(b, input))},
		{"rego", timed(trivialEval(b))},
		{"hot", timed(func() {
			alone.begin(time.Second)
			set.decide(grant, alone)
		})},
		{"path", fresh(grant)},
		{"denial", fresh(denial)},
		{"classify", timed(func() {
			alone.begin(time.Second)
			unclassified.Derived.Store(nil)
			_, _ = set.classify(&authz.Question{View: authz.View{Snapshot: unclassified, Fresh: true}, WorkersEnabled: true}, alone)
		})},
	}
	const batch = 10 // of one kind, before the next one's turn
	spent := map[string][]time.Duration{}
	for b.Loop() {
		for _, r := range runs {
			var total time.Duration
			for range batch {
				total += r.run()
			}
			spent[r.name] = append(spent[r.name], total/batch)
		}
	}
	// The first decile: on a machine that is not ours alone, the other batches
	// also measure its other work.
	typical := func(name string) float64 {
		slices.Sort(spent[name])
		return float64(spent[name][len(spent[name])/10].Nanoseconds())
	}
	for _, r := range runs {
		b.ReportMetric(testing.AllocsPerRun(200, func() { r.run() }), r.name+"-allocs")
		b.ReportMetric(typical(r.name), r.name+"-ns")
	}
	ratio := func(a, c string) float64 { return typical(a) / typical(c) }
	b.ReportMetric(ratio("path", "hot"), "path/hot")
	b.ReportMetric(ratio("path", "trivial"), "path/trivial")
	b.ReportMetric(ratio("path", "rego"), "path/rego")
	b.ReportMetric(ratio("denial", "path"), "denial/path")
	b.ReportMetric(0, "ns/op")
}
