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
	not input.snapshot.control.duplexEnabled == true
}

failing contains 11 if not capability.tenant_in_good_standing

failing contains 12 if not input.snapshot.lease.status == "active"

failing contains 13 if not capability.environment_active

failing contains 14 if not capability.identity_agrees

failing contains 17 if {
	duplex
	not {
		input.snapshot.lease.metadata.sandboxProviderPlugin != null
		input.snapshot.lease.metadata.sandboxProviderPlugin != false
	}
}

failing contains 18 if {
	duplex
	not input.gateway.workers_enabled == true
}

failing contains 19 if {
	duplex
	not {
		input.snapshot.lease.providerLeaseId != null
		input.snapshot.lease.providerLeaseId != ""
	}
}

failing contains 20 if not capability.plugin_found

failing contains 21 if not input.snapshot.plugin.status == "ready"

failing contains 22 if capability.entries == []

failing contains gate.gate if {
	some gate in data.sluice.tables.gates
	some layer in capability.layers
	layer[input.capability] == gate.reason
}

failing contains 28 if not data.sluice.custom.deny == set()

failing contains 29 if not authz.worker_available

failing contains 30 if not authz.worker_of_pinned_plugin

failing contains 31 if not authz.methods_verified

failing contains 32 if not authz.generation_kept

duplex if input.capability == "duplexCommandStream"
