package main

import (
	"fmt"
	"sluice/internal/authz"
	"time"
)

// Config is the whole configuration: what the file, the overrides and the
// defaults come to. It is read once by Load, is complete and has been judged,
// and is never changed afterwards; a reload makes another one.
//
// Paths of files and directories are absolute, or relative to the working
// directory when there is no configuration file; in the file they may be
// relative to the directory that the file is in.
type Config struct {
	StateDir    string           `yaml:"state_dir" path:"y"` // revision marks, generated admin token; "" keeps nothing across a restart
	Listen      ListenConfig     `yaml:"listen"`
	Probes      ProbesConfig     `yaml:"probes"`
	Admin       AdminConfig      `yaml:"admin"`
	ExtAuthz    AddressConfig    `yaml:"extauthz"`     // not supported yet: must be empty
	ForwardAuth AddressConfig    `yaml:"forward_auth"` // not supported yet: must be empty
	Policies    PoliciesConfig   `yaml:"policies"`
	OPA         map[string]any   `yaml:"opa"` // not supported yet: must be empty
	Store       StoreConfig      `yaml:"store"`
	Workers     WorkersConfig    `yaml:"workers"`
	Identity    IdentityConfig   `yaml:"identity"`
	Routes      []RouteConfig    `yaml:"routes"`
	Channels    ChannelsConfig   `yaml:"channels"`
	Evaluation  EvaluationConfig `yaml:"evaluation"`
	Telemetry   TelemetryConfig  `yaml:"telemetry"`

	File  string // where it was read from; "" for the embedded defaults
	stamp stamp  // of the file, as it was read

	place func(path string) ConfigFault // of a value; nil: nobody knows
}

// fault is one of the value at path, at its place.
func (c *Config) fault(path, format string, args ...any) ConfigFault {
	f := ConfigFault{Source: c.File, Path: path}
	if c.place != nil {
		f = c.place(path)
	}
	f.Message = fmt.Sprintf(format, args...)
	return f
}

// ListenConfig is the data plane's listener.
type ListenConfig struct {
	Address        string          `yaml:"address"` // host:port
	TLS            ServerTLSConfig `yaml:"tls"`
	AllowedHosts   []string        `yaml:"allowed_hosts"`   // empty: any Host; else others get 421
	TrustedProxies []CIDR          `yaml:"trusted_proxies"` // whose X-Forwarded-* are believed; empty: nobody's
	MaxHeaderBytes Size            `yaml:"max_header_bytes"`
	HeaderTimeout  time.Duration   `yaml:"header_timeout"`
}

// ServerTLSConfig names PEM files; without a certificate the listener speaks
// plain HTTP/1.1 and h2c.
type ServerTLSConfig struct {
	CertFile     string `yaml:"cert_file" path:"y"`
	KeyFile      string `yaml:"key_file" path:"y"`
	ClientCAFile string `yaml:"client_ca_file" path:"y"`
}

// ProbesConfig is the listener that is safe to show to a kubelet.
type ProbesConfig struct {
	Address string `yaml:"address"`
}

// AdminConfig is the operators' listener.
type AdminConfig struct {
	Address   string `yaml:"address"`
	TokenFile string `yaml:"token_file" path:"y"` // "": one is generated in state_dir; without that the calls that need it are off
}

// AddressConfig is a part that is off while its address is empty.
type AddressConfig struct {
	Address string `yaml:"address"`
}

// PoliciesConfig names the team's own policies.
type PoliciesConfig struct {
	Path        string        `yaml:"path" path:"y"` // directory or bundle.tar.gz; "": none
	Replace     bool          `yaml:"replace"`       // the path brings the shipped packages too
	Required    []string      `yaml:"required"`      // packages that a set must contain
	RunTests    bool          `yaml:"run_tests"`     // a set whose own tests fail is refused
	ExtraFields []string      `yaml:"extra_fields"`  // such as lease.region
	MaxAge      time.Duration `yaml:"max_age"`       // 0: no limit
}

// StoreConfig says where the records are.
type StoreConfig struct {
	Type   string          `yaml:"type"` // file | redis
	File   FileStoreConfig `yaml:"file"`
	Redis  RedisConfig     `yaml:"redis"`
	MaxAge time.Duration   `yaml:"max_age"` // what is not confirmed for longer is stale
	Verify VerifyConfig    `yaml:"verify"`
}

// FileStoreConfig is the store of type file.
type FileStoreConfig struct {
	Dir string `yaml:"dir" path:"y"`
}

// RedisConfig is the store of type redis.
type RedisConfig struct {
	Addresses  []string       `yaml:"addresses"`   // host:port: one server, nodes of a cluster, or the sentinels
	MasterName string         `yaml:"master_name"` // what the sentinels at Addresses call it
	Username   string         `yaml:"username"`
	Password   Secret         `yaml:"password"`
	TLS        RedisTLSConfig `yaml:"tls"`
	KeyPrefix  string         `yaml:"key_prefix"`
}

// RedisTLSConfig is TLS to Redis; files are PEM, "" are the system's
// authorities and no client certificate.
type RedisTLSConfig struct {
	Enabled  bool   `yaml:"enabled"`
	CAFile   string `yaml:"ca_file" path:"y"`
	CertFile string `yaml:"cert_file" path:"y"`
	KeyFile  string `yaml:"key_file" path:"y"`
}

