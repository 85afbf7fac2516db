# Every gate with what it looks at absent, and with it null: nothing that is
# missing may open a gate.
package gates_test

import rego.v2

granted := data.vectors.grants.input

test_allow_says_the_same if {
	data.sluice.authz.allow == true with input as granted
	data.sluice.authz.allow == false with input as data.vectors.unauthenticated.input
}

# Of nothing at all comes a denial.
test_no_input if {
	data.sluice.authz.decision.reason == "UNAUTHENTICATED" with input as {}
	data.sluice.authz.decision.reason == "UNAUTHENTICATED" with input as null
}

# Of two gates that fail, the one that comes first is told.
test_the_first_of_two if {
	every pair in [
		[{"principal": {"expires_at_ns": 1}, "capability": "none"}, "CREDENTIAL_EXPIRED"],
		[{"capability": "none", "principal": {"tenantId": "other"}}, "CAPABILITY_UNKNOWN"],
		[{"capability": "none", "snapshot": {"state": "stale"}}, "CAPABILITY_UNKNOWN"],
		[{"snapshot": {"state": "stale", "malformed": ["lease"]}}, "SNAPSHOT_STALE"],
		[{"snapshot": {"malformed": ["plugin"]}, "principal": {"tenantId": "other"}}, "RECORD_MALFORMED"],
		[{"principal": {"tenantId": "other"}, "request": {"environment_id": "other"}}, "TENANT_MISMATCH"],
		[{"request": {"environment_id": "other"}, "snapshot": {"lease_expires_at_ns": 1}}, "ENVIRONMENT_MISMATCH"],
		[{"snapshot": {"lease_expires_at_ns": 1, "live": {"status": "draining"}}}, "LEASE_EXPIRED"],
		[{"snapshot": {"live": {"status": "draining"}}, "phase": "recheck"}, "WORKER_UNAVAILABLE"],
	] {
		data.sluice.authz.decision.reason == pair[1] with input as object.union(granted, pair[0])
	}
}

test_the_teams_rules_stand_between_the_records_and_the_worker if {
	every pair in [
		[{"snapshot": {"live": {"status": "draining"}}}, "CUSTOM_DENY"],
		[{"classification": {granted.capability: {"granted": false, "reason": "NARROWED"}}}, "NARROWED"],
		[{"snapshot": {"lease_expires_at_ns": 1}}, "LEASE_EXPIRED"],
	] {
		data.sluice.authz.decision.reason == pair[1] with input as object.union(granted, pair[0]) with data.sluice.custom.deny as {"no"}
	}
}

# What stands at a path of the granted input, and the reason of the decision
# when it is absent and when it is null. First what is judged on every request,
# with the classification handed in.
asked := [
	["principal", "UNAUTHENTICATED", "UNAUTHENTICATED"],
	["principal/tenantId", "TENANT_MISMATCH", "TENANT_MISMATCH"],
	["principal/expires_at_ns", "ALLOW", "ALLOW"],
	["now_ns", "CREDENTIAL_EXPIRED", "CREDENTIAL_EXPIRED"],
	["capability", "CAPABILITY_UNKNOWN", "CAPABILITY_UNKNOWN"],
	["request", "ALLOW", "ALLOW"],
	["request/environment_id", "ALLOW", "ALLOW"],
	["snapshot", "SNAPSHOT_STALE", "SNAPSHOT_STALE"],
	["snapshot/state", "SNAPSHOT_STALE", "SNAPSHOT_STALE"],
	["snapshot/lease", "SNAPSHOT_MISSING", "SNAPSHOT_MISSING"],
	["snapshot/control", "SNAPSHOT_MISSING", "SNAPSHOT_MISSING"],
	["snapshot/control/revision", "SNAPSHOT_MISSING", "ALLOW"],
	["snapshot/malformed", "RECORD_MALFORMED", "RECORD_MALFORMED"],
	["snapshot/lease/tenantId", "TENANT_MISMATCH", "TENANT_MISMATCH"],
	["snapshot/lease/environmentId", "ENVIRONMENT_MISMATCH", "ENVIRONMENT_MISMATCH"],
	["snapshot/lease_expires_at_ns", "LEASE_EXPIRED", "LEASE_EXPIRED"],
	["snapshot/worker", "WORKER_UNAVAILABLE", "WORKER_UNAVAILABLE"],
	["snapshot/worker/id", "WORKER_UNAVAILABLE", "WORKER_UNAVAILABLE"],
	["snapshot/worker/pluginId", "WORKER_CHANGED", "WORKER_CHANGED"],
	["snapshot/lease/pin/workerId", "WORKER_UNAVAILABLE", "WORKER_UNAVAILABLE"],
	["snapshot/live", "WORKER_UNAVAILABLE", "WORKER_UNAVAILABLE"],
	["snapshot/live/id", "WORKER_UNAVAILABLE", "WORKER_UNAVAILABLE"],
	["snapshot/live/status", "WORKER_UNAVAILABLE", "WORKER_UNAVAILABLE"],
	["snapshot/live/pluginId", "WORKER_CHANGED", "WORKER_CHANGED"],
	["snapshot/live/supportedMethods", "METHOD_NOT_VERIFIED", "METHOD_NOT_VERIFIED"],
	["phase", "WORKER_CHANGED", "WORKER_CHANGED"],
	["gateway", "WORKER_UNAVAILABLE", "WORKER_UNAVAILABLE"],
	["gateway/workers_enabled", "WORKER_UNAVAILABLE", "WORKER_UNAVAILABLE"],
]

