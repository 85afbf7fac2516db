package pdp_test

import "slices"

// verdict is the answer to a case, as `gateway eval` writes it.
type verdict struct {
	Allow     bool     `json:"allow"`
	Code      string   `json:"code"`
	Reason    string   `json:"reason"`
	Reasons   []string `json:"reasons"`
	Status    int      `json:"status"`
	Retryable bool     `json:"retryable"`
	Message   string   `json:"message"`
}

// words is the table of decision.md section 5.
var words = map[string]verdict{
	"DUPLEX_CHANNEL_CAPABILITY_DENIED": {Status: 403, Message: "Sandbox lease does not grant the duplex command stream capability."},
	"DUPLEX_CHANNEL_UNSUPPORTED":       {Status: 403, Message: "Sandbox driver does not support duplex channels for this lease."},
	"SANDBOX_CAPABILITY_DENIED":        {Status: 403, Message: "Sandbox lease does not grant the requested capability."},
	"UNAUTHENTICATED":                  {Status: 401, Message: "Authentication is required."},
	"CREDENTIAL_EXPIRED":               {Status: 401, Message: "The credential has expired."},
	"WORKER_UNAVAILABLE":               {Status: 503, Retryable: true, Message: "The sandbox worker is not available."},
	"AUTHORIZATION_UNAVAILABLE":        {Status: 503, Retryable: true, Message: "The request could not be authorized right now."},
}

// The codes that depend on the capability (decision.md section 4).
const (
	capabilityCode = "*capability*"
	supportCode    = "*support*"
)

const duplex = "duplexCommandStream"

// trait is one row of the capability table (decision.md section 3).
type trait struct {
	optIn               bool
	methods             [][]string // all groups, any one of a group
	families            []string
	configFailureTakes  bool
	noNativeSyncTakes   bool
	reusePolicyRequired bool
}

func all(methods ...string) [][]string {
	var groups [][]string
	for _, m := range methods {
		groups = append(groups, []string{m})
	}
	return groups
}

var both = []string{"sandbox", "plugin"}

var traits = map[string]trait{
	"reusableLeases": {
		methods:  all("environmentResumeLease", "environmentReleaseLease", "environmentDestroyLease"),
		families: both, reusePolicyRequired: true,
	},
	"nativeSyncIn":              {methods: all("environmentSyncIn"), families: both, noNativeSyncTakes: true},
	"nativeSyncOut":             {methods: all("environmentSyncOut"), families: both, noNativeSyncTakes: true},
	"persistentProcessSessions": {methods: all("environmentExecute"), families: both, configFailureTakes: true},
	"independentControlCommands": {
		methods: all("environmentExecute"), families: both,
	},
	"incrementalSessionOutput": {
		optIn: true, methods: all("environmentExecute"), families: both, configFailureTakes: true,
	},
	"concurrentSyncOperations": {
		optIn: true, methods: all("environmentSyncIn", "environmentSyncOut"), families: both, noNativeSyncTakes: true,
	},
	duplex: {
		optIn:    true,
		methods:  all("duplexChannelOpen", "duplexChannelWrite", "duplexChannelStop", "duplexChannelClose"),
		families: []string{"sandbox"}, configFailureTakes: true,
	},
	"runnerWebSocketIngress": {optIn: true, methods: all("environmentRunnerIngressEndpoint"), families: both},
}

// gate is one row of the table of decision.md section 4. Its test may count on
// every earlier gate having passed.
type gate struct {
	number int
	reason string
	code   string
	fails  func(*facts) bool
}

