package pdp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/tester"
)

// testTimeout bounds one test rule of a team's set.
const testTimeout = 5 * time.Second

// runTests runs a team's own tests against the whole set. Like opa test it
// knows them by their names, in whatever file they stand.
func runTests(ctx context.Context, modules, tests map[string]*ast.Module, data map[string]any, caps *ast.Capabilities) error {
	all := maps.Clone(modules)
	maps.Copy(all, tests)
	for name, m := range all {
		all[name] = m.Copy() // compiling rewrites modules in place
	}
	store := inmem.NewFromObject(data)
	return storage.Txn(ctx, store, storage.TransactionParams{}, func(txn storage.Transaction) error {
		runner := tester.NewRunner().
			SetCompiler(ast.NewCompiler().WithCapabilities(caps)).
			SetStore(store).RaiseBuiltinErrors(true).SetTimeout(testTimeout).SetModules(all)
		results, err := runner.RunTests(ctx, txn)
		if err != nil {
			return fmt.Errorf("running the set's tests: %w", placed(err))
		}
		var errs []error
		for r := range results {
			if r.Pass() || r.Skip {
				continue
			}
			what := "fails"
			if r.Error != nil {
				what = r.Error.Error()
			}
			errs = append(errs, fmt.Errorf("%s:%d:%d: test %s.%s: %s", r.Location.File, r.Location.Row, r.Location.Col, r.Package, r.Name, what))
		}
		return errors.Join(errs...)
	})
}
