package pdp_test

// anything is what may stand where something else is expected.
var anything = []any{gone{}, nil, true, false, 0, 1, "", "true", "x", []any{}, []any{true}, obj{}, obj{"a": true}}

var (
	ids = []any{
		"a", "9-_", long(128), long(129), "-a", "_a", "a b", "a.b", "a/b", "../leases/x", "a\n", "a\x00", "é", " a",
		"LEASE-1", "lease-2", "acme", "ACME", "globex", "env-1", "env-2", "plg-a", "plg-b", "wrk-a", "wrk-b",
	}
	tokens = []any{"!", "~", "a b", "a\n", "\x7f", "é", long(512), long(513), "daytona", "Daytona", "g3", "g4", "G4"}
	times  = []any{
		// Around the case's own time, near and far.
		"2026-10-10T12:00:00Z", "2026-10-10T11:59:59.999999999Z", "2026-10-10T12:00:00.000000001Z",
		"2026-10-10T12:00:00.0000000001Z", "2026-10-10T12:00:00.0000000019Z", "2026-10-10T12:00:01Z",
		"2026-10-10T14:00:00+02:00", "2026-10-10T14:00:01+02:00", "2026-10-10T13:59:59+02:00",
		"2026-10-09T12:01:01-23:59", "2026-10-09T12:00:59-23:59", "2026-10-11T11:59:01+23:59", "2026-10-10T12:00:01-00:00",
		"0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "1600-02-29T00:00:00Z", "1969-12-31T23:59:59Z",
		"2262-04-11T23:47:16.854775807Z", "2262-04-11T23:47:16.854775808Z", "2300-01-01T00:00:00Z",
		"2400-02-29T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59-23:59",
		// No times.
		"soon", "2026-10-10", "2026-10-10T13:00:00", "2026-10-10T13:00Z", "2026-10-10t13:00:00Z", "2026-10-10T13:00:00z",
		"2026-10-10 13:00:00Z", "2026-10-10T13:00:00,5Z", "2026-10-10T13:00:00.Z", "2026-10-10T13:00:00.5", "2026-10-10T24:00:00Z",
		"2026-10-10T13:60:00Z", "2026-10-10T13:00:60Z", "2026-12-31T23:59:60Z", "2026-02-29T13:00:00Z", "2100-02-29T13:00:00Z",
		"2026-13-01T13:00:00Z", "2026-00-01T13:00:00Z", "2026-10-00T13:00:00Z", "2026-11-31T13:00:00Z", "2026-10-32T13:00:00Z",
		"2026-10-10T13:00:00+24:00", "2026-10-10T13:00:00+02:60", "2026-10-10T13:00:00+0200", "2026-10-10T13:00:00+02",
		"+2026-10-10T13:00:00Z", "12026-10-10T13:00:00Z", "226-10-10T13:00:00Z", "-026-10-10T13:00:00Z", "2026-10-10T13:00:00ZZ",
		" 2026-10-10T13:00:00Z", "2026-10-10T13:00:00Z ", "2026-10-10T13:00:00Z\n", "2026-1-10T13:00:00Z", "2026-10-10T3:00:00Z",
		"２026-10-10T13:00:00Z",
	}
	// The instants that a case is judged at.
	nows = []any{
		"2026-10-10T12:00:00.000000001Z", "2026-10-10T12:29:59.999999999Z", "2026-10-10T12:30:00Z", "2026-10-10T13:00:00Z",
		"2026-10-10T14:30:00+02:00", "2262-04-11T23:47:16.854775806Z", "2262-04-11T23:47:16.854775807Z",
		"2262-04-11T23:47:16.854775808Z", "2300-01-01T00:00:00Z", "2350-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z",
		"1969-12-31T23:59:59Z", "1600-02-29T00:00:00Z", "0000-01-01T00:00:00Z",
	}
	revisions = []any{
		2, -1, raw("-0"), raw("0"), raw("1.0"), raw("1e0"), raw("1E2"), raw("3.5"), "3", raw("9223372036854775806"),
		raw("9223372036854775807"), raw("9223372036854775808"), raw("18446744073709551616"), raw("1e999"),
	}
)

