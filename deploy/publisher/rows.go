package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
)

// key names a record.
type key struct{ kind, id string }

// String is "lease:lease-1", and "control" for the control record: behind the
// prefix, the name of the key in Redis.
func (k key) String() string {
	if k.id == "" {
		return k.kind
	}
	return k.kind + ":" + k.id
}

// ids are what a gateway can ask for; they are also safe in a file's name.
var ids = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

// tables are the kinds of record that the tables hold.
var tables = map[string]string{
	"leases": "lease", "environments": "environment", "plugins": "plugin", "workers": "worker", "settings": "control",
}

// The rows, as this control plane happens to keep them. Rewrite these: the
// left side is yours, the right side is what a gateway reads.

type leaseRow struct {
	Tenant        string          `json:"tenant_id"`
	Environment   string          `json:"environment_id"`
	State         string          `json:"state"`
	Policy        string          `json:"policy"`
	Provider      string          `json:"provider"`
	ProviderLease string          `json:"provider_lease_id"`
	ExpiresAt     string          `json:"expires_at"`
	ConfigFailed  bool            `json:"config_failed"`
	OptIns        map[string]bool `json:"opt_ins"` // as they were when the lease was acquired
	Driver        string          `json:"driver"`
	Plugin        string          `json:"plugin_id"`
	DriverKey     string          `json:"driver_key"`
	Worker        string          `json:"worker_id"`
	Metadata      json.RawMessage `json:"provider_metadata"` // the provider's own words
}

func (r *leaseRow) record() map[string]any {
	resolved := "ok"
	if r.ConfigFailed {
		resolved = "failed"
	}
	return without(map[string]any{
		"tenantId": r.Tenant, "environmentId": r.Environment, "status": r.State, "leasePolicy": r.Policy,
		"provider": r.Provider, "providerLeaseId": r.ProviderLease, "expiresAt": r.ExpiresAt,
		"configResolution": resolved, "capabilities": r.OptIns, "metadata": r.Metadata,
		"pin": without(map[string]any{"driver": r.Driver, "pluginId": r.Plugin, "driverKey": r.DriverKey, "workerId": r.Worker}),
	})
}

type environmentRow struct {
	Tenant string `json:"tenant_id"`
	Driver string `json:"driver"`
	State  string `json:"state"`
}

func (r *environmentRow) record() map[string]any {
	return without(map[string]any{"tenantId": r.Tenant, "driver": r.Driver, "status": r.State})
}

type pluginRow struct {
	Tenant  string          `json:"tenant_id"` // empty: every tenant's
	Key     string          `json:"key"`
	State   string          `json:"state"`
	Drivers json.RawMessage `json:"drivers"` // as the plugin's manifest declares them
}

func (r *pluginRow) record() map[string]any {
	return without(map[string]any{"tenantId": r.Tenant, "pluginKey": r.Key, "status": r.State, "environmentDrivers": r.Drivers})
}

type workerRow struct {
	Tenant string `json:"tenant_id"` // empty: every tenant's
	Plugin string `json:"plugin_id"`
	URL    string `json:"url"`
}

func (r *workerRow) record() map[string]any {
	return without(map[string]any{"tenantId": r.Tenant, "pluginId": r.Plugin, "url": r.URL})
}

type settingsRow struct {
	Duplex    bool     `json:"duplex_enabled"`
	Suspended []string `json:"suspended_tenants"`
}

func (r *settingsRow) record() map[string]any {
	return map[string]any{"duplexEnabled": r.Duplex, "suspendedTenants": append([]string{}, r.Suspended...)}
}

// record makes the record of a change; nil is a deletion. A column that nobody
// knows is an error: a typo in a column must not grant by being overlooked. The
// key is the zero one when there can be no such record.
func record(c change) (key, []byte, error) {
	k := key{kind: tables[c.Table], id: c.ID}
	row := map[string]interface{ record() map[string]any }{
		"lease": &leaseRow{}, "environment": &environmentRow{}, "plugin": &pluginRow{}, "worker": &workerRow{}, "control": &settingsRow{},
	}[k.kind]
	if row == nil || c.Version < 0 || !named(k) {
		return key{}, nil, fmt.Errorf("no row of a published table: %s %q version %d", c.Table, c.ID, c.Version)
	}
	if len(c.Row) == 0 || string(c.Row) == "null" {
		return k, nil, nil
	}
	columns := json.NewDecoder(bytes.NewReader(c.Row))
	columns.DisallowUnknownFields()
	if err := columns.Decode(row); err != nil {
		return k, nil, fmt.Errorf("read the row %s: %w", k, err)
	}
	fields := row.record()
	fields["revision"] = c.Version
	if k.id != "" {
		fields["id"] = k.id
	}
	text, err := json.Marshal(fields)
	return k, text, err
}

// named says whether a record can have the key.
func named(k key) bool {
	if k.kind == "control" {
		return k.id == ""
	}
	return ids.MatchString(k.id)
}

// without leaves out what is empty: to a gateway, absent and null are one, but
// an empty string is a value.
func without(fields map[string]any) map[string]any {
	for name, value := range fields {
		switch v := value.(type) {
		case string:
			if v == "" {
				delete(fields, name)
			}
		case json.RawMessage:
			if len(v) == 0 {
				delete(fields, name)
			}
		}
	}
	return fields
}
