package pdp

import (
	"maps"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// inputNeeds says which parts of the input that are costly to build a policy
// set looks at. What no rule can see is not built for every request, and no
// policy can tell.
type inputNeeds struct {
	request map[string]bool // fields of input.request; nil: all
	age     bool            // input.snapshot.age_ms
	channel bool            // more of input.channel than the generation
}

// onlyEnvironment reports whether input.request.environment_id is all that is
// looked at of the request, as the shipped policies do.
func (n inputNeeds) onlyEnvironment() bool {
	return len(n.request) == 1 && n.request["environment_id"]
}

func (n inputNeeds) requestField(name string) bool { return n.request == nil || n.request[name] }

// findNeeds looks at every reference to the input in the compiled modules: in
// them every use of the input is one. A reference that stops above a field, or
// computes its name, needs all fields there.
func findNeeds(c *ast.Compiler) inputNeeds {
	n := inputNeeds{request: map[string]bool{}}
	for _, m := range c.Modules {
		ast.WalkRefs(m, func(ref ast.Ref) bool {
			if ref[0].Equal(ast.InputRootDocument) {
				n.add(fieldName(ref, 1), fieldName(ref, 2))
			}
			return false
		})
	}
	return n
}

// add notes a reference input.top.field; "" is a name that is not fixed.
func (n *inputNeeds) add(top, field string) {
	if top == "" || top == "snapshot" {
		n.age = n.age || field == "" || field == "age_ms"
	}
	if top == "" || top == "channel" {
		n.channel = n.channel || field != "generation"
	}
	if top == "" || top == "request" && field == "" {
		n.request = nil
	} else if top == "request" && n.request != nil {
		n.request[field] = true
	}
}

// findSteady lists the rules that, like the classification, look at nothing but the
// snapshot and the capability, themselves and through the rules that they use.
// For one snapshot's term they always say the same.
// (What stands above or below a rule's path, in whatever package, is part of the
// same document: such a path is not steady.)
func findSteady(c *ast.Compiler) []ast.Ref {
	steady := map[string]ast.Ref{}
	for _, m := range c.Modules {
		for _, r := range m.Rules {
			path := m.Package.Path.Append(ast.StringTerm(ruleName(r)))
			moves := func(r *ast.Rule) bool {
				return len(r.Head.Args) > 0 || !r.Ref().Equal(path) || !looksOnly(c, r, ofSnapshot)
			}
			if len(path) <= smallRef && !slices.ContainsFunc(c.GetRulesDynamicWithOpts(path, ast.RulesOptions{IncludeHiddenModules: true}), moves) {
				steady[path.String()] = path
			}
		}
	}
	return slices.Collect(maps.Values(steady))
}

// looksOnly reports whether a rule, with the rules that it uses, looks at nothing
// of the input but what may says: input.top.field, "" for a name that is not fixed.
func looksOnly(c *ast.Compiler, r *ast.Rule, may func(top, field string) bool) bool {
	only, seen := true, map[*ast.Rule]bool{}
	var look func(*ast.Rule)
	look = func(r *ast.Rule) {
		if r == nil || seen[r] {
			return
		}
		seen[r] = true
		ast.WalkRefs(r, func(ref ast.Ref) bool {
			if ref[0].Equal(ast.InputRootDocument) {
				only = only && may(fieldName(ref, 1), fieldName(ref, 2))
			}
			return false
		})
		look(r.Else)
		for used := range c.Graph.Dependencies(r) {
			if used, ok := used.(*ast.Rule); ok {
				look(used)
			}
		}
	}
	look(r)
	return only
}

// ofSnapshot reports whether input.top.field is one for a snapshot's term.
func ofSnapshot(top, field string) bool {
	switch top {
	case "version", "gateway", "capability", "classification":
		return true
	case "snapshot":
		return field != "" && field != "age_ms"
	}
	return false
}

// allLook reports whether the team's rules look at nothing but what may says.
func allLook(c *ast.Compiler, team *source, may func(top, field string) bool) bool {
	for file := range team.modules {
		for _, r := range c.Modules[file].Rules {
			if !looksOnly(c, r, may) {
				return false
			}
		}
	}
	return true
}

// replacesGates reports whether a team's set brings shipped packages or tables,
// whose gates may be other gates.
func replacesGates(team *source) bool {
	if _, found := team.data["sluice"]; found {
		return true
	}
	for _, m := range team.modules {
		if name := m.Package.Path.String(); ownedBySluice(name) && name != teamPackage {
			return true
		}
	}
	return false
}

// fixed reports whether input.top.field is the same at an open and at its admit
// on the same facts.
func fixed(top, field string) bool {
	switch top {
	case "", "phase", "now_ns", "channel":
		return false
	case "snapshot":
		return field != "" && field != "age_ms"
	}
	return true
}

// besideControl reports whether input.top.field is none of the control record's.
func besideControl(top, field string) bool {
	return top != "" && (top != "snapshot" || field != "" && field != "control")
}

func fieldName(ref ast.Ref, i int) string {
	if i >= len(ref) {
		return ""
	}
	name, _ := ref[i].Value.(ast.String)
	return string(name)
}
