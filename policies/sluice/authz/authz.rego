# METADATA
# title: Authorization
# description: |
#   May this caller have this capability of this lease now? The decision is
#   granted when every gate passes; else it is refused with the reason of the
#   first gate that fails.
#
#   The gates stand here twice: in `decision`, as one conjunction, which is what
#   an open costs, and in `first_failing`, in order, which is what an operator
#   is told. A test holds the two equal. Undefined denies in both. (Those of the
#   caller and the scope stand in `scope_passes` as well: a denial behind them
#   need not look at each alone.)
# scope: package
# schemas:
#   - input: schema.input
package sluice.authz

import rego.v2

# METADATA
# title: The decision
# description: |
#   What the gateway asks for, on every request and recheck: the gates that look
#   at the caller, the time and the channel, and `snapshot_passes` for the others.
#   One line a gate, where gates 1 and 5 are part of others: whoever has the
#   lease's tenant is somebody, and the lease is there. Of two ways to pass a
#   gate the more frequent stands first.
# entrypoint: true
decision := granted if {
	# the caller: 2; the scope: 7 to 9
	not input.now_ns == null
	input.principal.expires_at_ns > input.now_ns or not input.principal.expires_at_ns != null
	input.snapshot.lease.tenantId == input.principal.tenantId
	input.request.environment_id == input.snapshot.lease.environmentId or not input.request.environment_id != null
	input.snapshot.lease_expires_at_ns > input.now_ns or lease_never_expires

	# 3 to 6, 10 to 27, 29 to 31
	snapshot_passes

	# the security team: 28
	data.sluice.custom.deny == set()

	# the channel: 32
	input.phase == "open" or input.snapshot.live.generation == input.channel.generation
} else := {
	"allow": false,
	"code": code,
	"reason": first_failing,
	"reasons": reasons,
	"status": outward.status,
	"retryable": outward.retryable,
	"message": outward.message,
} if {
	outward := data.sluice.tables.outward[code]
}

# METADATA
# title: Whether every gate passes
default allow := false

allow if decision.allow == true

# METADATA
# title: The gates that look at nothing but the snapshot and the capability
# description: |
#   A gateway evaluates rules that look at nothing else once for each snapshot
#   and live document, as it does the classification, however many requests rest
#   on them.
snapshot_passes if {
	# the facts: 4 to 6
	input.snapshot.state == "fresh"
	_ = input.snapshot.control.revision
	input.snapshot.malformed == []

	# the records: 3, and the classification's 10 to 27
	input.classification[input.capability].granted == true or granted_by_raw_records

	# the worker: 29 to 31
	input.gateway.workers_enabled == true
	input.snapshot.worker.id == input.snapshot.lease.pin.workerId or worker_bears_plugins_id
	input.snapshot.worker.tenantId == input.snapshot.lease.tenantId or not input.snapshot.worker.tenantId != null
	input.snapshot.worker.pluginId == input.snapshot.lease.pin.pluginId
	input.snapshot.live.id == input.snapshot.worker.id
	input.snapshot.live.status == "running"
	input.snapshot.live.pluginId == input.snapshot.lease.pin.pluginId
	object.subset(input.snapshot.live.supportedMethods, data.sluice.tables.capabilities[input.capability].methods) or methods_verified
}

granted := {
	"allow": true,
	"code": "ALLOW",
	"reason": "ALLOW",
	"reasons": [],
	"status": 200,
	"retryable": false,
	"message": "",
} if {
	not data.sluice.custom.limits
} else := {
	"allow": true,
	"code": "ALLOW",
	"reason": "ALLOW",
	"reasons": [],
	"status": 200,
	"retryable": false,
	"message": "",
	"limits": data.sluice.custom.limits,
}

granted_by_raw_records if {
	not input.classification
	verdict.granted == true
}

# METADATA
# title: The reason of the first gate that fails
first_failing := fault if {
	scope_passes
	fault := fault_inside_scope
} else := scope_fault

# Gates 1, 2 and 7 to 9
scope_passes if {
	not input.now_ns == null
	input.principal.expires_at_ns > input.now_ns or not input.principal.expires_at_ns != null
	input.snapshot.lease.tenantId == input.principal.tenantId
	input.request.environment_id == input.snapshot.lease.environmentId or not input.request.environment_id != null
	input.snapshot.lease_expires_at_ns > input.now_ns or lease_never_expires
}

# Where one of them fails: those before it, 3 to 6 among them, in their order
scope_fault := "UNAUTHENTICATED" if {
	not is_object(input.principal)
} else := "CREDENTIAL_EXPIRED" if {
	not credential_current
} else := "CAPABILITY_UNKNOWN" if {
	not data.sluice.tables.capabilities[input.capability]
} else := fault if {
	fault := facts_fault
} else := "TENANT_MISMATCH" if {
	not input.snapshot.lease.tenantId == input.principal.tenantId
} else := "ENVIRONMENT_MISMATCH" if {
	not environment_matches
} else := "LEASE_EXPIRED" if {
	not lease_current
}

