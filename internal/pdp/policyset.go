package pdp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sluice/internal/authz"
	"sluice/policies"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// The questions that are asked, and no others.
const (
	askClassification = "data.sluice.capability.classification"
	askDecision       = "data.sluice.authz.decision"
	askTeardown       = "data.sluice.teardown.decision"
	askFailing        = "data.sluice.explain.failing" // for explain alone
)

// policySet is one compiled set of policies and its data. It is immutable and
// shared by the evaluators.
type policySet struct {
	revision string
	compiler *ast.Compiler
	data     *baseData
	packages map[string]ast.Ref
	needs    inputNeeds
	steady   []ast.Ref
	shipped  bool // the gates are the shipped ones
	lasting  bool // an allow to an open lasts until its admit
	// overlooks says that the team's rules look at nothing of the control record.
	overlooks bool

	classification, decision, teardown, failing ast.Body

	capabilities []authz.Capability
	names        map[authz.Capability]*ast.Term
	methods      map[authz.Capability][]anyOf // all of them
	table        []gateRow
}

// gateRow is one row of the gates' table.
type gateRow struct {
	Gate      int      `json:"gate"`
	Stage     string   `json:"stage"`
	Reason    string   `json:"reason"`
	Code      string   `json:"code"`
	FailsWhen string   `json:"fails_when"`
	LooksAt   []string `json:"looks_at"` // paths below input
}

// anyOf are live methods of which a worker needs one. In the table it is a name
// or a list of names.
type anyOf []string

func (a *anyOf) UnmarshalJSON(text []byte) error {
	var name string
	if json.Unmarshal(text, &name) == nil {
		*a = anyOf{name}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(a))
}

// buildSet reads, checks and compiles a new set. Its errors name file, line
// and column where there is one.
func buildSet(ctx context.Context, o Options) (*policySet, error) {
	caps, err := loadCapabilities()
	if err != nil {
		return nil, err
	}
	shipped, err := loadTree(policies.FS, "sluice", shippedRoot, caps)
	if err != nil {
		return nil, fmt.Errorf("reading the shipped policies: %w", err)
	}
	delete(shipped.data["sluice"].(map[string]any), "schemas")
	unannotate(shipped.modules[shippedTeamFile])
	team := newSource()
	if o.Path != "" {
		if team, err = loadPath(o.Path, caps); err != nil {
			return nil, err
		}
	}
	if err := admitTeam(shipped, team, o); err != nil {
		return nil, err
	}
	if err := checkRequired(shipped, team, o.Required); err != nil {
		return nil, err
	}
	modules, data, err := joinSources(shipped, team)
	if err != nil {
		return nil, err
	}
	set, err := compileSet(modules, data, caps)
	if err != nil {
		return nil, err
	}
	set.shipped = !replacesGates(team)
	set.lasting = set.shipped && allLook(set.compiler, team, fixed)
	set.overlooks = allLook(set.compiler, team, besideControl)
	set.revision = shipped.revision()
	if o.Path != "" {
		set.revision += "-" + team.revision()
	}
	if o.RunTests {
		if err := runTests(ctx, modules, team.tests, data, caps); err != nil {
			return nil, err
		}
	}
	return set, nil
}

// unannotate drops the words about the team's package from the shipped file: a
// package is described once, and the team may want to.
func unannotate(m *ast.Module) {
	m.Annotations = nil
	for _, r := range m.Rules {
		r.Annotations = nil
	}
}

// joinSources lays the team's set beside what is left of the shipped one.
func joinSources(shipped, team *source) (map[string]*ast.Module, map[string]any, error) {
	modules := make(map[string]*ast.Module, len(shipped.modules)+len(team.modules))
	for _, s := range []*source{shipped, team} {
		for name, m := range s.modules {
			if modules[name] != nil {
				return nil, nil, fmt.Errorf("%s: the name is taken by a shipped file", name)
			}
			modules[name] = m
		}
	}
	data := map[string]any{}
	if err := mergeData(data, shipped.data, nil, "policies"); err != nil {
		return nil, nil, err
	}
	if err := mergeData(data, team.data, nil, "the policy path"); err != nil {
		return nil, nil, err
	}
	return modules, data, nil
}

