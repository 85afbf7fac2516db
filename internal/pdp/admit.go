package pdp

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// teamPackage is where a team's own denials and limits stand.
const teamPackage = "data.sluice.custom"

// shippedRoot stands before the names of the shipped files, which no team's file
// has by chance.
const shippedRoot = "gateway:policies"

// shippedTeamFile holds the shipped rules of that package, which never hold.
const shippedTeamFile = shippedRoot + "/sluice/custom/custom.rego"

// shippedPackages are the packages below sluice that the binary brings.
func shippedPackages(shipped *source) []string {
	var names []string
	for _, m := range shipped.modules {
		if name := m.Package.Path.String(); name != teamPackage && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// admitTeam refuses what a team's set must not hold, or, with Replace, makes
// room for the shipped packages and tables that it brings.
func admitTeam(shipped, team *source, o Options) error {
	known := shippedPackages(shipped)
	var errs []error
	for name, m := range team.modules {
		errs = append(errs, admitPackage(m, name, known, o.Replace))
	}
	for name, m := range team.tests {
		errs = append(errs, admitTests(m, name, known))
	}
	errs = append(errs, admitData(team, o.Replace))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	makeRoom(shipped, team)
	return nil
}

func admitPackage(m *ast.Module, file string, known []string, replace bool) error {
	name := m.Package.Path.String()
	switch {
	case !ownedBySluice(name) || name == teamPackage:
		return nil
	case !slices.Contains(known, name):
		return fmt.Errorf("%s: nobody knows package %s; a team's rules stand in package sluice.custom", at(m, file), spoken(name))
	case !replace:
		return fmt.Errorf("%s: package %s comes with the gateway; without policies.replace it cannot be replaced", at(m, file), spoken(name))
	}
	return nil
}

// admitTests lets tests stand in the package that they test, or beside it.
func admitTests(m *ast.Module, file string, known []string) error {
	name := m.Package.Path.String()
	tested := strings.TrimSuffix(name, "_test")
	if ownedBySluice(name) && tested != teamPackage && !slices.Contains(known, tested) {
		return fmt.Errorf("%s: nobody knows package %s", at(m, file), spoken(name))
	}
	return nil
}

func admitData(team *source, replace bool) error {
	value, found := team.data["sluice"]
	if !found {
		return nil
	}
	object, ok := value.(map[string]any)
	if !ok {
		return errors.New("the policy path: data.sluice is no object")
	}
	delete(object, "schemas") // the input schema is the binary's; beside the rules it is a file among others
	for name := range object {
		switch {
		case name == "custom":
		case name != "tables":
			return fmt.Errorf("the policy path: nobody knows data.sluice.%s", name)
		case !replace:
			return errors.New("the policy path: data.sluice.tables comes with the gateway; without policies.replace it cannot be replaced")
		}
	}
	return nil
}

// explained are the packages that the shipped explanation looks into.
var explained = []string{"data.sluice.authz", "data.sluice.capability"}

// makeRoom drops from the shipped set what the team's replaces. The shipped
// explanation does not explain other gates than the shipped ones.
func makeRoom(shipped, team *source) {
	brought := map[string]bool{}
	for _, m := range team.modules {
		if name := m.Package.Path.String(); ownedBySluice(name) && name != teamPackage {
			brought[name] = true
		}
	}
	if slices.ContainsFunc(explained, func(name string) bool { return brought[name] }) {
		brought["data.sluice.explain"] = true
	}
	for file, m := range shipped.modules {
		if brought[m.Package.Path.String()] {
			delete(shipped.modules, file)
		}
	}
	object, _ := team.data["sluice"].(map[string]any)
	if _, found := object["tables"]; found {
		if ours, ok := shipped.data["sluice"].(map[string]any); ok {
			delete(ours, "tables")
		}
	}
}

// checkRequired looks for the packages that a set must contain. The shipped
// sluice.custom is empty, and stands for nobody's rules.
func checkRequired(shipped, team *source, required []string) error {
	have := shippedPackages(shipped)
	for _, m := range team.modules {
		have = append(have, m.Package.Path.String())
	}
	for _, name := range required {
		if !slices.Contains(have, "data."+strings.TrimPrefix(name, "data.")) {
			return fmt.Errorf("the set lacks package %s, which is required", strings.TrimPrefix(name, "data."))
		}
	}
	return nil
}

// blameTeam moves the errors about a rule of the shipped sluice.custom, which
// is there to be collided with, to the team's rules of that name.
func blameTeam(errs ast.Errors, modules map[string]*ast.Module) ast.Errors {
	var blamed ast.Errors
	for _, e := range errs {
		rules := rivals(e.Location, modules)
		if len(rules) == 0 {
			blamed = append(blamed, e)
		}
		for _, rule := range rules {
			blamed = append(blamed, ast.NewError(e.Code, rule.Location, "%s", e.Message))
		}
	}
	return blamed
}

// rivals are the rules in other files that bear the name of the shipped
// sluice.custom's rule at a location.
func rivals(l *ast.Location, modules map[string]*ast.Module) []*ast.Rule {
	if l == nil || l.File != shippedTeamFile || modules[l.File] == nil {
		return nil
	}
	named := func(m *ast.Module, match func(*ast.Rule) bool) (found []*ast.Rule) {
		for _, r := range m.Rules {
			if match(r) {
				found = append(found, r)
			}
		}
		return found
	}
	own := named(modules[l.File], func(r *ast.Rule) bool { return r.Location.Row == l.Row })
	var found []*ast.Rule
	for file, m := range modules {
		if file == l.File || m.Package.Path.String() != teamPackage || len(own) == 0 {
			continue
		}
		name := own[0].Head.Ref()[0]
		found = append(found, named(m, func(r *ast.Rule) bool { return r.Head.Ref()[0].Equal(name) })...)
	}
	return found
}

func ownedBySluice(name string) bool {
	return name == "data.sluice" || strings.HasPrefix(name, "data.sluice.") || strings.HasPrefix(name, "data.sluice[")
}

func spoken(name string) string { return strings.TrimPrefix(name, "data.") }

func at(m *ast.Module, file string) string {
	if l := m.Package.Location; l != nil {
		return fmt.Sprintf("%s:%d:%d", file, l.Row, l.Col)
	}
	return file
}