// recordGroups touch every field of every record and of the live document.
var recordGroups = []group{
	wild(1, "records.lease.id", ids...),
	wild(2, "records.lease.tenantId", ids...),
	wild(2, "records.lease.environmentId", ids...),
	wild(2, "records.lease.status", "active", "ACTIVE", "active ", "released", "expired", "failed", "retained", "pending_cleanup", "revoked"),
	wild(2, "records.lease.provider", "fake", "local", "ssh", "Fake"),
	wild(3, "records.lease.providerLeaseId", tokens...),
	wild(2, "records.lease.expiresAt", times...),
	wild(2, "records.lease.pin"),
	wild(3, "records.lease.pin.driver", "sandbox", "plugin", "local", "ssh", "weird", "Sandbox"),
	wild(3, "records.lease.pin.pluginId", ids...),
	wild(3, "records.lease.pin.driverKey", tokens...),
	wild(3, "records.lease.pin.workerId", ids...),
	wild(3, "records.lease.metadata"),
	wild(3, "records.lease.metadata.driver", "sandbox", "plugin", "ssh", "Sandbox"),
	wild(3, "records.lease.metadata.pluginId", ids...),
	wild(3, "records.lease.metadata.provider", "daytona", "Daytona", "e2b", "fake"),
	wild(3, "records.lease.metadata.driverKey", "daytona", "Daytona", "e2b"),
	wild(3, "records.lease.metadata.sandboxProviderPlugin", "plg-a", "plg-b", "acme.daytona", "Acme.daytona", "yes"),
	wild(1, "records.lease.revision", revisions...),

	wild(1, "records.environment.id", ids...),
	wild(2, "records.environment.tenantId", ids...),
	wild(1, "records.environment.driver", "ssh"),
	wild(2, "records.environment.status", "archived", "Active", "active "),
	wild(1, "records.environment.revision", revisions...),

	wild(1, "records.plugin.id", ids...),
	wild(3, "records.plugin.tenantId", ids...),
	wild(2, "records.plugin.pluginKey", "plg-b", "yes"),
	wild(3, "records.plugin.status", "installed", "disabled", "error", "upgrade_pending", "uninstalled", "Ready", "ready "),
	wild(1, "records.plugin.revision", revisions...),
	wild(2, "records.plugin.environmentDrivers"),
	wild(2, "records.plugin.environmentDrivers.0"),
	wild(2, "records.plugin.environmentDrivers.0.driverKey", "daytona", "Daytona", "other"),
	wild(2, "records.plugin.environmentDrivers.0.kind", "sandbox_provider", "environment_driver", "Sandbox_provider"),

	wild(1, "records.worker.id", ids...),
	wild(3, "records.worker.tenantId", ids...),
	wild(3, "records.worker.pluginId", ids...),
	wild(1, "records.worker.url"),
	wild(1, "records.worker.revision", revisions...),

	wild(3, "records.control.duplexEnabled"),
	wild(3, "records.control.suspendedTenants", []any{"acme"}, []any{"globex", "acme"}, []any{"ACME", "acme "}, []any{"acme", nil},
		[]any{[]any{"acme"}}, []any{""}, []any{"a/b"}, obj{"acme": true}, "acme"),
	wild(1, "records.control.revision", revisions...),
	wild(1, "records.control.id", "lease-1"),

	wild(2, "records"),
	wild(2, "records.lease"),
	wild(2, "records.environment"),
	wild(3, "records.plugin"),
	wild(3, "records.worker"),
	wild(2, "records.control"),

	wild(3, "live"),
	wild(3, "live.id", ids...),
	wild(3, "live.pluginId", ids...),
	wild(3, "live.status", "starting", "stopping", "Running", "running "),
	wild(3, "live.generation", tokens...),
	wild(3, "live.supportedMethods", []any{"environmentExecute"}, []any{"environmentexecute"}, []any{nil}, []any{"environmentExecute", 1},
		[]any{"duplexChannelOpen", "duplexChannelWrite", "duplexChannelStop"}, "environmentExecute", obj{"environmentExecute": true}),
	wild(1, "live.revision", revisions...),
}

