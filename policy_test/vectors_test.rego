# The golden vectors, as policy inputs: vectors.json is made of decision.jsonl
# and teardown.jsonl by the Go test beside it.
package vectors_test

import rego.v2

test_vectors[name] if {
	some name, vector in data.vectors
	got := data.sluice.authz.decision with input as vector.input
	object.subset(got, vector.want)
}

test_teardown_vectors[name] if {
	some name, vector in data.teardown_vectors
	got := data.sluice.teardown.decision with input as vector.input
	got == vector.want
}
