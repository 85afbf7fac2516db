package sluice.capability

import rego.v2

# The first of gates 11 to 14 that fails: the lease as a whole.
lease_fault := "TENANT_SUSPENDED" if {
	not tenant_in_good_standing
} else := "LEASE_NOT_ACTIVE" if {
	not input.snapshot.lease.status == "active"
} else := "ENVIRONMENT_NOT_ACTIVE" if {
	not environment_active
} else := "IDENTITY_CONFLICT" if {
	not identity_agrees
}

# Gate 11
tenant_in_good_standing if {
	not input.snapshot.lease.tenantId in input.snapshot.control.suspendedTenants
	is_array(input.snapshot.control.suspendedTenants) or not input.snapshot.control.suspendedTenants != null
}

# Gate 13
environment_active if {
	input.snapshot.environment.id == input.snapshot.lease.environmentId
	input.snapshot.environment.status == "active"
	input.snapshot.environment.tenantId == input.snapshot.lease.tenantId
}

environment_active if not input.snapshot.lease.environmentId != null

# Gate 14: the pin is whole, and the metadata, which a provider may write,
# names nobody else.
identity_agrees if {
	pin := input.snapshot.lease.pin
	is_string(pin.driver)
	pin.driver != ""
	input.snapshot.lease.metadata.driver == pin.driver or not input.snapshot.lease.metadata.driver != null
	{ is_string(pin.workerId); regex.match(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`, pin.workerId) } or not pin.workerId != null
	plugin_agrees or not family.kind
}

# The families with a kind are those whose drivers plugins bring.
plugin_agrees if {
	pin := input.snapshot.lease.pin
	is_string(pin.pluginId)
	regex.match(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`, pin.pluginId)
	is_string(pin.driverKey)
	regex.match(`^[!-~]{1,512}$`, pin.driverKey)
	input.snapshot.lease.metadata.pluginId == pin.pluginId or not input.snapshot.lease.metadata.pluginId != null
	metadata_key := family.metadata_key
	input.snapshot.lease.metadata[metadata_key] == pin.driverKey or not input.snapshot.lease.metadata[metadata_key] != null
}

# The row of the lease's driver family; a name that is no family supports
# nothing.
default family := {"capabilities": []}

family := data.sluice.tables.families[input.snapshot.lease.pin.driver]

# Gate 15
flags_well_formed if {
	metadata := input.snapshot.lease.metadata
	plugin_flag_well_formed
	is_boolean(metadata.nativeFileSyncUnsupported) or not metadata.nativeFileSyncUnsupported != null
	is_string(metadata.backend) or not metadata.backend != null
	is_object(metadata.providerMetadata) or not metadata.providerMetadata != null
	is_boolean(metadata.providerMetadata.nativeFileSyncUnsupported) or not metadata.providerMetadata.nativeFileSyncUnsupported != null
	is_string(metadata.providerMetadata.backend) or not metadata.providerMetadata.backend != null
}

flags_well_formed if not input.snapshot.lease.metadata != null

# The flag may name the pinned plugin, by id or by key.
plugin_flag_well_formed if is_boolean(input.snapshot.lease.metadata.sandboxProviderPlugin)

plugin_flag_well_formed if not input.snapshot.lease.metadata.sandboxProviderPlugin != null

plugin_flag_well_formed if {
	input.snapshot.lease.metadata.sandboxProviderPlugin == input.snapshot.lease.pin.pluginId
	is_string(input.snapshot.lease.pin.pluginId)
	regex.match(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`, input.snapshot.lease.pin.pluginId)
}

plugin_flag_well_formed if {
	input.snapshot.lease.metadata.sandboxProviderPlugin == input.snapshot.plugin.pluginKey
	input.snapshot.plugin.pluginKey != ""
	input.snapshot.plugin.id == input.snapshot.lease.pin.pluginId
}
