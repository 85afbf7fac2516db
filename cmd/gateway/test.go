package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sluice/internal/pdp"
	"sluice/policies"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/tester"
	"github.com/open-policy-agent/opa/v1/topdown"
)

type testCommand struct {
	outputFlags
	Filter    string   `name:"run" placeholder:"REGEX" help:"Run only the tests whose full name (data.package.test_name) matches."`
	Verbose   bool     `short:"v" help:"List the tests that pass too, with what they print."`
	Coverage  bool     `help:"Report the coverage of the tested files; test files do not count."`
	Threshold float64  `placeholder:"PERCENT" help:"With a lower coverage the answer is no."`
	Dirs      []string `arg:"" optional:"" name:"dir" help:"Files and directories with rules, data and tests; without one, this directory."`
}

// Help is shown by test --help.
func (*testCommand) Help() string {
	return "Verdicts are those of opa test. The shipped packages stand beside what is named, unless that brings them itself; they do not count for the coverage."
}

// testReport is the answer as JSON.
type testReport struct {
	Passed   int             `json:"passed"`
	Failed   int             `json:"failed"`
	Skipped  int             `json:"skipped"`
	Results  []testResult    `json:"results"`
	Coverage *coverageReport `json:"coverage,omitempty"`
}

type testResult struct {
	Name   string `json:"name"`
	Place  string `json:"place"`
	Result string `json:"result"` // pass, fail, error, skip
	Error  string `json:"error,omitempty"`
	Output string `json:"output,omitempty"` // what it printed
	Failed string `json:"failed,omitempty"` // the expression that failed, with its place and its values
}

type coverageReport struct {
	Percent float64  `json:"percent"`
	Missed  []string `json:"missed"` // file:line
}

const regoTestTime = 30 * time.Second

// Run runs the tests and answers no when one failed or too little is covered.
func (c *testCommand) Run(a *app) error {
	if c.Threshold < 0 || c.Threshold > 100 {
		return wrongUsage("--threshold %v: it must be 0 to 100", c.Threshold)
	}
	dirs := c.Dirs
	if len(dirs) == 0 {
		dirs = []string{"."}
	}
	for _, dir := range dirs {
		if _, err := os.Stat(dir); err != nil {
			return wrongUsage("%w", err)
		}
	}
	if _, err := regexp.Compile(c.Filter); err != nil {
		return wrongUsage("--run: %w", err)
	}
	report, err := runRegoTests(a.ctx, dirs, c.Filter)
	if err != nil {
		return err
	}
	warnRefused(a, dirs)
	if c.json() {
		if !c.Coverage && c.Threshold == 0 {
			report.Coverage = nil
		}
		if err := a.writeJSON(report); err != nil {
			return err
		}
	} else {
		c.write(a.stdout, report)
	}
	switch covered := report.Coverage; {
	case report.Passed+report.Failed+report.Skipped == 0:
		return fmt.Errorf("no tests were found in %s", strings.Join(dirs, ", "))
	case report.Failed+report.Skipped > 0:
		return errNo
	case covered != nil && covered.Percent < c.Threshold:
		return fmt.Errorf("coverage is %.2f%%, below the threshold of %.2f%%", covered.Percent, c.Threshold)
	}
	return nil
}