// requestGroups touch everything that is not a record.
var requestGroups = []group{
	put(2, "now", nows...),
	put(4, "phase", gone{}, nil, "open", "admit", "recheck", "", "Open", 7),
	put(4, "openedGeneration", gone{}, nil, "", "g4", "g3", "G4", "g4 ", 4),
	put(4, "workersEnabled", gone{}, nil, true, false, "true", 1),
	put(1, "stale", gone{}, nil, true, false, "false", 0),
	put(3, "method", "DELETE", "delete", "GET"),
	wild(1, "request.leaseId", ids...),
	wild(1, "request.capability", "rootShell", "duplexcommandstream", "duplexCommandStream ", "constructor", "allow"),
	wild(1, "request.environmentId", ids...),
	wild(1, "request.principal"),
	wild(1, "request.principal.tenantId", ids...),
	wild(2, "request.principal.expiresAt", times...),
	put(3, "request.principal.subject", gone{}, "banned", "Banned"),
	put(1, "request.principal.roles", gone{}, nil, []any{}, []any{"admin"}),
	eachCapability(4, "request.capability", func(c obj, capability string) { c.set("request.capability", capability) }),
}

const (
	nestedDeclarations = "records.plugin.environmentDrivers.0.sandboxCapabilities"
	drivers            = "records.plugin.environmentDrivers"
)

// jointGroups change what belongs together, or what no single field shows.
var jointGroups = []group{
	several(2, "family local", obj{"records.lease.pin": obj{"driver": "local"}, "records.lease.metadata": obj{"driver": "local"}}),
	several(2, "family ssh, strange pin", obj{
		"records.lease.pin":      obj{"driver": "ssh", "pluginId": "../x", "driverKey": "a b"},
		"records.lease.metadata": obj{"driver": "ssh", "pluginId": "other", "provider": "other", "driverKey": 7, "sandboxProviderPlugin": "../x"},
	}),
	several(1, "family ssh, a number for a plugin", obj{
		"records.lease.pin": obj{"driver": "ssh", "pluginId": 5}, "records.lease.metadata": obj{"sandboxProviderPlugin": 5},
	}),
	several(1, "family weird", obj{"records.lease.pin.driver": "weird", "records.lease.metadata.driver": "weird"}),
	several(4, "worker by the plugin's id", obj{
		"records.lease.pin.workerId": gone{}, "records.worker.id": "plg-a", "live.id": "plg-a",
	}),
	several(2, "worker by the plugin's id, null pinned", obj{
		"records.lease.pin.workerId": nil, "records.worker.id": "plg-a", "live.id": "plg-a",
	}),
	several(2, "another worker everywhere", obj{
		"records.lease.pin.workerId": "wrk-b", "records.worker.id": "wrk-b", "live.id": "wrk-b",
	}),
	several(2, "another plugin everywhere", obj{
		"records.lease.pin.pluginId": "plg-b", "records.lease.metadata.pluginId": "plg-b", "records.plugin.id": "plg-b",
		"records.worker.pluginId": "plg-b", "live.pluginId": "plg-b",
	}),
	several(3, "the plugin's own worker of another plugin", obj{"records.worker.pluginId": "plg-b", "live.pluginId": "plg-b"}),
	several(2, "another tenant everywhere", obj{
		"request.principal.tenantId": "globex", "records.lease.tenantId": "globex", "records.environment.tenantId": "globex",
	}),
	several(2, "records of the tenant's own", obj{"records.plugin.tenantId": "acme", "records.worker.tenantId": "acme"}),
	several(3, "no environment", obj{
		"request.environmentId": gone{}, "records.lease.environmentId": nil, "records.environment": nil,
	}),
	several(2, "a malformed environment that is not needed", obj{
		"request.environmentId": gone{}, "records.lease.environmentId": gone{}, "records.environment": "x",
	}),
	several(2, "a bad lease and no control", obj{"records.lease.revision": gone{}, "records.control": nil}),
	several(2, "no lease and a bad control", obj{"records.lease": nil, "records.control.revision": gone{}}),
	several(2, "longest ids", obj{
		"request.leaseId": long(128), "records.lease.id": long(128), "records.lease.pin.driverKey": long(512),
		"records.lease.metadata.provider": long(512), drivers + ".0.driverKey": long(512), "records.lease.providerLeaseId": long(512),
	}),
	several(1, "a lease under no key", obj{"request.leaseId": gone{}, "records.lease.id": gone{}}),
	several(1, "a lease under a strange key", obj{"request.leaseId": "a b", "records.lease.id": "a b"}),
	several(2, "no times", obj{
		"now": "2300-01-01T00:00:00Z", "records.lease.expiresAt": nil, "request.principal.expiresAt": nil,
	}),
	several(2, "times beyond 2262 that pass", obj{
		"now": "2300-01-01T00:00:00Z", "records.lease.expiresAt": "2300-01-01T00:00:00.000000001Z", "request.principal.expiresAt": "9999-12-31T23:59:59Z",
	}),
	several(2, "times beyond 2262 that do not", obj{
		"now": "2300-01-01T00:00:00.000000001Z", "records.lease.expiresAt": "2300-01-01T00:00:00Z", "request.principal.expiresAt": nil,
	}),
	several(2, "a credential that ends beyond 2262", obj{
		"now": "2400-01-01T00:00:00Z", "records.lease.expiresAt": nil, "request.principal.expiresAt": "2400-01-01T00:00:00Z",
	}),
	several(1, "times before 1677 that pass", obj{"now": "1500-01-01T00:00:00Z", "records.lease.expiresAt": "1500-01-01T00:00:01Z"}),
	several(1, "times before 1677 that do not", obj{
		"now": "1500-01-01T00:00:01Z", "records.lease.expiresAt": "1500-01-01T00:00:00Z", "request.principal.expiresAt": nil,
	}),
	several(1, "no provider, an empty one in the metadata", obj{"records.lease.provider": nil, "records.lease.metadata.provider": ""}),
	several(1, "no provider, a number in the metadata", obj{"records.lease.provider": nil, "records.lease.metadata.provider": 7}),
	several(1, "expiries that are no times, long ago", obj{
		"now": "0000-01-01T00:00:00Z", "records.lease.expiresAt": nil, "request.principal.expiresAt": "soon",
	}),
	several(6, "admit", obj{"phase": "admit", "openedGeneration": "g4"}),
	several(6, "recheck", obj{"phase": "recheck", "openedGeneration": "g4"}),
	several(4, "recheck, another generation", obj{"phase": "recheck", "openedGeneration": "g3"}),
	several(3, "admit, the generation moved", obj{"phase": "admit", "openedGeneration": "g4", "live.generation": "g5"}),
	several(2, "two reasons of the team", obj{"method": "DELETE", "request.principal.subject": "banned"}),
	several(3, "provider from the metadata", obj{"records.lease.provider": nil}),
	several(2, "built-in provider from the metadata", obj{
		"records.lease.provider": gone{}, "records.lease.metadata.provider": "local", "records.lease.pin.driverKey": "local", drivers + ".0.driverKey": "local",
	}),
	several(2, "an empty plugin key is no name", obj{
		"records.plugin.pluginKey": "", "records.lease.metadata.sandboxProviderPlugin": "",
	}),
	several(2, "flag by the key of another tenant's plugin", obj{
		"records.plugin.tenantId": "globex", "records.lease.metadata.sandboxProviderPlugin": "acme.daytona",
	}),
	several(2, "flag by the key of a plugin that is gone", obj{
		"records.plugin": nil, "records.lease.metadata.sandboxProviderPlugin": "acme.daytona",
	}),
}