func compileSet(modules map[string]*ast.Module, data map[string]any, caps *ast.Capabilities) (*policySet, error) {
	schemas, err := inputSchema()
	if err != nil {
		return nil, err
	}
	value, err := ast.InterfaceToValue(data)
	if err != nil {
		return nil, fmt.Errorf("reading policy data: %w", err)
	}
	compiler := newCompiler(caps, value).WithSchemas(schemas)
	compiler.Compile(modules)
	if compiler.Failed() {
		return nil, placed(blameTeam(compiler.Errors, modules))
	}
	set := &policySet{compiler: compiler, data: &baseData{value}, packages: packagesByFile(modules), needs: findNeeds(compiler), steady: findSteady(compiler)}
	for ask, body := range map[string]*ast.Body{
		askClassification: &set.classification, askDecision: &set.decision,
		askTeardown: &set.teardown, askFailing: &set.failing,
	} {
		if len(compiler.GetRulesExact(ast.MustParseRef(ask))) == 0 {
			if ask == askFailing {
				continue // gates that are not the shipped ones explain themselves, or nobody does
			}
			return nil, fmt.Errorf("the policies have no rule %s", ask)
		}
		if *body, err = compiler.QueryCompiler().Compile(ast.MustParseBody(resultVar + " = " + ask)); err != nil {
			return nil, fmt.Errorf("compiling the question %s: %w", ask, err)
		}
	}
	return set, set.readTables(data)
}

func newCompiler(caps *ast.Capabilities, data ast.Value) *ast.Compiler {
	return ast.NewCompiler().
		SetErrorLimit(0). // all faults at once
		WithCapabilities(caps).
		WithStrict(true).
		WithEnablePrintStatements(true). // refused, since no capability, instead of silently dropped
		WithUseTypeCheckAnnotations(true).
		WithDefaultRegoVersion(ast.RegoV1).
		WithPathConflictsCheck(func(path []string) (bool, error) {
			ref := make(ast.Ref, len(path))
			for i, p := range path {
				ref[i] = ast.StringTerm(p)
			}
			_, err := data.Find(ref)
			return err == nil, nil
		})
}

// inputSchema types `input` for every module, the team's too, so that a
// misspelt field is a compile error.
func inputSchema() (*ast.SchemaSet, error) {
	var schema any
	if err := json.Unmarshal(policies.Schema, &schema); err != nil {
		return nil, fmt.Errorf("reading the input schema: %w", err)
	}
	set := ast.NewSchemaSet()
	set.Put(ast.SchemaRootRef, schema)
	set.Put(ast.MustParseRef("schema.input"), schema)
	return set, nil
}

func packagesByFile(modules map[string]*ast.Module) map[string]ast.Ref {
	packages := make(map[string]ast.Ref, len(modules))
	for name, m := range modules {
		packages[name] = m.Package.Path
	}
	return packages
}

// readTables keeps what the gateway itself needs of the tables.
func (s *policySet) readTables(data map[string]any) error {
	text, err := json.Marshal(data["sluice"])
	if err != nil {
		return fmt.Errorf("reading the tables: %w", err)
	}
	var doc struct {
		Tables struct {
			Capabilities map[authz.Capability]struct {
				Methods []anyOf `json:"methods"`
			} `json:"capabilities"`
			Gates []gateRow `json:"gates"`
		} `json:"tables"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return fmt.Errorf("reading the tables: %w", err)
	}
	s.methods = map[authz.Capability][]anyOf{}
	s.names = map[authz.Capability]*ast.Term{}
	for c, row := range doc.Tables.Capabilities {
		if len(row.Methods) == 0 {
			return fmt.Errorf("the capability table: %s needs no live method, and would be effective on any worker", c)
		}
		s.capabilities = append(s.capabilities, c)
		s.methods[c] = row.Methods
		s.names[c] = ast.StringTerm(string(c))
	}
	if len(s.capabilities) == 0 {
		return errors.New("the capability table is empty")
	}
	slices.Sort(s.capabilities)
	s.table = doc.Tables.Gates
	return nil
}

// owns reports whether the rule at a location is of one of the shipped
// packages; an error in another one is the team's.
func (s *policySet) owns(l *ast.Location) bool {
	if l == nil {
		return true
	}
	path, ok := s.packages[l.File]
	return ok && path.String() != "data.sluice.custom" && strings.HasPrefix(path.String(), "data.sluice.")
}
