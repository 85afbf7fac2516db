# Teardown readiness, where the vectors do not reach.
package teardown_test

import rego.v2

running := data.teardown_vectors.running.input

reason_of(changes) := got.reason if {
	patches := [{"op": "add", "path": path, "value": value} | some path, value in changes]
	got := data.sluice.teardown.decision with input as json.patch(running, patches)
}

test_no_lease_has_no_provider if reason_of({"snapshot/lease": null}) == "NO_PROVIDER"

test_empty_provider_is_none if reason_of({"snapshot/lease/provider": ""}) == "NO_PROVIDER"

test_metadata_provider_is_a_word if {
	reason_of({"snapshot/lease/provider": null, "snapshot/lease/metadata/provider": ""}) == "NO_PROVIDER"
	reason_of({"snapshot/lease/provider": null, "snapshot/lease/metadata/provider": 7}) == "NO_PROVIDER"
}

test_plugin_not_ready if reason_of({"snapshot/plugin/status": "error"}) == "PLUGIN_NOT_READY"

test_no_plugin if reason_of({"snapshot/plugin": null}) == "PLUGIN_NOT_FOUND"

test_worker_bears_the_plugins_id if {
	reason_of({"snapshot/lease/pin/workerId": null}) == "WORKER_UNAVAILABLE"
	reason_of({"snapshot/lease/pin/workerId": null, "snapshot/live/id": "plg-a"}) == "WORKER_RUNNING"
}