// gates are in the page's order.
var gates = []gate{
	{1, "UNAUTHENTICATED", "UNAUTHENTICATED", func(f *facts) bool { return !f.principal.is(object) }},
	{2, "CREDENTIAL_EXPIRED", "CREDENTIAL_EXPIRED", func(f *facts) bool { return f.expired(f.principal.at("expiresAt")) }},
	{3, "CAPABILITY_UNKNOWN", "SANDBOX_CAPABILITY_DENIED", func(f *facts) bool { _, known := traits[f.capability]; return !known }},

	{4, "SNAPSHOT_STALE", "AUTHORIZATION_UNAVAILABLE", func(f *facts) bool { return f.stale }},
	{5, "SNAPSHOT_MISSING", capabilityCode, func(f *facts) bool { return f.missing("lease", f.lease) || f.missing("control", f.control) }},
	{6, "RECORD_MALFORMED", capabilityCode, func(f *facts) bool { return len(f.malformed) > 0 }},

	{7, "TENANT_MISMATCH", capabilityCode, func(f *facts) bool { return !f.principal.at("tenantId").says(f.tenant()) }},
	{8, "ENVIRONMENT_MISMATCH", capabilityCode, func(f *facts) bool {
		return f.environmentID.set() && !same(f.environmentID, f.lease.at("environmentId"))
	}},
	{9, "LEASE_EXPIRED", capabilityCode, func(f *facts) bool { return f.expired(f.lease.at("expiresAt")) }},

	{10, "KILL_SWITCH", capabilityCode, func(f *facts) bool { return f.duplex() && !f.control.at("duplexEnabled").isTrue() }},
	{11, "TENANT_SUSPENDED", capabilityCode, func(f *facts) bool {
		return has(f.control.at("suspendedTenants"), f.tenant())
	}},
	{12, "LEASE_NOT_ACTIVE", capabilityCode, func(f *facts) bool { return !f.lease.at("status").says("active") }},
	{13, "ENVIRONMENT_NOT_ACTIVE", capabilityCode, (*facts).environmentNotActive},

	{14, "IDENTITY_CONFLICT", capabilityCode, func(f *facts) bool { return f.pinIncomplete() || f.metadataRenames() }},
	{15, "METADATA_MALFORMED", capabilityCode, func(f *facts) bool { return f.flagMalformed() || f.metadataMalformed() || f.optInMalformed() }},

	{16, "DRIVER_UNSUPPORTED", supportCode, func(f *facts) bool { return !slices.Contains(f.trait().families, f.family()) }},
	{17, "LEASE_NOT_PLUGIN_BACKED", supportCode, func(f *facts) bool {
		flag := f.metadata("sandboxProviderPlugin")
		return f.duplex() && (!flag.set() || flag.isFalse())
	}},
	{18, "WORKERS_DISABLED", supportCode, func(f *facts) bool { return f.duplex() && !f.workersEnabled }},
	{19, "LEASE_IDENTITY_INCOMPLETE", supportCode, func(f *facts) bool {
		id := f.lease.at("providerLeaseId")
		return f.duplex() && (!id.set() || id.says(""))
	}},

	{20, "PLUGIN_NOT_FOUND", capabilityCode, func(f *facts) bool { return !f.plugin.set() || f.foreign(f.plugin) }},
	{21, "PLUGIN_NOT_READY", capabilityCode, func(f *facts) bool { return !f.plugin.at("status").says("ready") }},
	{22, "DRIVER_DECLARATION_MISSING", capabilityCode, func(f *facts) bool { return len(f.entries()) == 0 }},
	{23, "DECLARATION_MALFORMED", capabilityCode, func(f *facts) bool { return len(f.entries()) > 1 || f.declarationMalformed() }},

	{24, "CAPABILITY_NOT_DECLARED", capabilityCode, func(f *facts) bool { return !f.declared() }},
	{25, "LEASE_NOT_OPTED_IN", capabilityCode, func(f *facts) bool { return f.trait().optIn && !f.optIn().isTrue() }},
	{26, "CONFIG_RESOLUTION_FAILED", capabilityCode, func(f *facts) bool {
		resolution := f.lease.at("configResolution")
		return f.trait().configFailureTakes && resolution.set() && !resolution.says("ok")
	}},
	{27, "NARROWED", capabilityCode, (*facts).narrowed},

	{28, "CUSTOM_DENY", capabilityCode, func(f *facts) bool { return len(f.custom()) > 0 }},

	{29, "WORKER_UNAVAILABLE", "WORKER_UNAVAILABLE", (*facts).workerUnavailable},
	{30, "WORKER_CHANGED", "WORKER_UNAVAILABLE", func(f *facts) bool {
		return !same(f.worker.at("pluginId"), f.pin("pluginId")) || !same(f.live.at("pluginId"), f.pin("pluginId"))
	}},
	{31, "METHOD_NOT_VERIFIED", capabilityCode, func(f *facts) bool { return !f.verified() }},
	{32, "WORKER_CHANGED", "WORKER_UNAVAILABLE", func(f *facts) bool {
		return f.laterPhase() && !same(f.live.at("generation"), f.opened)
	}},
}

