package main

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// judge holds the values against what they mean. It goes through everything,
// so that one run names every fault.
func (l *loader) judge() {
	l.judgeSupport()
	l.judgeListen()
	l.judgeListeners()
	l.judgePolicies()
	l.judgeStore()
	l.judgeWorkers()
	l.judgeIdentity()
	l.judgeRoutes()
	l.judgeChannels()
	l.judgeTelemetry()
}

// judgeSupport refuses what the configuration knows and this version cannot
// do. Ignoring it would leave an operator believing in a check that does not
// happen.
func (l *loader) judgeSupport() {
	c := l.config
	for _, part := range []struct {
		path string
		used bool
	}{
		{"extauthz.address", c.ExtAuthz.Address != ""},
		{"forward_auth.address", c.ForwardAuth.Address != ""},
		{"opa", len(c.OPA) > 0},
		{"policies.max_age", c.Policies.MaxAge > 0},
		{"identity.jwt", len(c.Identity.JWT) > 0},
		{"identity.mtls", c.Identity.MTLS != MTLSConfig{}},
	} {
		if part.used {
			l.wrong(part.path, "not supported by this version; leave it out")
		}
	}
}

var (
	packageName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)
	recordField = regexp.MustCompile(`^(lease|environment|plugin|worker|control)\.[A-Za-z_][A-Za-z0-9_-]{0,127}$`)
)

func (l *loader) judgePolicies() {
	c := &l.config.Policies
	if c.Replace && c.Path == "" {
		l.wrong("policies.replace", "takes the shipped packages away and policies.path brings none; set policies.path")
	}
	for i, name := range c.Required {
		if !packageName.MatchString(name) {
			l.wrong(index("policies.required", i), "%q is not the name of a package such as sluice.custom", name)
		}
	}
	for i, field := range c.ExtraFields {
		if !recordField.MatchString(field) {
			l.wrong(index("policies.extra_fields", i), "%q is not a field of a record such as lease.region", field)
		}
	}
	if c.MaxAge < 0 {
		l.wrong("policies.max_age", "%s is negative; 0s is no limit", c.MaxAge)
	}
	l.positive("evaluation.timeout", l.config.Evaluation.Timeout)
}

func (l *loader) judgeStore() {
	c := &l.config.Store
	l.oneOf("store.type", c.Type, "file", "redis")
	if c.Type == "file" && c.File.Dir == "" {
		l.wrong("store.file.dir", "is empty; name the directory that holds the records")
	}
	if len(c.Redis.Addresses) == 0 {
		l.wrong("store.redis.addresses", "is empty; name the server as host:port")
	}
	for i, address := range c.Redis.Addresses {
		if host, port, ok := splitAddress(address); !ok || host == "" || port == 0 {
			l.wrong(index("store.redis.addresses", i), "%q is not host:port, such as 127.0.0.1:6379", withoutUser(address))
		}
	}
	if name := c.Redis.MasterName; name != "" && !printable(name, 128) {
		l.wrong("store.redis.master_name", "must be at most 128 visible ASCII characters")
	}
	// An empty prefix would watch, and trust, every key of the server.
	if !printable(c.Redis.KeyPrefix, 128) {
		l.wrong("store.redis.key_prefix", "must be 1 to 128 visible ASCII characters")
	}
	tls := c.Redis.TLS
	l.bothOrNeither("store.redis.tls", tls.CertFile, tls.KeyFile)
	if !tls.Enabled && (tls.CAFile != "" || tls.CertFile != "") {
		l.wrong("store.redis.tls.enabled", "is false and files for TLS are named; set it to true or leave them out")
	}
	l.positive("store.max_age", c.MaxAge)
	l.judgeVerify(c.Verify)
}

func (l *loader) judgeVerify(c VerifyConfig) {
	if c.Required && c.KeysFile == "" {
		l.wrong("store.verify.required", "is true and no key is known, so every record would be malformed; name the keys in store.verify.keys_file")
	}
	if c.MaxLife < time.Second {
		l.wrong("store.verify.max_life", "%s would let no record through, for they are signed for whole seconds; it must be 1s or longer", c.MaxLife)
	}
}

func (l *loader) judgeIdentity() {
	for i, origin := range l.config.Identity.AllowedOrigins {
		if !isOrigin(origin) {
			l.wrong(index("identity.allowed_origins", i), "%q is not an exact origin such as https://console.example.com", origin)
		}
	}
}

// isOrigin takes what a browser sends: scheme and host in lower case, a port
// only where it is not the scheme's own, and nothing behind it.
func isOrigin(origin string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme == "" || u.Scheme+"://"+u.Host != origin {
		return false
	}
	port := u.Port()
	return origin == strings.ToLower(origin) && isHost(u.Host) &&
		(u.Scheme != "https" || port != "443") && (u.Scheme != "http" || port != "80")
}

func (l *loader) judgeChannels() {
	c := &l.config.Channels
	l.positive("channels.revocation_bound", c.RevocationBound)
	l.positive("channels.recheck_interval", c.RecheckInterval)
	l.positive("channels.idle_timeout", c.IdleTimeout)
	l.positive("channels.max_lifetime", c.MaxLifetime)
	l.positive("channels.drain_timeout", c.DrainTimeout)
	l.positive("channels.close_grace", c.CloseGrace)
	for _, limit := range []struct {
		path string
		n    int
	}{
		{"channels.max_open", c.MaxOpen},
		{"channels.max_per_lease", c.MaxPerLease},
		{"channels.max_per_tenant", c.MaxPerTenant},
		{"channels.open_rate_per_caller", c.OpenRatePerCaller},
	} {
		if limit.n < 1 {
			l.wrong(limit.path, "%d would refuse everything, and no limit is not offered; it must be 1 or more", limit.n)
		}
	}
	switch {
	case c.DrainDelay < 0:
		l.wrong("channels.drain_delay", "%s is negative", c.DrainDelay)
	case c.DrainDelay >= c.DrainTimeout:
		l.wrong("channels.drain_delay", "%s leaves nothing of drain_timeout (%s) for ending channels; it must be shorter", c.DrainDelay, c.DrainTimeout)
	}
}

func (l *loader) judgeTelemetry() {
	c := &l.config.Telemetry
	if !printable(c.ServiceName, 255) {
		l.wrong("telemetry.service_name", "must be 1 to 255 visible ASCII characters")
	}
	if endpoint := c.Traces.OTLPEndpoint; endpoint != "" {
		u, err := url.Parse(endpoint)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil {
			l.wrong("telemetry.traces.otlp_endpoint", "is not a URL such as http://127.0.0.1:4318")
		}
	}
	l.oneOf("telemetry.log.level", c.Log.Level, "debug", "info", "warn", "error")
	l.oneOf("telemetry.log.format", c.Log.Format, "json", "text")
}

// positive refuses zero too: it would be read as "no limit".
func (l *loader) positive(path string, d time.Duration) {
	if d <= 0 {
		l.wrong(path, "%s would be no limit, which is not offered; it must be longer than 0s", d)
	}
}

func (l *loader) oneOf(path, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		l.wrong(path, "%q is none of %s", value, strings.Join(allowed, ", "))
	}
}

func (l *loader) bothOrNeither(path, cert, key string) {
	if (cert == "") != (key == "") {
		l.wrong(path, "cert_file and key_file go together; set both or neither")
	}
}

func printable(s string, longest int) bool {
	return s != "" && len(s) <= longest && strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// withoutUser hides what stands before the host of an address: it may be a
// password.
func withoutUser(address string) string {
	if i := strings.LastIndexByte(address, '@'); i >= 0 {
		return "…" + address[i:]
	}
	return address
}
