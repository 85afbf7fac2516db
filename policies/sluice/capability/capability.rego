# METADATA
# title: Classification
# description: |
#   What a lease's records leave of each capability: granted, or the first of
#   gates 10 to 27 that removes it. It looks at nothing but the records, the
#   tables and whether this gateway runs worker links, so that it can be
#   computed when a record changes and kept with the snapshot.
#
#   effective = (supported and verified and declared) minus narrowed
#
#   "verified" needs the live worker and is the decision's to say; this package
#   explains the other three words.
# scope: package
# schemas:
#   - input: schema.input
package sluice.capability

import rego.v2

# METADATA
# title: One answer for each capability
# description: |
#   For each capability of the table `{"granted": bool, "reason": string}`,
#   where the reason is ALLOW or that of the first gate that fails.
# entrypoint: true
classification := {capability: data.sluice.tables.verdicts[reason] |
	some capability, reason in first_reason
}

# METADATA
# title: The reason of the first gate that fails, by capability
# description: |
#   The layers are laid on from the last gate to the first, each over those
#   before it, so that the earliest gate has the last word.
first_reason := object.union_n([
	{capability: "ALLOW" | some capability, _ in table},
	{capability: "NARROWED" | some capability in narrowed},
	{capability: "CONFIG_RESOLUTION_FAILED" | some capability in config_failed},
	{capability: "LEASE_NOT_OPTED_IN" | some capability in not_opted_in},
	{capability: "CAPABILITY_NOT_DECLARED" | some capability in not_declared},
	{capability: "DECLARATION_MALFORMED" | some capability in declaration_malformed},
	{capability: plugin_fault | plugin_fault; some capability, _ in table},
	{"duplexCommandStream": duplex_fault | duplex_fault},
	{capability: "DRIVER_UNSUPPORTED" | some capability in unsupported},
	{capability: "METADATA_MALFORMED" | some capability in metadata_malformed},
	{capability: lease_fault | lease_fault; some capability, _ in table},
	{"duplexCommandStream": "KILL_SWITCH" | not duplex_enabled},
])

table := data.sluice.tables.capabilities

# Gate 16, supported: what the driver family can ever do.
unsupported contains capability if {
	some capability, row in table
	not input.snapshot.lease.pin.driver in row.families
}

# Gates 17 to 19: what duplex needs besides.
duplex_fault := "LEASE_NOT_PLUGIN_BACKED" if {
	not plugin_backed
} else := "WORKERS_DISABLED" if {
	not input.gateway.workers_enabled == true
} else := "LEASE_IDENTITY_INCOMPLETE" if {
	not bound_to_sandbox
}

# After gate 15 a flag is true, false or a name of the pinned plugin.
plugin_backed if {
	input.snapshot.lease.metadata.sandboxProviderPlugin != null
	input.snapshot.lease.metadata.sandboxProviderPlugin != false
}

bound_to_sandbox if {
	input.snapshot.lease.providerLeaseId != null
	input.snapshot.lease.providerLeaseId != ""
}

# Gate 25: a lease never gains a capability after it was acquired.
not_opted_in contains capability if {
	some capability, row in table
	row.opt_in == true
	not input.snapshot.lease.capabilities[capability] == true
}

# Gate 26: anything but ok or absent counts as failed.
config_failed contains capability if {
	not config_resolved
	some capability, row in table
	"failed_config" in row.removed_by
}

config_resolved if input.snapshot.lease.configResolution == "ok"

config_resolved if not input.snapshot.lease.configResolution != null

# Gate 27, narrowed: what the lease itself takes away.
narrowed contains capability if {
	not input.snapshot.lease.leasePolicy == "reuse_by_environment"
	some capability, row in table
	"lease_policy" in row.removed_by
}

narrowed contains capability if {
	no_native_sync
	some capability, row in table
	"no_native_sync" in row.removed_by
}

narrowed contains capability if {
	some capability, row in table
	row.opt_in == false
	input.snapshot.lease.capabilities[capability] == false
}

no_native_sync if input.snapshot.lease.metadata.backend == "job"

no_native_sync if input.snapshot.lease.metadata.nativeFileSyncUnsupported == true

no_native_sync if input.snapshot.lease.metadata.providerMetadata.backend == "job"

no_native_sync if input.snapshot.lease.metadata.providerMetadata.nativeFileSyncUnsupported == true