func (c *testCommand) write(out io.Writer, r *testReport) {
	for _, t := range r.Results {
		if t.Result != "pass" || c.Verbose {
			t.write(out)
		}
	}
	if c.Coverage {
		for _, line := range r.Coverage.Missed {
			fmt.Fprintf(out, "%s: not covered\n", line)
		}
	}
	if c.Coverage || c.Threshold > 0 {
		fmt.Fprintf(out, "coverage: %.2f%%\n", r.Coverage.Percent)
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", r.Passed, r.Failed, r.Skipped)
}

func (t *testResult) write(out io.Writer) {
	fmt.Fprintln(out, strings.TrimSpace(fmt.Sprintf("%s: %s: %s %s", t.Place, t.Name, strings.ToUpper(t.Result), t.Error)))
	for line := range strings.Lines(t.Failed + t.Output) {
		fmt.Fprintf(out, "  %s\n", strings.TrimRight(line, "\n"))
	}
}

func runRegoTests(ctx context.Context, dirs []string, filter string) (*testReport, error) {
	tracer := cover.New()
	report := &testReport{Results: []testResult{}}
	failed := false
	modules, shipped, err := withTests(ctx, dirs, filter, func(r *tester.Runner) { r.SetCoverageQueryTracer(tracer) }, func(r *tester.Result) {
		report.add(r)
		failed = failed || r.Fail
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(report.Results, func(x, y testResult) int { return strings.Compare(x.Name, y.Name) })
	report.Coverage = coverageOf(tracer.Report(modules), shipped)
	if failed {
		return report, report.explain(ctx, dirs, filter)
	}
	return report, nil
}

// explain runs the tests again, to see where each of those that fail does: a
// run is either traced or measured.
func (r *testReport) explain(ctx context.Context, dirs []string, filter string) error {
	places := map[string]string{}
	_, _, err := withTests(ctx, dirs, filter, func(r *tester.Runner) { r.EnableTracing(true) }, func(t *tester.Result) {
		if t.Fail {
			places[t.Package+"."+t.Name] = failedAt(t.Trace)
		}
	})
	for i := range r.Results {
		r.Results[i].Failed = places[r.Results[i].Name]
	}
	return err
}

// failedAt is the last expression of a trace that failed, with its values.
func failedAt(trace []*topdown.Event) string {
	for _, e := range slices.Backward(trace) {
		expr, ok := e.Node.(*ast.Expr)
		if e.Op != topdown.FailOp || e.Location == nil || e.QueryID == 0 || !ok {
			continue
		}
		if _, isEvery := expr.Terms.(*ast.Every); isEvery {
			continue // what fails is inside it
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s:%d:\n", e.Location.File, e.Location.Row)
		_ = topdown.PrettyEvent(&b, e, topdown.PrettyEventOpts{PrettyVars: true})
		return strings.TrimRight(b.String(), "\n") + "\n"
	}
	return ""
}

// withTests loads and runs the tests once, and hands over each result. It
// returns the modules, and the directory of those that were only lent.
func withTests(ctx context.Context, dirs []string, filter string, setUp func(*tester.Runner), each func(*tester.Result)) (map[string]*ast.Module, string, error) {
	modules, store, shipped, cleanup, err := loadTests(dirs)
	if err != nil {
		return nil, "", err
	}
	defer cleanup()
	err = storage.Txn(ctx, store, storage.TransactionParams{}, func(txn storage.Transaction) error {
		compiler := ast.NewCompiler().WithEnablePrintStatements(true)
		runner := tester.NewRunner().SetCompiler(compiler).CapturePrintOutput(true).SetStore(store).SetModules(modules).
			SetTimeout(regoTestTime).Filter(filter)
		setUp(runner)
		results, err := runner.RunTests(ctx, txn)
		if err != nil {
			return fmt.Errorf("run the tests: %w", err)
		}
		for r := range results {
			each(r)
		}
		return nil
	})
	return modules, shipped, err
}

// warnRefused says why the gateway would refuse the one directory that is
// tested: what the tests of a set say is of no use then.
func warnRefused(a *app, dirs []string) {
	if len(dirs) != 1 || !isDirectory(dirs[0]) {
		return // no one directory can be policies.path
	}
	engine, err := pdp.New(pdp.Options{Path: dirs[0], Replace: true})
	if err == nil {
		err = engine.Reload(a.ctx)
	}
	if err != nil {
		fmt.Fprintf(a.stderr, "warning: the gateway would refuse this set:\n%s\n", strings.TrimPrefix(err.Error(), "loading policies: "))
	}
}

func (r *testReport) add(t *tester.Result) {
	out := testResult{Name: t.Package + "." + t.Name, Result: "pass", Output: string(t.Output)}
	if t.Location != nil {
		out.Place = fmt.Sprintf("%s:%d", t.Location.File, t.Location.Row)
	}
	switch {
	case t.Skip:
		r.Skipped++
		out.Result = "skip"
	case t.Error != nil:
		r.Failed++
		out.Result, out.Error = "error", t.Error.Error()
	case !t.Pass():
		r.Failed++
		out.Result = "fail"
	default:
		r.Passed++
	}
	r.Results = append(r.Results, out)
}

// coverageOf leaves out the tests, and the shipped files when they were only
// lent.
func coverageOf(report cover.Report, shipped string) *coverageReport {
	out := &coverageReport{Percent: 100, Missed: []string{}}
	covered, missed := 0, 0
	for name, file := range report.Files {
		if strings.HasSuffix(name, "_test.rego") || shipped != "" && strings.HasPrefix("/"+strings.TrimPrefix(name, "/"), shipped) {
			continue
		}
		covered += file.CoveredLines
		missed += file.NotCoveredLines
		for _, r := range file.NotCovered {
			for row := r.Start.Row; row <= r.End.Row; row++ {
				out.Missed = append(out.Missed, fmt.Sprintf("%s:%d", name, row))
			}
		}
	}
	slices.Sort(out.Missed)
	if covered+missed > 0 {
		out.Percent = 100 * float64(covered) / float64(covered+missed)
	}
	return out
}

// loadTests loads what is named and, unless that brings them, the shipped
// packages from a directory of their own, whose name is returned.
func loadTests(dirs []string) (map[string]*ast.Module, storage.Store, string, func(), error) {
	keep := func() {}
	modules, store, err := tester.Load(dirs, nil)
	if err != nil {
		return nil, nil, "", keep, fmt.Errorf("load the tests: %w", err)
	}
	for _, m := range modules {
		if m.Package.Path.String() == "data.sluice.authz" {
			return modules, store, "", keep, nil
		}
	}
	shipped, err := os.MkdirTemp("", "sluice-policies-")
	if err != nil {
		return nil, nil, "", keep, fmt.Errorf("lay out the shipped packages: %w", err)
	}
	cleanup := func() { _ = os.RemoveAll(shipped) }
	if err := os.CopyFS(shipped, withoutSchemas{policies.FS}); err != nil {
		return nil, nil, "", cleanup, fmt.Errorf("lay out the shipped packages: %w", err)
	}
	modules, store, err = tester.Load(append([]string{filepath.Clean(shipped)}, dirs...), nil)
	if err != nil {
		return nil, nil, "", cleanup, fmt.Errorf("load the tests: %w", err)
	}
	return modules, store, shipped, cleanup, nil
}

// withoutSchemas hides the schema, which would be loaded as data.
type withoutSchemas struct{ fs.ReadDirFS }

func (w withoutSchemas) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := w.ReadDirFS.ReadDir(name)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == "schemas" }), err
}
