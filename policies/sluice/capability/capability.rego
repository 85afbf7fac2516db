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

import data.sluice.tables

# METADATA
# title: One answer for each capability
# description: |
#   For each capability of the table `{"granted": bool, "reason": string}`,
#   where the reason is ALLOW or that of the first gate that fails: the layers
#   are laid over each other from the first to the last, and the earliest gate,
#   which comes last, has the last word. Where the lease as a whole fails (11 to
#   14) no later gate has one, and a revoked lease is judged at once.
# entrypoint: true
classification := {capability: verdicts[reason] | some capability, reason in reasons} if {
	fault := lease_fault
	verdicts := tables.verdicts
	reasons := object.union({capability: fault | some capability, _ in tables.capabilities}, kill_switch)
} else := {capability: verdicts[reason] | some capability, reason in reasons} if {
	verdicts := tables.verdicts
	reasons := object.union_n(layers)
}

# 10: switching duplex on is an act
kill_switch := {"duplexCommandStream": "KILL_SWITCH" | not input.snapshot.control.duplexEnabled == true}

# METADATA
# title: What each gate removes
# description: |
#   The capabilities that a gate removes, with its reason, from the last gate
#   to the first, of a lease that passes gates 11 to 14. Gates that judge the lease or the plugin as a whole share a
#   layer.
layers := [
	{capability: "ALLOW" | some capability, _ in all},
	# 27, narrowed: what the lease itself takes away
	{capability: "NARROWED" |
		not input.snapshot.lease.leasePolicy == "reuse_by_environment"
		some capability in removed_by.lease_policy
	},
	{capability: "NARROWED" | no_native_sync; some capability in removed_by.no_native_sync},
	{capability: "NARROWED" | some capability, word in lease_withholds; word == false},
	# 26: anything but ok or absent counts as failed
	{capability: "CONFIG_RESOLUTION_FAILED" |
		input.snapshot.lease.configResolution != null
		not input.snapshot.lease.configResolution == "ok"
		some capability in removed_by.failed_config
	},
	# 25: a lease never gains a capability after it was acquired
	{capability: "LEASE_NOT_OPTED_IN" |
		some capability in opt_in
		not input.snapshot.lease.capabilities[capability] == true
	},
	# 24, declared: the plugin must say yes to an opt-in capability, and must
	# not say no to another one
	{capability: "CAPABILITY_NOT_DECLARED" | some capability in opt_in; not nested[capability] == true},
	{capability: "CAPABILITY_NOT_DECLARED" | some capability, word in plugin_withholds; word == false},
	{capability: "CAPABILITY_NOT_DECLARED" | some capability, word in older; word == false},
	# 23: two answers are none, and only a boolean is one
	{capability: "DECLARATION_MALFORMED" | some capability, word in plugin_withholds; word != false},
	{capability: "DECLARATION_MALFORMED" | some capability, word in older; not is_boolean(word)},
	{capability: "DECLARATION_MALFORMED" | nested != null; not is_object(nested); some capability, _ in all},
	{capability: "DECLARATION_MALFORMED" | entries[1] != null; some capability, _ in all},
	# 20 to 22: the plugin
	{capability: fault | fault := plugin_fault; some capability, _ in all},
	# 17 to 19: what duplex needs besides
	{"duplexCommandStream": fault | fault := duplex_fault},
	# 16, supported: what the driver family can ever do
	{capability: "DRIVER_UNSUPPORTED" | some capability, _ in object.remove(all, family.capabilities)},
	# 15: a flag has its type, or means nothing and is refused
	{capability: "METADATA_MALFORMED" | some capability, word in lease_withholds; word != false},
	{capability: "METADATA_MALFORMED" | not flags_well_formed; some capability, _ in all},
	# 10: the lease
	kill_switch,
] if {
	all := tables.capabilities
	opt_in := tables.opt_in
	removed_by := tables.removed_by

	# what the lease, and the plugin, say of capabilities besides true
	lease_withholds := {capability: word |
		some capability, _ in all
		word := input.snapshot.lease.capabilities[capability]
		not word == true
		not word == null
	}
	nested := declaration
	plugin_withholds := {capability: word |
		some capability, _ in all
		word := nested[capability]
		not word == true
		not word == null
	}

	# an older declaration stands in where the nested one is silent
	older := {capability: word |
		some capability, flag in tables.older_declarations
		word := entries[0][flag]
		word != null
		not nested[capability] != null
	}
}

no_native_sync if input.snapshot.lease.metadata.backend == "job"

no_native_sync if input.snapshot.lease.metadata.providerMetadata.backend == "job"

no_native_sync if input.snapshot.lease.metadata.nativeFileSyncUnsupported == true

no_native_sync if input.snapshot.lease.metadata.providerMetadata.nativeFileSyncUnsupported == true

duplex_fault := "LEASE_NOT_PLUGIN_BACKED" if {
	not { # after gate 15 a flag is true, false or a name of the pinned plugin
		input.snapshot.lease.metadata.sandboxProviderPlugin != null
		input.snapshot.lease.metadata.sandboxProviderPlugin != false
	}
} else := "WORKERS_DISABLED" if {
	not input.gateway.workers_enabled == true
} else := "LEASE_IDENTITY_INCOMPLETE" if {
	not {
		input.snapshot.lease.providerLeaseId != null
		input.snapshot.lease.providerLeaseId != ""
	}
}
