# The security team's own rules can only narrow.
package custom_test

import rego.v2

granted := data.vectors.grants.input

test_nothing_is_denied_or_lowered if {
	data.sluice.custom.deny == set() with input as granted
	not data.sluice.custom.limits with input as granted
}

test_no_input_has_version_0 if {
	data.sluice.custom.deny == {"UNKNOWN_INPUT_VERSION"} with input.version as 0
	data.sluice.custom.limits == {} with input.version as 0
}

test_own_reasons_follow_in_order if {
	got := data.sluice.authz.decision with input as granted with data.sluice.custom.deny as {"zebra", "ant"}
	got == {
		"allow": false,
		"code": "DUPLEX_CHANNEL_CAPABILITY_DENIED",
		"reason": "CUSTOM_DENY",
		"reasons": ["CUSTOM_DENY", "ant", "zebra"],
		"status": 403,
		"retryable": false,
		"message": "Sandbox lease does not grant the duplex command stream capability.",
	}
}

long := concat("", [letter | some _ in numbers.range(1, 128); letter := "x"])

improper := [false, null, 7, "", {}, concat("", [long, "x"]), concat("", [long, "é"])]

test_improper_reasons_deny_all_the_same[word] if {
	some word in improper
	got := data.sluice.authz.decision with input as granted with data.sluice.custom.deny as {word}
	got.allow == false
	got.reasons == ["CUSTOM_DENY", "INVALID_REASON"]
}

test_a_reason_has_up_to_128_bytes if {
	got := data.sluice.authz.decision with input as granted with data.sluice.custom.deny as {long}
	got.reasons == ["CUSTOM_DENY", long]
}

test_sixteen_reasons_are_kept if {
	many := {sprintf("reason %02d", [n]) | some n in numbers.range(1, 40)}
	got := data.sluice.authz.decision with input as granted with data.sluice.custom.deny as many
	count(got.reasons) == 17
	got.reasons[16] == "reason 16"
}

test_earlier_gates_come_first if {
	got := data.sluice.authz.decision with input as data.vectors["not-opted-in-worker-gone"].input
		with data.sluice.custom.deny as {"no"}
	got.reasons == ["LEASE_NOT_OPTED_IN"]
}

test_a_worker_in_trouble_does_not_hide_it if {
	got := data.sluice.authz.decision with input as data.vectors["worker-starting"].input
		with data.sluice.custom.deny as {"no"}
	got.reasons == ["CUSTOM_DENY", "no"]
}

test_limits_are_handed_on if {
	got := data.sluice.authz.decision with input as granted with data.sluice.custom.limits as {"idle_timeout_ms": 1000}
	got.allow
	got.limits == {"idle_timeout_ms": 1000}
}

test_limits_grant_nothing if {
	got := data.sluice.authz.decision with input as data.vectors["lease-released"].input
		with data.sluice.custom.limits as {"idle_timeout_ms": 1000}
	got.allow == false
}
