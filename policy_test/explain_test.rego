# The explanation judges each gate on its own.
package explain_test

import rego.v2

test_nothing_fails if data.sluice.explain.failing == set() with input as data.vectors.grants.input

test_nothing_fails_later if {
	data.sluice.explain.failing == set() with input as data.vectors["admit-same-generation"].input
}

test_everything_fails_of_nothing if {
	failing := data.sluice.explain.failing with input as {"capability": "duplexCommandStream"}
	passing := {gate.gate | some gate in data.sluice.tables.gates} - failing
	passing == {2, 3, 8, 9, 11, 13, 15, 23, 26, 27, 28} # what nobody set has no fault
}

# A vector and the gates that fail in it, one for each gate that can.
examples := {
	"credential-expired": 2,
	"stale-unknown-capability": 3,
	"environment-mismatch-archived": 8,
	"tenant-suspended": 11,
	"environment-missing": 13,
	"lease-expired": 9,
	"flag-truthy": 15,
	"capabilities-list": 23,
	"config-failed": 26,
	"reuse-ephemeral": 27,
}

test_examples[name] if {
	some name, gate in examples
	gate in data.sluice.explain.failing with input as data.vectors[name].input
}

test_custom if {
	data.sluice.explain.failing == {28} with input as data.vectors.grants.input
		with data.sluice.custom.deny as {"no"}
}

test_every_gate_and_its_code_stand_in_the_tables if {
	[gate.gate | some gate in data.sluice.tables.gates] == numbers.range(1, 32)
	every gate in data.sluice.tables.gates {
		data.sluice.tables.codes[gate.reason] == gate.code
	}
	every reason, verdict in data.sluice.tables.verdicts {
		verdict == {"granted": reason == "ALLOW", "reason": reason}
	}
}