# Then what the classification looks at, computed here.
recorded := [
	["snapshot/control/duplexEnabled", "KILL_SWITCH", "KILL_SWITCH"],
	["snapshot/control/suspendedTenants", "ALLOW", "ALLOW"],
	["snapshot/lease/status", "LEASE_NOT_ACTIVE", "LEASE_NOT_ACTIVE"],
	["snapshot/environment", "ENVIRONMENT_NOT_ACTIVE", "ENVIRONMENT_NOT_ACTIVE"],
	["snapshot/environment/id", "ENVIRONMENT_NOT_ACTIVE", "ENVIRONMENT_NOT_ACTIVE"],
	["snapshot/environment/status", "ENVIRONMENT_NOT_ACTIVE", "ENVIRONMENT_NOT_ACTIVE"],
	["snapshot/environment/tenantId", "ENVIRONMENT_NOT_ACTIVE", "ENVIRONMENT_NOT_ACTIVE"],
	["snapshot/lease/pin", "IDENTITY_CONFLICT", "IDENTITY_CONFLICT"],
	["snapshot/lease/pin/driver", "IDENTITY_CONFLICT", "IDENTITY_CONFLICT"],
	["snapshot/lease/pin/pluginId", "IDENTITY_CONFLICT", "IDENTITY_CONFLICT"],
	["snapshot/lease/pin/driverKey", "IDENTITY_CONFLICT", "IDENTITY_CONFLICT"],
	["snapshot/lease/metadata", "LEASE_NOT_PLUGIN_BACKED", "LEASE_NOT_PLUGIN_BACKED"],
	["snapshot/lease/metadata/driver", "ALLOW", "ALLOW"],
	["snapshot/lease/metadata/pluginId", "ALLOW", "ALLOW"],
	["snapshot/lease/metadata/provider", "ALLOW", "ALLOW"],
	["snapshot/lease/metadata/sandboxProviderPlugin", "LEASE_NOT_PLUGIN_BACKED", "LEASE_NOT_PLUGIN_BACKED"],
	["gateway", "WORKERS_DISABLED", "WORKERS_DISABLED"],
	["gateway/workers_enabled", "WORKERS_DISABLED", "WORKERS_DISABLED"],
	["snapshot/lease/providerLeaseId", "LEASE_IDENTITY_INCOMPLETE", "LEASE_IDENTITY_INCOMPLETE"],
	["snapshot/plugin", "PLUGIN_NOT_FOUND", "PLUGIN_NOT_FOUND"],
	["snapshot/plugin/id", "PLUGIN_NOT_FOUND", "PLUGIN_NOT_FOUND"],
	["snapshot/plugin/status", "PLUGIN_NOT_READY", "PLUGIN_NOT_READY"],
	["snapshot/plugin/environmentDrivers", "DRIVER_DECLARATION_MISSING", "DRIVER_DECLARATION_MISSING"],
	["snapshot/plugin/environmentDrivers/0/kind", "DRIVER_DECLARATION_MISSING", "DRIVER_DECLARATION_MISSING"],
	["snapshot/plugin/environmentDrivers/0/driverKey", "DRIVER_DECLARATION_MISSING", "DRIVER_DECLARATION_MISSING"],
	["snapshot/plugin/environmentDrivers/0/sandboxCapabilities", "CAPABILITY_NOT_DECLARED", "CAPABILITY_NOT_DECLARED"],
	["snapshot/lease/capabilities", "LEASE_NOT_OPTED_IN", "LEASE_NOT_OPTED_IN"],
	["snapshot/lease/capabilities/duplexCommandStream", "LEASE_NOT_OPTED_IN", "LEASE_NOT_OPTED_IN"],
	["snapshot/lease/configResolution", "ALLOW", "ALLOW"],
]

classified := object.union(granted, {"classification": {"duplexCommandStream": {"granted": true, "reason": "ALLOW"}}})

test_absent[path] if {
	some [path, reason, _] in asked
	changed := json.patch(classified, [{"op": "remove", "path": path}])
	data.sluice.authz.decision.reason == reason with input as changed
}

test_null[path] if {
	some [path, _, reason] in asked
	changed := json.patch(classified, [{"op": "add", "path": path, "value": null}])
	data.sluice.authz.decision.reason == reason with input as changed
}

test_absent_from_records[path] if {
	some [path, reason, _] in recorded
	changed := json.patch(granted, [{"op": "remove", "path": path}])
	data.sluice.authz.decision.reason == reason with input as changed
}

