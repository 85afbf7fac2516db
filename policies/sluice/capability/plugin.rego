package sluice.capability

import rego.v2

# The first of gates 20 to 22 that fails: the plugin as a whole.
plugin_fault := "PLUGIN_NOT_FOUND" if {
	not plugin_found
} else := "PLUGIN_NOT_READY" if {
	not plugin_ready
} else := "DRIVER_DECLARATION_MISSING" if {
	count(entries) == 0
}

# Gate 20: another tenant's plugin is no plugin.
plugin_found if {
	input.snapshot.plugin.id == input.snapshot.lease.pin.pluginId
	not input.snapshot.plugin.tenantId != null or input.snapshot.plugin.tenantId == input.snapshot.lease.tenantId
}

# Gate 21
plugin_ready if input.snapshot.plugin.status == "ready"

# Gate 22: what the plugin declares for the pinned driver; key and kind must
# both match.
entries := [entry |
	some entry in input.snapshot.plugin.environmentDrivers
	entry.driverKey == input.snapshot.lease.pin.driverKey
	entry.kind == family.kind
]

# Gate 23: two answers are none, and only a boolean is one.
declaration_malformed contains capability if {
	not one_declaration
	some capability, _ in table
}

declaration_malformed contains capability if {
	some capability, _ in table
	declared[capability] != null
	not is_boolean(declared[capability])
}

one_declaration if {
	count(entries) == 1
	not entries[0].sandboxCapabilities != null or is_object(entries[0].sandboxCapabilities)
}

# Gate 24: an opt-in capability needs a declaration, another one is declared
# unless the plugin says no.
not_declared contains capability if {
	some capability, row in table
	row.opt_in == true
	not declared[capability] == true
}

not_declared contains capability if {
	some capability, row in table
	row.opt_in == false
	declared[capability] == false
}

# What the entry says of each capability. An older declaration beside the
# nested ones stands in where the nested one is silent.
declared[capability] := value if {
	some capability, _ in table
	value := entries[0].sandboxCapabilities[capability]
	value != null
}

declared[capability] := value if {
	some capability, row in table
	not entries[0].sandboxCapabilities[capability] != null
	value := entries[0][row.legacy_declaration]
	value != null
}