// capabilityGroups touch what removes some capabilities and leaves others.
var capabilityGroups = forEach(
	wild(3, "records.lease.leasePolicy", "ephemeral", "reuse_by_execution_workspace", "retain_on_failure", "Reuse_By_Environment"),
	wild(3, "records.lease.configResolution", "failed", "OK", "ok ", "pending"),
	wild(2, "records.lease.capabilities"),
	wild(3, "records.lease.metadata.nativeFileSyncUnsupported", "false", raw("1.0")),
	wild(3, "records.lease.metadata.backend", "job", "Job", "pod"),
	wild(3, "records.lease.metadata.providerMetadata"),
	wild(3, "records.lease.metadata.providerMetadata",
		obj{"backend": "job"}, obj{"backend": "Job"}, obj{"backend": ""}, obj{"backend": nil}, obj{"backend": 7}, obj{"backend": true},
		obj{"nativeFileSyncUnsupported": true}, obj{"nativeFileSyncUnsupported": false}, obj{"nativeFileSyncUnsupported": nil},
		obj{"nativeFileSyncUnsupported": "true"}, obj{"nativeFileSyncUnsupported": 1}, obj{"nativeFileSyncUnsupported": obj{}},
		obj{"backend": "pod", "nativeFileSyncUnsupported": true}, obj{"Backend": "job"}, obj{"providerMetadata": obj{"backend": "job"}}),
	wild(3, "records.plugin.environmentDrivers.0.sandboxCapabilities"),
	wild(3, "records.plugin.environmentDrivers.0.supportsReusableLeases"),

	own(6, "records.lease.capabilities", anything...),
	own(6, nestedDeclarations, anything...),
	eachCapability(2, "not opted in", func(c obj, capability string) { c.set("records.lease.capabilities."+capability, false) }),
	eachCapability(2, "not declared", func(c obj, capability string) { c.set(nestedDeclarations+"."+capability, gone{}) }),
	several(4, "family plugin", obj{
		"records.lease.pin.driver": "plugin", "records.lease.metadata.driver": "plugin", drivers + ".0.kind": "environment_driver",
	}),
	several(4, "family plugin, bare metadata", obj{
		"records.lease.pin.driver": "plugin", "records.lease.metadata": obj{"driverKey": "daytona"}, drivers + ".0.kind": "environment_driver",
	}),
	several(2, "job backend beside a bad nested one", obj{
		"records.lease.metadata.backend": "job", "records.lease.metadata.providerMetadata": obj{"backend": 1},
	}),
	several(2, "the legacy flag says no, nothing nested", obj{drivers + ".0.supportsReusableLeases": false, nestedDeclarations + ".reusableLeases": nil}),
	several(2, "the legacy flag says yes, nothing nested", obj{drivers + ".0.supportsReusableLeases": true, nestedDeclarations + ".reusableLeases": nil}),
	several(2, "the legacy flag is a word, nothing nested", obj{drivers + ".0.supportsReusableLeases": "yes", drivers + ".0.sandboxCapabilities": nil}),
	several(2, "the legacy flag is a word, the nested says no", obj{drivers + ".0.supportsReusableLeases": "yes", nestedDeclarations + ".reusableLeases": false}),
	put(3, drivers,
		[]any{entry("daytona", "sandbox_provider")},
		[]any{entry("daytona", "environment_driver")},
		[]any{entry("daytona", "sandbox_provider"), entry("daytona", "sandbox_provider")},
		[]any{entry("daytona", "sandbox_provider"), entry("daytona", "environment_driver")},
		[]any{entry("other", "sandbox_provider"), entry("daytona", "sandbox_provider")},
		[]any{entry("other", "sandbox_provider")},
		[]any{entry("daytona", "sandbox_provider"), nil},
		[]any{entry("daytona", "sandbox_provider"), obj{"driverKey": "x"}},
		[]any{entry("daytona", "sandbox_provider"), obj{"driverKey": 1, "kind": "sandbox_provider"}},
		[]any{entry("", "")}),
	removeMethods(6),
)