test_null_in_records[path] if {
	some [path, _, reason] in recorded
	changed := json.patch(granted, [{"op": "add", "path": path, "value": null}])
	data.sluice.authz.decision.reason == reason with input as changed
}

# Other values that are not the right one. true is the boolean true.
wrong_values := [
	["principal", "agent-7", "UNAUTHENTICATED"],
	["snapshot/state", "FRESH", "SNAPSHOT_STALE"],
	["snapshot/malformed", ["lease"], "RECORD_MALFORMED"],
	["snapshot/control/duplexEnabled", "true", "KILL_SWITCH"],
	["snapshot/control/duplexEnabled", 1, "KILL_SWITCH"],
	["snapshot/control/suspendedTenants", "acme", "TENANT_SUSPENDED"],
	["snapshot/lease/pin/driver", 7, "IDENTITY_CONFLICT"],
	["snapshot/lease/pin/driver", "", "IDENTITY_CONFLICT"],
	["snapshot/lease/pin/workerId", 7, "IDENTITY_CONFLICT"],
	["snapshot/lease/pin/pluginId", "plg-a\n", "IDENTITY_CONFLICT"],
	["snapshot/lease/pin/driverKey", "day tona", "IDENTITY_CONFLICT"],
	["snapshot/lease/metadata/providerMetadata", {"backend": 7}, "METADATA_MALFORMED"],
	["snapshot/lease/metadata/providerMetadata", {"nativeFileSyncUnsupported": 0}, "METADATA_MALFORMED"],
	["snapshot/lease/metadata/providerMetadata", [], "METADATA_MALFORMED"],
	["snapshot/lease/metadata/backend", 7, "METADATA_MALFORMED"],
	["snapshot/lease/metadata/sandboxProviderPlugin", "acme.daytona", "ALLOW"],
	["snapshot/lease/metadata/sandboxProviderPlugin", "plg-a", "ALLOW"],
	["snapshot/lease/metadata/sandboxProviderPlugin", "plg-b", "METADATA_MALFORMED"],
	["snapshot/lease/metadata/sandboxProviderPlugin", 1, "METADATA_MALFORMED"],
	["snapshot/lease/capabilities/duplexCommandStream", "true", "METADATA_MALFORMED"],
	["snapshot/lease/providerLeaseId", "", "LEASE_IDENTITY_INCOMPLETE"],
	["snapshot/plugin/environmentDrivers/0/sandboxCapabilities/duplexCommandStream", false, "CAPABILITY_NOT_DECLARED"],
	["snapshot/plugin/environmentDrivers/0/sandboxCapabilities/duplexCommandStream", 1, "DECLARATION_MALFORMED"],
	["snapshot/plugin/environmentDrivers/0/sandboxCapabilities", [], "DECLARATION_MALFORMED"],
	["snapshot/plugin/environmentDrivers/1", granted.snapshot.plugin.environmentDrivers[0], "DECLARATION_MALFORMED"],
	["snapshot/live/supportedMethods", ["duplexChannelOpen", "duplexChannelOpen", "duplexChannelOpen", "duplexChannelOpen"], "METHOD_NOT_VERIFIED"],
	["snapshot/live/supportedMethods", ["duplexChannelStop", "x", "duplexChannelOpen", "duplexChannelWrite", "duplexChannelClose"], "ALLOW"],
	["channel", {"id": "c", "opened_at_ns": 1, "generation": "other"}, "ALLOW"],
]

test_wrong_values[[path, value]] if {
	some [path, value, reason] in wrong_values
	changed := json.patch(granted, [{"op": "add", "path": path, "value": value}])
	data.sluice.authz.decision.reason == reason with input as changed
}

# A malformed record is named, and is not missing.
test_malformed_lease_is_malformed if {
	changed := json.patch(granted, [
		{"op": "add", "path": "snapshot/lease", "value": null},
		{"op": "add", "path": "snapshot/malformed", "value": ["lease"]},
	])
	data.sluice.authz.decision.reason == "RECORD_MALFORMED" with input as changed
}

test_malformed_lease_without_control_is_missing if {
	changed := json.patch(granted, [
		{"op": "add", "path": "snapshot/lease", "value": null},
		{"op": "add", "path": "snapshot/control", "value": null},
		{"op": "add", "path": "snapshot/malformed", "value": ["lease"]},
	])
	data.sluice.authz.decision.reason == "SNAPSHOT_MISSING" with input as changed
}

# A method may be a list of which one will do.
test_one_of_several_methods_will_do if {
	data.sluice.authz.allow with input as granted
		with data.sluice.tables.capabilities.duplexCommandStream.methods as [["duplexTunnel", "duplexChannelOpen"], "duplexChannelClose"]
}

test_none_of_several_methods_will_not_do if {
	data.sluice.authz.decision.reason == "METHOD_NOT_VERIFIED" with input as granted
		with data.sluice.tables.capabilities.duplexCommandStream.methods as [["duplexTunnel", "duplexSocket"], "duplexChannelClose"]
}
