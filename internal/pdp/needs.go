package pdp

import "github.com/open-policy-agent/opa/v1/ast"

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

func fieldName(ref ast.Ref, i int) string {
	if i >= len(ref) {
		return ""
	}
	name, _ := ref[i].Value.(ast.String)
	return string(name)
}
