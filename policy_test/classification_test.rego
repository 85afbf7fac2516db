# The classification: what is handed in, what is computed, and what it removes.
package classification_test

import rego.v2

granted := data.vectors.grants.input

classification := verdicts if {
	verdicts := data.sluice.capability.classification with input as granted
}

test_every_capability_has_an_answer if {
	object.keys(classification) == object.keys(data.sluice.tables.capabilities)
	by_word := {capability | some capability, verdict in classification; verdict.granted == true}
	by_word == {capability | some capability, verdict in classification; verdict.reason == "ALLOW"}
}

test_handed_in_counts if {
	no := {"duplexCommandStream": {"granted": false, "reason": "NARROWED"}}
	data.sluice.authz.decision.reason == "NARROWED" with input as object.union(granted, {"classification": no})
}

test_computed_beforehand_or_here_is_the_same if {
	with_it := object.union(granted, {"classification": classification})
	before := data.sluice.authz.decision with input as with_it
	here := data.sluice.authz.decision with input as granted
	before == here
	before.allow
}

# A classification that lacks the capability denies, and is not computed again.
lacking := [{}, null, {"duplexCommandStream": {}}, {"duplexCommandStream": {"granted": "true", "reason": "ALLOW"}}]

test_lacking_denies[lack] if {
	some lack in lacking
	changed := json.patch(granted, [{"op": "add", "path": "classification", "value": lack}])
	got := data.sluice.authz.decision with input as changed
	got.reason == "SNAPSHOT_MISSING"
	got.code == "DUPLEX_CHANNEL_CAPABILITY_DENIED"
}

# The reason of one capability after some changes of the granted records.
reason_of(capability, changes) := verdicts[capability].reason if {
	patches := [{"op": "add", "path": path, "value": value} | some path, value in changes]
	verdicts := data.sluice.capability.classification with input as json.patch(granted, patches)
}

entry := "snapshot/plugin/environmentDrivers/0/"

reuse := {"snapshot/lease/leasePolicy": "reuse_by_environment"}

flag(name, value) := object.union(reuse, {concat("", [entry, name]): value})

test_reusable_by_policy if reason_of("reusableLeases", reuse) == "ALLOW"

test_reusable_older_yes if reason_of("reusableLeases", flag("supportsReusableLeases", true)) == "ALLOW"

test_reusable_older_no if reason_of("reusableLeases", flag("supportsReusableLeases", false)) == "CAPABILITY_NOT_DECLARED"

test_reusable_older_malformed if reason_of("reusableLeases", flag("supportsReusableLeases", "no")) == "DECLARATION_MALFORMED"

test_reusable_older_null if reason_of("reusableLeases", flag("supportsReusableLeases", null)) == "ALLOW"

test_reusable_nested_silent if {
	said := object.union(flag("supportsReusableLeases", false), {concat("", [entry, "sandboxCapabilities/reusableLeases"]): null})
	reason_of("reusableLeases", said) == "CAPABILITY_NOT_DECLARED"
}

test_reusable_nested_wins if {
	said := object.union(flag("supportsReusableLeases", false), {concat("", [entry, "sandboxCapabilities/reusableLeases"]): true})
	reason_of("reusableLeases", said) == "ALLOW"
}

no_native_sync := [
	["snapshot/lease/metadata/backend", "job"],
	["snapshot/lease/metadata/nativeFileSyncUnsupported", true],
	["snapshot/lease/metadata/providerMetadata", {"backend": "job"}],
	["snapshot/lease/metadata/providerMetadata", {"nativeFileSyncUnsupported": true}],
]

test_no_native_sync[[path, value]] if {
	some [path, value] in no_native_sync
	reason_of("nativeSyncIn", {path: value}) == "NARROWED"
}

test_native_sync if {
	changes := {
		"snapshot/lease/metadata/backend": "vm",
		"snapshot/lease/metadata/nativeFileSyncUnsupported": false,
		"snapshot/lease/metadata/providerMetadata": {"backend": "vm", "nativeFileSyncUnsupported": false},
	}
	reason_of("nativeSyncIn", changes) == "ALLOW"
}

test_lease_narrows_what_is_not_opt_in if {
	reason_of("nativeSyncIn", {"snapshot/lease/capabilities/nativeSyncIn": false}) == "NARROWED"
}

test_failed_config if {
	failed := {"snapshot/lease/configResolution": "failed"}
	reason_of("persistentProcessSessions", failed) == "CONFIG_RESOLUTION_FAILED"
	reason_of("independentControlCommands", failed) == "ALLOW"
}

test_plugin_family if {
	changes := {
		"snapshot/lease/pin/driver": "plugin",
		"snapshot/lease/metadata": {"driverKey": "daytona"},
		concat("", [entry, "kind"]): "environment_driver",
	}
	reason_of("nativeSyncIn", changes) == "ALLOW"
	reason_of("duplexCommandStream", changes) == "DRIVER_UNSUPPORTED"
	elsewhere := object.union(changes, {"snapshot/lease/metadata": {"driverKey": "other"}})
	reason_of("nativeSyncIn", elsewhere) == "IDENTITY_CONFLICT"
	unheard := object.union(changes, {"snapshot/lease/metadata": {"provider": "other"}})
	reason_of("nativeSyncIn", unheard) == "ALLOW"
}

test_other_families if {
	reason_of("nativeSyncIn", {"snapshot/lease/pin": {"driver": "ssh"}, "snapshot/lease/metadata": null}) == "DRIVER_UNSUPPORTED"
	reason_of("nativeSyncIn", {"snapshot/lease/pin": {"driver": "moon"}, "snapshot/lease/metadata": null}) == "DRIVER_UNSUPPORTED"
	reason_of("nativeSyncIn", {"snapshot/lease/pin": {"driver": "moon"}}) == "IDENTITY_CONFLICT"
}
