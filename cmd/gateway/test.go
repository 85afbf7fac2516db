package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/tester"

	"sluice/policies"
)

type testCommand struct {
	outputFlags
	Coverage  bool     `help:"Report the coverage of the tested files."`
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
	report, err := runRegoTests(a.ctx, dirs)
	if err != nil {
		return err
	}
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
		if t.Result != "pass" {
			fmt.Fprintf(out, "%s: %s: %s %s\n", t.Place, t.Name, strings.ToUpper(t.Result), t.Error)
		}
	}
	if c.Coverage && r.Coverage != nil {
		for _, line := range r.Coverage.Missed {
			fmt.Fprintf(out, "%s: not covered\n", line)
		}
		fmt.Fprintf(out, "coverage: %.2f%%\n", r.Coverage.Percent)
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", r.Passed, r.Failed, r.Skipped)
}

func runRegoTests(ctx context.Context, dirs []string) (*testReport, error) {
	modules, store, shipped, cleanup, err := loadTests(dirs)
	if err != nil {
		return nil, err
	}
	defer cleanup()
	tracer := cover.New()
	report := &testReport{Results: []testResult{}}
	err = storage.Txn(ctx, store, storage.TransactionParams{}, func(txn storage.Transaction) error {
		results, err := tester.NewRunner().SetCompiler(ast.NewCompiler()).SetStore(store).SetModules(modules).
			SetCoverageQueryTracer(tracer).SetTimeout(regoTestTime).RunTests(ctx, txn)
		if err != nil {
			return fmt.Errorf("run the tests: %w", err)
		}
		for r := range results {
			report.add(r)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	report.Coverage = coverageOf(tracer.Report(modules), shipped)
	return report, nil
}

func (r *testReport) add(t *tester.Result) {
	out := testResult{Name: t.Package + "." + t.Name, Result: "pass"}
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

// coverageOf leaves out the shipped files when they were only lent.
func coverageOf(report cover.Report, shipped string) *coverageReport {
	out := &coverageReport{Percent: 100, Missed: []string{}}
	covered, missed := 0, 0
	for name, file := range report.Files {
		if shipped != "" && strings.HasPrefix("/"+strings.TrimPrefix(name, "/"), shipped) {
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
