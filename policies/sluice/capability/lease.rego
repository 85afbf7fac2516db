package sluice.capability

import rego.v2

# Gate 10: switching duplex on is an act.
duplex_enabled if input.snapshot.control.duplexEnabled == true

# The first of gates 11 to 14 that fails: the lease as a whole.
lease_fault := "TENANT_SUSPENDED" if {
	not tenant_in_good_standing
} else := "LEASE_NOT_ACTIVE" if {
	not lease_active
} else := "ENVIRONMENT_NOT_ACTIVE" if {
	not environment_active
} else := "IDENTITY_CONFLICT" if {
	not identity_agrees
}

# Gate 11
tenant_in_good_standing if not input.snapshot.control.suspendedTenants != null

tenant_in_good_standing if {
	is_array(input.snapshot.control.suspendedTenants)
	not input.snapshot.lease.tenantId in input.snapshot.control.suspendedTenants
}

# Gate 12
lease_active if input.snapshot.lease.status == "active"

# Gate 13
environment_active if not input.snapshot.lease.environmentId != null

environment_active if {
	input.snapshot.environment.id == input.snapshot.lease.environmentId
	input.snapshot.environment.status == "active"
	input.snapshot.environment.tenantId == input.snapshot.lease.tenantId
}

# Gate 14: the pin is whole, and the metadata, which a provider may write,
# names nobody else.
identity_agrees if {
	is_string(input.snapshot.lease.pin.driver)
	input.snapshot.lease.pin.driver != ""
	pinned_plugin_complete
	pinned_worker_named
	metadata_agrees
}

pinned_plugin_complete if not plugin_family

pinned_plugin_complete if {
	is_id(input.snapshot.lease.pin.pluginId)
	is_token(input.snapshot.lease.pin.driverKey)
}

pinned_worker_named if not input.snapshot.lease.pin.workerId != null

pinned_worker_named if is_id(input.snapshot.lease.pin.workerId)

metadata_agrees if {
	not names_another("driver", input.snapshot.lease.pin.driver)
	not names_another_plugin
}

names_another(key, pinned) if {
	input.snapshot.lease.metadata[key] != null
	input.snapshot.lease.metadata[key] != pinned
}

names_another_plugin if {
	plugin_family
	names_another("pluginId", input.snapshot.lease.pin.pluginId)
}

names_another_plugin if names_another(family.metadata_key, input.snapshot.lease.pin.driverKey)

# The row of the lease's driver family; undefined for a name that is no family.
family := data.sluice.tables.families[input.snapshot.lease.pin.driver]

# The families whose drivers plugins bring.
plugin_family if family.kind

# Gate 15: flags have their type, or mean nothing and are refused.
metadata_malformed contains capability if {
	not flags_well_formed
	some capability, _ in table
}

metadata_malformed contains capability if {
	some capability, _ in table
	input.snapshot.lease.capabilities[capability] != null
	not is_boolean(input.snapshot.lease.capabilities[capability])
}

flags_well_formed if {
	metadata := input.snapshot.lease.metadata
	plugin_flag_well_formed
	not metadata.nativeFileSyncUnsupported != null or is_boolean(metadata.nativeFileSyncUnsupported)
	not metadata.backend != null or is_string(metadata.backend)
	provider_flags_well_formed
}

# No metadata, no flags.
flags_well_formed if not input.snapshot.lease.metadata != null

provider_flags_well_formed if not input.snapshot.lease.metadata.providerMetadata != null

provider_flags_well_formed if {
	metadata := input.snapshot.lease.metadata.providerMetadata
	is_object(metadata)
	not metadata.nativeFileSyncUnsupported != null or is_boolean(metadata.nativeFileSyncUnsupported)
	not metadata.backend != null or is_string(metadata.backend)
}

# The flag may name the pinned plugin, by id or by key.
plugin_flag_well_formed if not input.snapshot.lease.metadata.sandboxProviderPlugin != null

plugin_flag_well_formed if is_boolean(input.snapshot.lease.metadata.sandboxProviderPlugin)

plugin_flag_well_formed if {
	input.snapshot.lease.metadata.sandboxProviderPlugin == input.snapshot.lease.pin.pluginId
	is_id(input.snapshot.lease.pin.pluginId)
}

plugin_flag_well_formed if {
	input.snapshot.lease.metadata.sandboxProviderPlugin == input.snapshot.plugin.pluginKey
	input.snapshot.plugin.pluginKey != ""
	input.snapshot.plugin.id == input.snapshot.lease.pin.pluginId
}

is_id(x) if {
	is_string(x)
	regex.match(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`, x)
}

is_token(x) if {
	is_string(x)
	regex.match(`^[!-~]{1,512}$`, x)
}