// bareGroups damage a pin that no metadata contradicts.
var bareGroups = []group{
	bare("driver", "plugin", "local", "ssh", "weird", "Sandbox"),
	bare("pluginId", ids...),
	bare("driverKey", tokens...),
	bare("workerId", ids...),
}

// wordGroups keep every record well-formed, so that mixtures reach the late
// gates.
var wordGroups = []group{
	put(1, "stale", true),
	put(1, "records.control.duplexEnabled", false, gone{}, "true"),
	put(1, "records.control.suspendedTenants", []any{"acme"}, []any{}, nil),
	put(1, "records.lease.status", "released", "pending_cleanup", "Active"),
	put(1, "records.environment", nil),
	put(1, "records.environment.status", "archived"),
	put(1, "records.environment.tenantId", "globex"),
	put(1, "records.lease.pin.pluginId", gone{}, "", "plg-b"),
	put(1, "records.lease.metadata.pluginId", gone{}, "plg-b", ""),
	put(1, "records.lease.metadata.backend", "job", true),
	put(2, "records.lease.metadata.sandboxProviderPlugin", gone{}, nil, false, "plg-a", "acme.daytona", "yes"),
	put(2, "workersEnabled", false),
	put(2, "records.lease.providerLeaseId", gone{}, nil, ""),
	put(1, "records.plugin", nil),
	put(1, "records.plugin.tenantId", "globex", "acme"),
	put(1, "records.plugin.status", "disabled", "READY"),
	put(1, drivers+".0.kind", "environment_driver", "other"),
	put(2, drivers+".0.supportsReusableLeases", true, false, nil, "yes"),
	put(2, nestedDeclarations, gone{}, nil, obj{}, []any{}),
	put(2, "records.lease.capabilities", gone{}, nil, obj{}),
	put(2, "records.lease.configResolution", "failed", "", nil),
	put(2, "records.lease.leasePolicy", "ephemeral", gone{}),
	put(1, "records.worker", nil, "x"),
	put(1, "records.worker.tenantId", "globex", "acme"),
	put(1, "records.worker.pluginId", "plg-b"),
	put(1, "live", nil),
	put(1, "live.id", "wrk-b", "plg-a"),
	put(1, "live.pluginId", "plg-b"),
	put(1, "live.status", "starting"),
	put(2, "live.supportedMethods", gone{}, []any{}, []any{"environmentExecute"}),
}