# Where none of them does: the others, in their order
fault_inside_scope := fault if {
	fault := snapshot_fault
} else := "CUSTOM_DENY" if {
	not data.sluice.custom.deny == set()
} else := fault if {
	fault := worker_fault
} else := "WORKER_CHANGED" if {
	not generation_kept
}

# Gates 3 to 6 and 10 to 27, which look at nothing but the snapshot
snapshot_fault := "CAPABILITY_UNKNOWN" if {
	not data.sluice.tables.capabilities[input.capability]
} else := fault if {
	fault := facts_fault
} else := record_fault

# Gates 4 to 6
facts_fault := "SNAPSHOT_STALE" if {
	not input.snapshot.state == "fresh"
} else := "SNAPSHOT_MISSING" if {
	not records_known
} else := "RECORD_MALFORMED" if {
	not input.snapshot.malformed == []
}

# Gates 29 to 31
worker_fault := "WORKER_UNAVAILABLE" if {
	not worker_available
} else := "WORKER_CHANGED" if {
	not worker_of_pinned_plugin
} else := "METHOD_NOT_VERIFIED" if {
	not methods_verified
}

# Gate 2: a credential without an expiry does not expire. (By Rego's order of
# types 5 > null: without a clock nothing would.)
credential_current if {
	not input.now_ns == null
	input.principal.expires_at_ns > input.now_ns or not input.principal.expires_at_ns != null
}

# Gate 5: every record has a revision. A malformed one is known to be there, and
# is the next gate's.
records_known if {
	is_object(input.snapshot.lease) or "lease" in input.snapshot.malformed
	{ _ = input.snapshot.control.revision } or "control" in input.snapshot.malformed
}

# Gate 8: the request need not name an environment.
environment_matches if {
	input.request.environment_id == input.snapshot.lease.environmentId or not input.request.environment_id != null
}

# Gate 9
lease_current if {
	input.snapshot.lease_expires_at_ns > input.now_ns or lease_never_expires
}

# An expiry that the record has and the input lacks is no reason to think so.
lease_never_expires if {
	not input.snapshot.lease_expires_at_ns != null
	not input.snapshot.lease.expiresAt != null
}

# Gates 10 to 27: the classification. The gateway computes it when the records
# change and hands it in; over raw records it is computed here.
verdict := input.classification[input.capability] if {
	input.classification
} else := data.sluice.capability.classification[input.capability] if {
	not input.classification
}

# A classification that lacks the capability is a snapshot that lacks a part.
record_fault := verdict.reason if {
	not verdict.granted == true
	data.sluice.tables.verdicts[verdict.reason].granted == false
} else := "SNAPSHOT_MISSING" if {
	not verdict.granted == true
}

# Gate 28: the team's own reasons follow, in order. What is no proper reason
# still denies.
reasons := array.concat(["CUSTOM_DENY"], array.slice(sort({reason | some word in data.sluice.custom.deny; reason := custom_reason(word)}), 0, 16)) if {
	first_failing == "CUSTOM_DENY"
} else := [first_failing]

custom_reason(word) := word if {
	is_string(word)
	count(word) > 0
	count(hex.encode(word)) <= 256
} else := "INVALID_REASON"

# Gate 29: the lease's worker is the pinned one or, where none is pinned, the one
# that bears the plugin's id.
worker_available if {
	input.gateway.workers_enabled == true
	input.snapshot.worker.id == input.snapshot.lease.pin.workerId or worker_bears_plugins_id
	input.snapshot.worker.tenantId == input.snapshot.lease.tenantId or not input.snapshot.worker.tenantId != null
	input.snapshot.live.id == input.snapshot.worker.id
	input.snapshot.live.status == "running"
}

worker_bears_plugins_id if {
	not input.snapshot.lease.pin.workerId != null
	input.snapshot.worker.id == input.snapshot.lease.pin.pluginId
}

# Gate 30
worker_of_pinned_plugin if {
	input.snapshot.worker.pluginId == input.snapshot.lease.pin.pluginId
	input.snapshot.live.pluginId == input.snapshot.lease.pin.pluginId
}

# Gate 31: verified is what the live worker says now, never what a record says.
# A method that the capability needs is a name, or a list of which one will do.
# (The decision first looks for the names side by side, as they are in a sorted
# list: object.subset finds a list in a list only so.)
methods_verified if {
	every needed in data.sluice.tables.capabilities[input.capability].methods {
		needed in input.snapshot.live.supportedMethods or {
			some method in needed
			method in input.snapshot.live.supportedMethods
		}
	}
}

# Gate 32: a channel stays with the process that it was opened on.
generation_kept if input.phase == "open"

generation_kept if input.snapshot.live.generation == input.channel.generation

# What the gates' table says is a code, or the *capability* or *support* column.
code := column if {
	data.sluice.tables.outward[column]
} else := "DUPLEX_CHANNEL_CAPABILITY_DENIED" if {
	column == "capability"
	input.capability == "duplexCommandStream"
} else := "DUPLEX_CHANNEL_UNSUPPORTED" if {
	column == "support"
	input.capability == "duplexCommandStream"
} else := "SANDBOX_CAPABILITY_DENIED" if {
	column in ["capability", "support"]
}

column := data.sluice.tables.codes[first_failing]