// judge walks the gates and stops at the first that fails. It returns that
// gate's number too, 0 when every gate passes.
func judge(f *facts) (verdict, int) {
	for _, g := range gates {
		if !g.fails(f) {
			continue
		}
		code := f.code(g.code)
		v := words[code]
		v.Code, v.Reason, v.Reasons = code, g.reason, []string{g.reason}
		if g.reason == "CUSTOM_DENY" {
			v.Reasons = append(v.Reasons, f.custom()...)
		}
		return v, g.number
	}
	return verdict{Allow: true, Code: "ALLOW", Reason: "ALLOW", Reasons: []string{}, Status: 200}, 0
}

// code resolves the two codes that the capability decides.
func (f *facts) code(code string) string {
	switch {
	case code == supportCode && f.duplex():
		return "DUPLEX_CHANNEL_UNSUPPORTED"
	case code == capabilityCode && f.duplex():
		return "DUPLEX_CHANNEL_CAPABILITY_DENIED"
	case code == supportCode || code == capabilityCode:
		return "SANDBOX_CAPABILITY_DENIED"
	}
	return code
}

func (f *facts) duplex() bool                    { return f.capability == duplex }
func (f *facts) trait() trait                    { return traits[f.capability] }
func (f *facts) tenant() string                  { return f.lease.at("tenantId").str }
func (f *facts) pin(field string) *node          { return f.lease.at("pin", field) }
func (f *facts) metadata(fields ...string) *node { return f.lease.at("metadata").at(fields...) }
func (f *facts) optIn() *node                    { return f.lease.at("capabilities", f.capability) }
func (f *facts) missing(name string, r *node) bool {
	return !r.set() && !slices.Contains(f.malformed, name)
}

// family is the lease's driver family; gate 14 made sure that it is a string.
func (f *facts) family() string { return f.pin("driver").str }

// inPluginFamily says whether the family is one that a plugin drives.
func (f *facts) inPluginFamily() bool { return slices.Contains(both, f.family()) }

// expired says whether a time is set and not after now; what is no time is not
// after now.
func (f *facts) expired(at *node) bool {
	t, ok := parseTime(at)
	return at.set() && (!ok || !t.After(f.now))
}

// foreign says whether a plugin or worker belongs to another tenant.
func (f *facts) foreign(record *node) bool {
	return record.at("tenantId").set() && !record.at("tenantId").says(f.tenant())
}

// same says whether two values are the same string.
func same(a, b *node) bool { return a.is(text) && b.is(text) && a.str == b.str }

// has says whether a list holds the string s.
func has(l *node, s string) bool {
	return l.is(list) && slices.ContainsFunc(l.items, func(n *node) bool { return n.says(s) })
}

func (f *facts) environmentNotActive() bool {
	if !f.lease.at("environmentId").set() {
		return false
	}
	e := f.environment
	return !e.set() || !e.at("status").says("active") || !e.at("tenantId").says(f.tenant())
}

func (f *facts) pinIncomplete() bool {
	switch {
	case !isNonEmptyString(f.pin("driver")):
		return true
	case f.inPluginFamily() && (!isID(f.pin("pluginId")) || !isToken(f.pin("driverKey"))):
		return true
	}
	return f.pin("workerId").set() && !isID(f.pin("workerId"))
}

// metadataRenames says whether the provider-writable metadata names another
// identity than the pin.
func (f *facts) metadataRenames() bool {
	differs := func(name *node, pinned string) bool { return name.set() && !same(name, f.pin(pinned)) }
	switch {
	case differs(f.metadata("driver"), "driver"):
		return true
	case f.family() == "sandbox":
		return differs(f.metadata("pluginId"), "pluginId") || differs(f.metadata("provider"), "driverKey")
	case f.family() == "plugin":
		return differs(f.metadata("pluginId"), "pluginId") || differs(f.metadata("driverKey"), "driverKey")
	}
	return false
}

func (f *facts) flagMalformed() bool {
	flag := f.metadata("sandboxProviderPlugin")
	if !flag.set() || flag.is(boolean) {
		return false
	}
	namesPlugin := isID(flag) && same(flag, f.pin("pluginId"))
	namesKey := isNonEmptyString(flag) && same(flag, f.plugin.at("pluginKey"))
	return !namesPlugin && !namesKey
}

func (f *facts) metadataMalformed() bool {
	nested := f.metadata("providerMetadata")
	if nested.set() && !nested.is(object) {
		return true
	}
	for _, m := range []*node{f.metadata(), nested} {
		unsupported, backend := m.at("nativeFileSyncUnsupported"), m.at("backend")
		if unsupported.set() && !unsupported.is(boolean) || backend.set() && !backend.is(text) {
			return true
		}
	}
	return false
}

