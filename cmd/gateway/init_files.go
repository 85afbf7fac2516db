package main

import (
	"fmt"
	"sluice/internal/worker"
	"strings"
)

// The ids of what init writes.
const (
	initTenant = "acme"
	initLease  = "lease-1"
)

func initConfig(t worker.Target, allow []string, ports [3]string) string {
	scheme := "http"
	if t.TLS {
		scheme = "https"
	}
	quoted := make([]string, len(allow))
	for i, entry := range allow {
		quoted[i] = fmt.Sprintf("%q", entry)
	}
	return fmt.Sprintf(`# Written by "gateway init". Keys that are not here have their defaults; see
# deploy/gateway.example.yaml for all of them, and check what you change with
#   gateway check -c gateway.yaml
# Relative paths are relative to this file's directory.

# Keeps the generated admin token and what must survive a restart.
state_dir: state

listen:
  address: 127.0.0.1:%s           # callers connect here
probes:
  address: 127.0.0.1:%s           # /livez, /readyz, /metrics
admin:
  address: 127.0.0.1:%s           # records, channels, explain; needs the admin token

# The facts that decide: one JSON file for each record.
#   records/control.json            the kill switch ("duplexEnabled") and suspended tenants
#   records/plugins/plugin-1.json   the plugin that made the sandbox, and what it declares
#   records/leases/lease-1.json     the lease: its tenant, its status, what it opted into
# A changed record counts only with a higher "revision"; see "gateway records --help".
store:
  type: file
  file: {dir: records}

# Where the sandbox is. "static" takes your word for what the worker can do, so
# that it works in front of a server that knows nothing of the gateway. Once
# the worker serves its live document, set link to probe or watch, leave
# "static" out, and put the worker's record into the store.
workers:
  link: static
  allow: [%s]   # no other address is ever dialled
  static:
    - id: worker-1
      pluginId: plugin-1
      url: %s://%s
      methods: [duplexChannelOpen, duplexChannelWrite, duplexChannelStop, duplexChannelClose]

# Who may call: "gateway token new NAME --tenant T" makes further entries.
identity:
  tokens_file: tokens.yaml
  allowed_origins: []               # browsers: exact origins, such as https://console.example.com
`, ports[0], ports[1], ports[2], strings.Join(quoted, ", "), scheme, t.Authority())
}

func initTokens(token madeToken) string {
	return "# API tokens. Only the SHA-256 of a token is kept. An entry that is taken out\n" +
		"# ends the open channels of its token.\n" + entryYAML(token.Entry) + "\n"
}

const initControl = `{
  "duplexEnabled": true,
  "suspendedTenants": [],
  "revision": 1
}
`

const initPlugin = `{
  "id": "plugin-1",
  "pluginKey": "example.sandbox",
  "status": "ready",
  "environmentDrivers": [
    {
      "driverKey": "example",
      "kind": "sandbox_provider",
      "sandboxCapabilities": {"duplexCommandStream": true}
    }
  ],
  "revision": 1
}
`

const initLeaseRecord = `{
  "id": "` + initLease + `",
  "tenantId": "` + initTenant + `",
  "status": "active",
  "provider": "example",
  "providerLeaseId": "sandbox-1",
  "capabilities": {"duplexCommandStream": true},
  "pin": {
    "driver": "sandbox",
    "pluginId": "plugin-1",
    "driverKey": "example",
    "workerId": "worker-1"
  },
  "metadata": {"sandboxProviderPlugin": true},
  "revision": 1
}
`
