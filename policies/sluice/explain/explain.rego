# METADATA
# title: Explanation
# description: |
#   Which of the 32 gates fail for a question, each judged on its own. The
#   gateway asks this for `explain` alone, and never acts on it: what a gate
#   says behind one that fails may rest on nothing.
# scope: package
# schemas:
#   - input: schema.input
package sluice.explain

import rego.v2

import data.sluice.authz
import data.sluice.capability

# METADATA
# title: The numbers of the gates that fail
# entrypoint: true
failing contains 1 if not is_object(input.principal)

failing contains 2 if not authz.credential_current

failing contains 3 if not data.sluice.tables.capabilities[input.capability]

failing contains 4 if not input.snapshot.state == "fresh"

failing contains 5 if not authz.records_known

failing contains 6 if not input.snapshot.malformed == []

failing contains 7 if not input.snapshot.lease.tenantId == input.principal.tenantId

failing contains 8 if not authz.environment_matches

failing contains 9 if not authz.lease_current

failing contains 10 if {
	duplex
	not capability.duplex_enabled
}

failing contains 11 if not capability.tenant_in_good_standing

failing contains 12 if not capability.lease_active

failing contains 13 if not capability.environment_active

failing contains 14 if not capability.identity_agrees

failing contains 15 if input.capability in capability.metadata_malformed

failing contains 16 if input.capability in capability.unsupported

failing contains 17 if {
	duplex
	not capability.plugin_backed
}

failing contains 18 if {
	duplex
	not input.gateway.workers_enabled == true
}

failing contains 19 if {
	duplex
	not capability.bound_to_sandbox
}

failing contains 20 if not capability.plugin_found

failing contains 21 if not capability.plugin_ready

failing contains 22 if count(capability.entries) == 0

failing contains 23 if input.capability in capability.declaration_malformed

failing contains 24 if input.capability in capability.not_declared

failing contains 25 if input.capability in capability.not_opted_in

failing contains 26 if input.capability in capability.config_failed

failing contains 27 if input.capability in capability.narrowed

failing contains 28 if not data.sluice.custom.deny == set()

failing contains 29 if not authz.worker_available

failing contains 30 if not authz.worker_of_pinned_plugin

failing contains 31 if not authz.methods_verified

failing contains 32 if not authz.generation_kept

duplex if input.capability == "duplexCommandStream"
