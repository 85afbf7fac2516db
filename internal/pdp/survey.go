package pdp

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Survey is what a team's set holds, and what in it is probably not meant.
type Survey struct {
	Denies, Limits int      // rules of these names in sluice.custom
	Faults         []Remark // the set loads, and denies everything where such a rule holds
	Warnings       []Remark // it may be what is meant
}

// Remark is about one place of a set.
type Remark struct {
	File      string
	Line, Col int // from 1; 0: the set as a whole
	Message   string
}

// Look surveys the set of o.Path. It says nothing of a set that is refused:
// those errors are a load's.
func Look(ctx context.Context, o Options) (*Survey, error) {
	caps, err := loadCapabilities()
	if err != nil {
		return nil, err
	}
	team, err := loadPath(o.Path, caps)
	if err != nil {
		return nil, err
	}
	o.RunTests = false
	set, err := buildSet(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &Survey{}
	for _, file := range slices.Sorted(maps.Keys(team.modules)) {
		m := team.modules[file]
		if m.Package.Path.String() == teamPackage {
			s.count(m)
		}
		s.skippingNots(m, team.modules)
	}
	s.unasked(set.compiler, team.modules)
	if s.Denies+s.Limits == 0 {
		s.Warnings = append(s.Warnings, Remark{File: o.Path, Message: "there is no rule sluice.custom.deny and no sluice.custom.limits, so nothing here denies or lowers anything"})
	}
	return s, nil
}

func (s *Survey) count(m *ast.Module) {
	for _, r := range m.Rules {
		switch ruleName(r) {
		case "deny":
			s.Denies++
		case "limits":
			s.Limits++
			if what := wrongLimits(r); what != "" {
				s.Faults = append(s.Faults, remark(r.Location, what))
			}
		}
	}
}

// limitNames are the limits that a team's rules can lower.
var limitNames = []string{"idle_timeout_ms", "max_lifetime_ms", "max_message_bytes"}

// wrongLimits says what is wrong with limits that are written down as what no
// channel can be limited by: where such a rule holds, no decision is
// well-formed.
func wrongLimits(r *ast.Rule) string {
	if r.Head.Value == nil {
		return ""
	}
	switch v := r.Head.Value.Value.(type) {
	case ast.Null, ast.Boolean, ast.Number, ast.String, *ast.Array, ast.Set:
		return `limits must be an object: limits := {"max_lifetime_ms": 3600000} if { ... }`
	case ast.Object:
		for _, k := range v.Keys() {
			if name, ok := k.Value.(ast.String); ok && !slices.Contains(limitNames, string(name)) {
				return fmt.Sprintf("limits: nobody knows %v; there are %s", k, strings.Join(limitNames, ", "))
			}
		}
	}
	return ""
}

// unasked warns of the rules in sluice.custom that nobody asks for: a deny
// that is spelt otherwise denies nothing.
func (s *Survey) unasked(compiler *ast.Compiler, team map[string]*ast.Module) {
	for _, file := range slices.Sorted(maps.Keys(team)) {
		m := compiler.Modules[file]
		if m == nil || m.Package.Path.String() != teamPackage {
			continue
		}
		told := map[string]bool{}
		for _, r := range m.Rules {
			name := ruleName(r)
			if name == "deny" || name == "limits" || strings.HasPrefix(name, "test_") || told[name] || used(compiler, r) {
				continue
			}
			told[name] = true
			s.Warnings = append(s.Warnings, remark(r.Location, "nobody asks for "+name+" and no rule uses it; the gateway asks for deny and limits alone"))
		}
	}
}

// used says whether a rule of another name rests on r.
func used(compiler *ast.Compiler, r *ast.Rule) bool {
	for node := range compiler.Graph.Dependents(r) {
		if other, ok := node.(*ast.Rule); ok && !other.Ref().GroundPrefix().Equal(r.Ref().GroundPrefix()) {
			return true
		}
	}
	return false
}

// skippingNots warns of what `not` skips: where a value that the expression
// needs is missing, it is undefined, and so is the rule. With `import rego.v2`
// it is true.
func (s *Survey) skippingNots(m *ast.Module, team map[string]*ast.Module) {
	for _, i := range m.Imports {
		if ast.RegoV2CompatibleRef.Equal(i.Path.Value) {
			return
		}
	}
	undefinable := undefinableRules(m, team)
	ast.WalkExprs(m, func(e *ast.Expr) bool {
		if e.Negated && skips(e, undefinable) {
			s.Warnings = append(s.Warnings, remark(e.Location, "without import rego.v2 this not is undefined, and its rule does not hold, where a value that it looks at is missing; add the import (docs/policies.md#traps)"))
		}
		return false
	})
}

// undefinableRules are the names of the rules in m's package that may have no
// value: neither a set or an object nor with a default.
func undefinableRules(m *ast.Module, team map[string]*ast.Module) map[string]bool {
	names, safe := map[string]bool{}, map[string]bool{}
	for _, other := range team {
		if !other.Package.Path.Equal(m.Package.Path) {
			continue
		}
		for _, r := range other.Rules {
			names[ruleName(r)] = true
			if r.Default || r.Head.RuleKind() == ast.MultiValue {
				safe[ruleName(r)] = true
			}
		}
	}
	maps.DeleteFunc(names, func(name string, _ bool) bool { return safe[name] })
	return names
}

// skips says whether a negated expression is undefined when a value is
// missing. A reference alone, and the equality of two, are not.
func skips(e *ast.Expr, undefinable map[string]bool) bool {
	switch terms := e.Terms.(type) {
	case *ast.Term:
		return nested(terms)
	case []*ast.Term:
		operator := terms[0].String()
		if operator == ast.Equal.Name || operator == ast.Equality.Name {
			return slices.ContainsFunc(terms[1:], nested)
		}
		return slices.ContainsFunc(terms[1:], func(t *ast.Term) bool { return missable(t, undefinable) })
	}
	return false
}

// nested says whether a term looks something up, or calls something, with what
// another reference leads to.
func nested(t *ast.Term) bool {
	switch v := t.Value.(type) {
	case ast.Ref:
		return slices.ContainsFunc(v[1:], func(part *ast.Term) bool { return missable(part, nil) })
	case ast.Call:
		return slices.ContainsFunc(v[1:], func(part *ast.Term) bool { return missable(part, nil) })
	}
	return false
}

// missable says whether a term may have no value.
func missable(t *ast.Term, undefinable map[string]bool) bool {
	found := false
	ast.WalkTerms(t, func(t *ast.Term) bool {
		switch v := t.Value.(type) {
		case ast.Ref:
			found = found || len(v) > 1
		case ast.Var:
			found = found || undefinable[string(v)]
		case ast.Call:
			found = found || slices.ContainsFunc(v[1:], func(part *ast.Term) bool { return missable(part, undefinable) })
			return true // its operator is a reference too
		case *ast.ArrayComprehension, *ast.SetComprehension, *ast.ObjectComprehension:
			return true // empty, not undefined
		}
		return found
	})
	return found
}

func ruleName(r *ast.Rule) string { return strings.Trim(r.Head.Ref()[0].Value.String(), `"`) }

func remark(l *ast.Location, message string) Remark {
	return Remark{l.File, l.Row, l.Col, message}
}