// holders are the values that are decoded strictly.
var holders = []string{"records.lease", "records.environment", "records.plugin", "records.worker", "records.control", "live"}

// texts are values that a strict decoder takes or refuses by their text alone.
var texts = []any{
	raw(`{"a":1,"a":2}`), raw(`{"a":1,"\u0061":2}`), raw(`[{"b":{"a":[],"c":0,"a":[]}}]`), raw(`{"":0,"":0}`), raw(`{"\/":0,"/":0}`),
	raw(`{"a":1,"A":2}`), raw(`{"a":{"a":1}}`), raw(`[{"a":1},{"a":1}]`), raw(`{"\ud83d\ude00":1,"😀":2}`), raw(`{"é":1,"e\u0301":2}`),
	raw(`"\ud800"`), raw(`"\udc00"`), raw(`"\udc00\ud800"`), raw(`"\ud800\u0041"`), raw(`"\uD800\\uDC00"`), raw(`"\ud800\ud800\udc00"`),
	raw(`"\ud83d\ude00"`), raw(`"\uFFFD"`), raw(`"�"`), raw(`"\\ud800"`), raw(`"\u0000"`), raw(`{"\ud800":1}`), raw(`{"\udfff":{}}`),
	raw("\"\xff\""), raw("\"\xed\xa0\x80\""), raw("\"\xc0\xaf\""), raw("\"\xf4\x90\x80\x80\""), raw("\"\xe2\x82\""), raw("{\"\xff\":1}"),
	raw(`1e999`), raw(`-0`), raw(`-0.0`), raw(`1E+2`), raw(`123456789012345678901234567890.5`), raw(`[ 1 ,	2 ]`), raw(` { "a" : null } `),
	nested("[", "]", 30), nested("[", "]", 31), nested("[", "]", 32), nested(`{"a":`, `}`, 31), nested(`{"a":`, `}`, 32), nested("[", "]", 200),
	nested(`[{"a":`, `}]`, 15), nested(`[{"a":`, `}]`, 16),
}

// textGroups damage the text of what is decoded strictly.
func textGroups() []group {
	var groups []group
	for _, holder := range holders {
		groups = append(groups,
			put(1, holder+".unknown", texts...),
			put(1, holder+`."id"`, nil, "lease-1"),
			put(1, holder+`."\u0072evision"`, nil, 1),
			put(1, holder+`."stat\u0075s"`, "active", "released"),
			put(1, holder+`."\ud800"`, 1),
		)
		groups = append(groups, misspelt(holder))
	}
	return append(groups,
		put(1, "records.lease.metadata.unknown", texts...),
		put(1, "records.lease.pin.unknown", texts...),
		put(1, nestedDeclarations+".unknown", texts...),
		put(1, "records.lease.pin.driver", raw(`"sandbo\u0078"`), raw(`"sandbox\ud800"`), raw("\"sandbox\xff\"")),
		put(1, "records.lease.id", raw(`"lease\u002d1"`), raw(`"lease-1\u0000"`)),
		put(1, `records.lease.metadata."driver"`, "sandbox"),
		misspelt("records.lease.pin"), misspelt("records.lease.metadata"), misspelt("request.principal"), misspelt("request"),
	)
}