// VerifyConfig is about signed records.
type VerifyConfig struct {
	Required bool          `yaml:"required"`           // what is not signed is malformed; else only what is signed wrongly
	KeysFile string        `yaml:"keys_file" path:"y"` // "": no signature is looked at
	MaxLife  time.Duration `yaml:"max_life"`           // a record signed for longer is malformed
}

// WorkersConfig is the link to the workers.
type WorkersConfig struct {
	Link             string               `yaml:"link"` // auto | watch | probe | static | none
	ProbePath        string               `yaml:"probe_path"`
	TokenFile        string               `yaml:"token_file" path:"y"` // sent to workers as a bearer token; "": none
	Allow            []string             `yaml:"allow"`               // CIDR or CIDR:port where worker URLs may point, after resolution
	DialTimeout      time.Duration        `yaml:"dial_timeout"`
	HandshakeTimeout time.Duration        `yaml:"handshake_timeout"`
	TLS              ClientTLSConfig      `yaml:"tls"`
	Static           []StaticWorkerConfig `yaml:"static"` // only with link: static
}

// ClientTLSConfig is TLS to the workers; as RedisTLSConfig.
type ClientTLSConfig struct {
	CAFile   string `yaml:"ca_file" path:"y"`
	CertFile string `yaml:"cert_file" path:"y"`
	KeyFile  string `yaml:"key_file" path:"y"`
}

// StaticWorkerConfig is the operator's word about one worker.
type StaticWorkerConfig struct {
	ID       string   `yaml:"id"`
	PluginID string   `yaml:"pluginId"`
	URL      string   `yaml:"url"`
	Methods  []string `yaml:"methods"`
}

// IdentityConfig says who is known.
type IdentityConfig struct {
	TokensFile     string      `yaml:"tokens_file" path:"y"` // "": no token is known
	JWT            []JWTConfig `yaml:"jwt"`                  // not supported yet: must be empty
	MTLS           MTLSConfig  `yaml:"mtls"`                 // not supported yet: must be empty
	AllowedOrigins []string    `yaml:"allowed_origins"`      // exact; empty allows no browser
}

// JWTConfig is an issuer of JSON Web Tokens; not supported yet.
type JWTConfig struct {
	Issuer      string        `yaml:"issuer"`
	Audience    string        `yaml:"audience"`
	JWKSURL     string        `yaml:"jwks_url"`
	JWKSFile    string        `yaml:"jwks_file" path:"y"`
	Algorithms  []string      `yaml:"algorithms"`
	TenantClaim string        `yaml:"tenant_claim"`
	Leeway      time.Duration `yaml:"leeway"`
	MaxLife     time.Duration `yaml:"max_life"`
}

// MTLSConfig makes a client certificate a credential; not supported yet.
type MTLSConfig struct {
	TrustDomain       string `yaml:"trust_domain"`
	TenantPathSegment int    `yaml:"tenant_path_segment"`
}

// RouteConfig says what a path asks for.
type RouteConfig struct {
	Path        string            `yaml:"path"` // canonical, with one {lease} segment unless LeaseHeader is set
	Capability  authz.Capability  `yaml:"capability"`
	Kind        authz.ChannelKind `yaml:"kind"`         // duplex | stream | request
	Methods     []string          `yaml:"methods"`      // kinds stream and request; empty: any but CONNECT, OPTIONS and TRACE
	LeaseHeader string            `yaml:"lease_header"` // the header that names the lease where the path does not
	Upgrade     []string          `yaml:"upgrade"`      // kind duplex: what it takes besides WebSockets, as raw bytes
}

// ChannelsConfig holds the limits of channels.
type ChannelsConfig struct {
	RevocationBound   time.Duration `yaml:"revocation_bound"`
	RecheckInterval   time.Duration `yaml:"recheck_interval"`
	IdleTimeout       time.Duration `yaml:"idle_timeout"`
	MaxLifetime       time.Duration `yaml:"max_lifetime"`
	MaxOpen           int           `yaml:"max_open"`
	MaxPerLease       int           `yaml:"max_per_lease"`
	MaxPerTenant      int           `yaml:"max_per_tenant"`
	OpenRatePerCaller int           `yaml:"open_rate_per_caller"` // a second; burst twice that
	MaxMessageBytes   Size          `yaml:"max_message_bytes"`    // 0: no limit
	DrainDelay        time.Duration `yaml:"drain_delay"`          // 0: at once
	DrainTimeout      time.Duration `yaml:"drain_timeout"`
	CloseGrace        time.Duration `yaml:"close_grace"`
}

// EvaluationConfig bounds one evaluation, waiting not counted.
type EvaluationConfig struct {
	Timeout time.Duration `yaml:"timeout"`
}

// TelemetryConfig is what the gateway tells of itself.
type TelemetryConfig struct {
	ServiceName string       `yaml:"service_name"`
	Traces      TracesConfig `yaml:"traces"`
	Log         LogConfig    `yaml:"log"`
}

// TracesConfig names where spans go; "" is nowhere, unless an OTEL_* variable
// says otherwise.
type TracesConfig struct {
	OTLPEndpoint string `yaml:"otlp_endpoint"`
}

// LogConfig is the process's own log.
type LogConfig struct {
	Level     string `yaml:"level"`     // debug | info | warn | error
	Format    string `yaml:"format"`    // json | text
	Decisions bool   `yaml:"decisions"` // decisions as JSON lines on standard output
}
