package sluice.capability

import rego.v2

# The first of gates 20 to 22 that fails: the plugin as a whole.
plugin_fault := "PLUGIN_NOT_FOUND" if {
	not plugin_found
} else := "PLUGIN_NOT_READY" if {
	not input.snapshot.plugin.status == "ready"
} else := "DRIVER_DECLARATION_MISSING" if {
	entries == []
}

# Gate 20: another tenant's plugin is no plugin.
plugin_found if {
	input.snapshot.plugin.id == input.snapshot.lease.pin.pluginId
	not input.snapshot.plugin.tenantId != null or input.snapshot.plugin.tenantId == input.snapshot.lease.tenantId
}

# Gate 22: what the plugin declares for the pinned driver; key and kind must
# both match.
entries := [entry |
	some entry in input.snapshot.plugin.environmentDrivers
	entry.driverKey == input.snapshot.lease.pin.driverKey
	entry.kind == family.kind
]

# What the entry says of each capability.
default declaration := {}

declaration := entries[0].sandboxCapabilities
