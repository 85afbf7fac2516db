# METADATA
# title: Teardown readiness
# description: |
#   Is it worth calling the worker now to destroy this lease's sandbox? A
#   permanent fault answers ready, so that the attempt runs, fails and counts;
#   a transient one answers not ready, so that no attempt is spent.
# scope: package
# schemas:
#   - input: schema.input
package sluice.teardown

import rego.v2

# METADATA
# title: The answer
# entrypoint: true
decision := {"ready": true, "reason": "NO_PROVIDER"} if {
	not provider
} else := {"ready": true, "reason": "BUILTIN_PROVIDER"} if {
	provider in data.sluice.tables.builtin_providers
} else := {"ready": true, "reason": "WORKERS_DISABLED"} if {
	not input.gateway.workers_enabled == true
} else := {"ready": false, "reason": "PLUGIN_NOT_FOUND"} if {
	not input.snapshot.plugin.id == input.snapshot.lease.pin.pluginId
} else := {"ready": false, "reason": "PLUGIN_NOT_READY"} if {
	not input.snapshot.plugin.status == "ready"
} else := {"ready": false, "reason": "WORKER_UNAVAILABLE"} if {
	not worker_running
} else := {"ready": true, "reason": "WORKER_RUNNING"}

# The recorded provider; the metadata's stands in only where the lease is
# silent.
provider := input.snapshot.lease.provider if {
	input.snapshot.lease.provider != null
	input.snapshot.lease.provider != ""
}

provider := input.snapshot.lease.metadata.provider if {
	not input.snapshot.lease.provider != null
	is_string(input.snapshot.lease.metadata.provider)
	input.snapshot.lease.metadata.provider != ""
}

worker_running if {
	input.snapshot.live.id == worker_id
	input.snapshot.live.status == "running"
}

# The worker is the pinned one or, where none is pinned, the one that bears the
# plugin's id.
worker_id := input.snapshot.lease.pin.workerId if {
	input.snapshot.lease.pin.workerId != null
} else := input.snapshot.lease.pin.pluginId