func (f *facts) optInMalformed() bool { return f.optIn().set() && !f.optIn().is(boolean) }

// entries are the plugin's declarations of the pinned driver.
func (f *facts) entries() []*node {
	kinds := map[string]string{"sandbox": "sandbox_provider", "plugin": "environment_driver"}
	var found []*node
	if drivers := f.plugin.at("environmentDrivers"); drivers.is(list) {
		for _, d := range drivers.items {
			if same(d.at("driverKey"), f.pin("driverKey")) && d.at("kind").says(kinds[f.family()]) {
				found = append(found, d)
			}
		}
	}
	return found
}

func (f *facts) declarationMalformed() bool {
	entry := f.entries()[0]
	nested := entry.at("sandboxCapabilities")
	value, legacy := nested.at(f.capability), entry.at("supportsReusableLeases")
	switch {
	case nested.set() && !nested.is(object):
		return true
	case value.set():
		return !value.is(boolean)
	}
	return f.capability == "reusableLeases" && legacy.set() && !legacy.is(boolean)
}

func (f *facts) declared() bool {
	entry := f.entries()[0]
	value := entry.at("sandboxCapabilities", f.capability)
	if f.capability == "reusableLeases" && !value.set() {
		value = entry.at("supportsReusableLeases")
	}
	if !value.set() {
		return !f.trait().optIn
	}
	return value.isTrue()
}

func (f *facts) narrowed() bool {
	t := f.trait()
	switch {
	case t.reusePolicyRequired && !f.lease.at("leasePolicy").says("reuse_by_environment"):
		return true
	case t.noNativeSyncTakes && f.noNativeSync():
		return true
	}
	return !t.optIn && f.optIn().isFalse()
}

func (f *facts) noNativeSync() bool {
	for _, m := range []*node{f.metadata(), f.metadata("providerMetadata")} {
		if m.at("backend").says("job") || m.at("nativeFileSyncUnsupported").isTrue() {
			return true
		}
	}
	return false
}

// custom is what customRules deny, in Go.
func (f *facts) custom() []string {
	var reasons []string
	if f.principal.at("subject").says("banned") {
		reasons = append(reasons, "subject is banned")
	}
	if f.method.says("DELETE") {
		reasons = append(reasons, "no deletes")
	}
	slices.Sort(reasons)
	return reasons
}

func (f *facts) workerUnavailable() bool {
	switch {
	case !f.workersEnabled || !f.worker.set() || f.foreign(f.worker):
		return true
	case !f.live.set() || !same(f.live.at("id"), f.leaseWorker()):
		return true
	}
	return !f.live.at("status").says("running")
}

func (f *facts) verified() bool {
	offered := func(method string) bool { return has(f.live.at("supportedMethods"), method) }
	for _, group := range f.trait().methods {
		if !slices.ContainsFunc(group, offered) {
			return false
		}
	}
	return true
}

// laterPhase says whether the channel was opened before this decision. What is
// not plainly open is judged as strictly as a recheck.
func (f *facts) laterPhase() bool { return f.phase.set() && !f.phase.says("open") }

// teardown is the answer of decision.md section 7.
type teardown struct {
	Ready  bool   `json:"ready"`
	Reason string `json:"reason"`
}

var teardownReasons = []string{
	"NO_PROVIDER", "BUILTIN_PROVIDER", "WORKERS_DISABLED", "PLUGIN_NOT_FOUND", "PLUGIN_NOT_READY", "WORKER_UNAVAILABLE", "WORKER_RUNNING",
}

func judgeTeardown(f *facts) teardown {
	provider := f.lease.at("provider")
	if !provider.set() {
		provider = f.metadata("provider")
	}
	switch {
	case !f.lease.set() || !isNonEmptyString(provider):
		return teardown{true, "NO_PROVIDER"}
	case slices.Contains([]string{"fake", "local", "ssh"}, provider.str):
		return teardown{true, "BUILTIN_PROVIDER"}
	case !f.workersEnabled:
		return teardown{true, "WORKERS_DISABLED"}
	case !f.plugin.set():
		return teardown{false, "PLUGIN_NOT_FOUND"}
	case !f.plugin.at("status").says("ready"):
		return teardown{false, "PLUGIN_NOT_READY"}
	case !f.live.set() || !same(f.live.at("id"), f.leaseWorker()) || !f.live.at("status").says("running"):
		return teardown{false, "WORKER_UNAVAILABLE"}
	}
	return teardown{true, "WORKER_RUNNING"}
}
