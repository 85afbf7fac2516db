package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// loadText loads text from a file of a directory of its own.
func loadText(t *testing.T, text string, sets ...string) (*Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path, sets)
	if err != nil {
		err = fmt.Errorf("%s", strings.ReplaceAll(err.Error(), path, "F"))
	}
	return c, err
}

func TestTheCompleteExampleIsExactlyTheDefaults(t *testing.T) {
	text, err := os.ReadFile("../../deploy/gateway.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := loadText(t, string(text))
	if err != nil {
		t.Fatal(err)
	}
	want := defaultConfig()
	want.Store.File.Dir = filepath.Join(filepath.Dir(got.File), "records")
	opts := cmp.Options{cmpopts.EquateEmpty(), cmpopts.IgnoreFields(Config{}, "File"), cmpopts.IgnoreUnexported(Config{})}
	if diff := cmp.Diff(want, got, opts); diff != "" {
		t.Error(diff)
	}
}

func TestTheCompleteExampleNamesEveryKey(t *testing.T) {
	text, err := os.ReadFile("../../deploy/gateway.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var missing func(reflect.Type)
	missing = func(typ reflect.Type) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			if key := f.Tag.Get("yaml"); key != "" && !strings.Contains(string(text), key+":") {
				t.Errorf("the example does not show %q", key)
			}
			if f.Type.Kind() == reflect.Struct && f.Tag.Get("yaml") != "" && f.Type != reflect.TypeFor[MTLSConfig]() {
				missing(f.Type)
			}
		}
	}
	missing(reflect.TypeFor[Config]())
}

func TestWithoutAFileTheDefaultsHold(t *testing.T) {
	got, err := Load("", nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(defaultConfig(), got, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(Config{})); diff != "" {
		t.Error(diff)
	}
	for _, path := range []string{"", "# nothing\n", "---\n", "listen:\nroutes: ~\n"} {
		got, err := loadText(t, path)
		if err != nil {
			t.Fatalf("%q: %v", path, err)
		}
		if len(got.Routes) != 6 || got.Listen.Address != "127.0.0.1:8080" {
			t.Errorf("%q changed the defaults", path)
		}
	}
}

func TestValuesAreReadWithTheirUnits(t *testing.T) {
	c, err := loadText(t, `
listen: {max_header_bytes: 16KiB, trusted_proxies: [10.0.0.0/8, "::1/128"]}
channels: {max_message_bytes: 1MiB, idle_timeout: 90s, max_open: 5}
workers: {allow: ["10.0.0.0/8:8080", "::1/128:80"]}
`)
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen.MaxHeaderBytes != 16<<10 || c.Channels.MaxMessageBytes != 1<<20 || c.Channels.IdleTimeout != 90*time.Second {
		t.Errorf("got %v, %v, %v", c.Listen.MaxHeaderBytes, c.Channels.MaxMessageBytes, c.Channels.IdleTimeout)
	}
	if len(c.Listen.TrustedProxies) != 2 || c.Listen.TrustedProxies[0].String() != "10.0.0.0/8" {
		t.Errorf("trusted proxies are %v", c.Listen.TrustedProxies)
	}
	if c.Channels.MaxPerLease != 32 {
		t.Error("a key that is not named lost its default")
	}
}

func TestRelativePathsAreOfTheFilesDirectory(t *testing.T) {
	c, err := loadText(t, "identity: {tokens_file: tokens.yaml}\nstore: {file: {dir: ../r}}\nlisten: {tls: {cert_file: /c.pem, key_file: k.pem}}", "state_dir=state")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(c.File)
	got := []string{c.Identity.TokensFile, c.Store.File.Dir, c.Listen.TLS.CertFile, c.Listen.TLS.KeyFile, c.StateDir, c.Admin.TokenFile}
	want := []string{dir + "/tokens.yaml", filepath.Join(filepath.Dir(dir), "r"), "/c.pem", dir + "/k.pem", dir + "/state", ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if c, err = Load("", nil); err != nil || c.Store.File.Dir != "./records" {
		t.Errorf("without a file the records are in %q (%v)", c.Store.File.Dir, err)
	}
}

func TestVariablesAndFilesAreFilledIn(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("p: [w\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SLUICE_TEST_PORT", "9000")
	t.Setenv("SLUICE_TEST_OPEN", "77")
	c, err := loadText(t, `
listen: {address: "127.0.0.1:${SLUICE_TEST_PORT}"}
channels:
  max_open: ${SLUICE_TEST_OPEN}
store: {redis: {password: "${file:`+secret+`}", username: "a$${b}$"}}
`, "telemetry.service_name=s-${SLUICE_TEST_PORT}")
	if err != nil {
		t.Fatal(err)
	}
	got := []any{c.Listen.Address, c.Channels.MaxOpen, c.Store.Redis.Password.Reveal(), c.Store.Redis.Username, c.Telemetry.ServiceName}
	if diff := cmp.Diff([]any{"127.0.0.1:9000", 77, "p: [w", "a${b}$", "s-9000"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestASecretIsNeverPrinted(t *testing.T) {
	c := defaultConfig()
	c.Store.Redis.Password = "hunter2"
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "password", c.Store.Redis.Password, "config", c)
	printed := string(text) + log.String() + fmt.Sprintf("%v %+v %#v %v %q %x", c, c, *c, c.Store.Redis, c.Store.Redis.Password, c.Store.Redis.Password)
	for _, leak := range []string{"hunter2", fmt.Sprintf("%x", "hunter2")} {
		if strings.Contains(printed, leak) {
			t.Errorf("%s is in what was printed", leak)
		}
	}
}

func TestAWrongConfigurationIsRefusedWithItsPlace(t *testing.T) {
	t.Setenv("SLUICE_TEST_WORD", "sesame")
	tests := []struct{ name, text, want string }{
		{"typo", "listen: {adress: x}", `F:1:10: listen: unknown key "adress"; known are address, tls, allowed_hosts, trusted_proxies, max_header_bytes, header_timeout`},
		{"duplicate", "store: {type: file, type: redis}", "F:1:21: store.type: duplicate key; the first is on line 1"},
		{"type", "channels:\n  max_open: many", "F:2:13: channels.max_open: a text, where a whole number is wanted"},
		{"syntax", "listen: {", "F:1:9: could not find flow mapping end token '}'"},
		{"size", "listen: {max_header_bytes: 64kb}", `F:1:28: listen.max_header_bytes: "64kb" is not a size in bytes such as 65536 or 64KiB`},
		{"size too large", "channels: {max_message_bytes: 9999999999GiB}", `F:1:31: channels.max_message_bytes: "9999999999GiB" is not a size in bytes such as 65536 or 64KiB`},
		{"variable", "state_dir: ${SLUICE_TEST_NOT_SET}", "F:1:12: state_dir: the environment variable SLUICE_TEST_NOT_SET is not set"},
		{"missing file", `state_dir: "${file:/nowhere/x}"`, "F:1:12: state_dir: read a value: open /nowhere/x: no such file or directory"},
		{"open brace", `state_dir: "${X"`, `F:1:12: state_dir: "${" without "}"; write "$${" for the characters themselves`},
		{"no variable", `state_dir: "${a-b}"`, "F:1:12: state_dir: ${a-b} is neither ${VARIABLE} nor ${file:/path}"},
		{"value not shown", "channels:\n  max_open: ${SLUICE_TEST_WORD}", "F:2:13: channels.max_open: what was filled in is not a whole number"},

		{"address", "listen: {address: localhost}", `F:1:19: listen.address: "localhost" is not host:port, such as 127.0.0.1:8080`},
		{"empty address", `admin: {address: ""}`, `F:1:18: admin.address: "" is not host:port, such as 127.0.0.1:8080`},
		{"port", "listen: {address: 127.0.0.1:http}", `F:1:19: listen.address: "127.0.0.1:http" is not host:port, such as 127.0.0.1:8080`},
		{"collision", "listen: {address: 0.0.0.0:8282}", "F: admin.address: 127.0.0.1:8282 is also listen.address; give each listener its own"},
		{"key without certificate", "listen:\n  tls: {key_file: k}", "F:2:8: listen.tls: cert_file and key_file go together; set both or neither"},
		{"client authority without TLS", "listen:\n  tls: {client_ca_file: c}", "F:2:25: listen.tls.client_ca_file: asks for client certificates on a listener without TLS; set cert_file and key_file too"},
		{"host", "listen: {allowed_hosts: [http://x]}", `F:1:26: listen.allowed_hosts[0]: "http://x" is not a host name or host:port`},
		{"range without length", "listen: {trusted_proxies: [10.0.0.1]}", `F:1:28: listen.trusted_proxies[0]: "10.0.0.1" is not a range of addresses; write it with its length, such as 10.1.2.3/32`},
		{"range with host bits", "workers: {allow: [10.0.0.1/8]}", `F:1:19: workers.allow[0]: "10.0.0.1/8" has bits beyond its length; write 10.0.0.0/8`},
		{"mapped range", "workers: {allow: ['::ffff:10.0.0.0/104']}", `F:1:19: workers.allow[0]: "::ffff:10.0.0.0/104" is IPv4 written as IPv6; write it as IPv4`},
		{"port of a range", "workers: {allow: ['10.0.0.0/8:0']}", `F:1:19: workers.allow[0]: "10.0.0.0/8:0": the port must be a number from 1 to 65535`},
		{"header bytes", "listen: {max_header_bytes: 0}", "F:1:28: listen.max_header_bytes: 0 is outside 1KiB to 16MiB"},
		{"zero duration", "listen: {header_timeout: 0s}", "F:1:26: listen.header_timeout: 0s would be no limit, which is not offered; it must be longer than 0s"},
		{"negative duration", "store: {max_age: -1s}", "F:1:18: store.max_age: -1s would be no limit, which is not offered; it must be longer than 0s"},
		{"zero limit", "channels: {max_per_lease: 0}", "F:1:27: channels.max_per_lease: 0 would refuse everything, and no limit is not offered; it must be 1 or more"},
		{"drain", "channels: {drain_delay: 25s}", "F:1:25: channels.drain_delay: 25s leaves nothing of drain_timeout (25s) for ending channels; it must be shorter"},
		{"policy age", "policies: {max_age: -1s}", "F:1:21: policies.max_age: -1s is negative; 0s is no limit"},
		{"replace with nothing", "policies: {replace: true}", "F:1:21: policies.replace: takes the shipped packages away and policies.path brings none; set policies.path"},
		{"package", "policies: {required: [a/b]}", `F:1:23: policies.required[0]: "a/b" is not the name of a package such as sluice.custom`},
		{"field", "policies: {extra_fields: [region]}", `F:1:27: policies.extra_fields[0]: "region" is not a field of a record such as lease.region`},
		{"store", "store: {type: etcd}", `F:1:15: store.type: "etcd" is none of file, redis`},
		{"prefix", `store: {redis: {key_prefix: ""}}`, "F:1:29: store.redis.key_prefix: must be 1 to 128 visible ASCII characters"},
		{"redis address", "store: {redis: {addresses: [redis]}}", `F:1:29: store.redis.addresses[0]: "redis" is not host:port, such as 127.0.0.1:6379`},
		{"redis TLS", "store: {redis: {tls: {ca_file: x}}}", "F:1:22: store.redis.tls.enabled: is false and files for TLS are named; set it to true or leave them out"},
		{"link", "workers: {link: push}", `F:1:17: workers.link: "push" is none of auto, watch, probe, static, none`},
		{"probe path", "workers: {probe_path: v1}", `F:1:23: workers.probe_path: "v1" is not a path in canonical form, such as /v1/worker`},
		{"static without the link", "workers: {static: [{id: w, pluginId: p, url: 'http://127.0.0.1:1'}]}", "F:1:19: workers.static: counts only with workers.link: static, and the link is auto"},
		{"static id", "workers: {link: static, static: [{id: -w, pluginId: p, url: 'http://127.0.0.1:1'}]}", `F:1:39: workers.static[0].id: "-w" is not an id: letters, digits, - and _, beginning with a letter or digit, at most 128`},
		{"static twice", "workers: {link: static, static: [{id: w, pluginId: p, url: 'http://127.0.0.1:1'}, {id: w, pluginId: p, url: 'http://127.0.0.1:1'}]}", "F:1:88: workers.static[1].id: w is there twice"},
		{"static url", "workers: {link: static, static: [{id: w, pluginId: p, url: 'ws://x'}]}", `F:1:60: workers.static[0].url: worker url "ws://x": the scheme must be http or https`},
		{"origin", "identity: {allowed_origins: ['*']}", `F:1:30: identity.allowed_origins[0]: "*" is not an exact origin such as https://console.example.com`},
		{"origin with a path", "identity: {allowed_origins: ['https://x/']}", `F:1:30: identity.allowed_origins[0]: "https://x/" is not an exact origin such as https://console.example.com`},
		{"level", "telemetry: {log: {level: loud}}", `F:1:26: telemetry.log.level: "loud" is none of debug, info, warn, error`},
		{"endpoint", "telemetry: {traces: {otlp_endpoint: 'localhost:4317'}}", "F:1:37: telemetry.traces.otlp_endpoint: is not a URL such as http://127.0.0.1:4318"},

		{"unsupported check", "extauthz: {address: 127.0.0.1:9191}", "F:1:21: extauthz.address: not supported by this version; leave it out"},
		{"unsupported forward", "forward_auth: {address: 127.0.0.1:9192}", "F:1:25: forward_auth.address: not supported by this version; leave it out"},
		{"unsupported bundles", "opa: {bundles: {a: {}}}", "F:1:6: opa: not supported by this version; leave it out"},
		{"unsupported age of policies", "policies: {max_age: 1h}", "F:1:21: policies.max_age: not supported by this version; leave it out"},
		{"unsupported tokens", "identity: {jwt: [{issuer: x, audience: y}]}", "F:1:17: identity.jwt: not supported by this version; leave it out"},
		{"unsupported certificates", "identity: {mtls: {trust_domain: x}}", "F:1:18: identity.mtls: not supported by this version; leave it out"},
		{"signatures without keys", "store: {verify: {required: true}}", "F:1:28: store.verify.required: is true and no key is known, so every record would be malformed; name the keys in store.verify.keys_file"},
		{"signatures for no time", "store: {verify: {max_life: 999ms}}", "F:1:28: store.verify.max_life: 999ms would let no record through, for they are signed for whole seconds; it must be 1s or longer"},
		{"a master without a name", "store: {redis: {master_name: 'a b'}}", "F:1:30: store.redis.master_name: must be at most 128 visible ASCII characters"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := loadText(t, tt.text); err == nil || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestARouteThatIsNotPlainIsRefused(t *testing.T) {
	tests := []struct{ name, route, want string }{
		{"relative", "{path: 'v1/{lease}', capability: c, kind: duplex}", ".path"},
		{"dot segment", "{path: '/v1/../{lease}', capability: c, kind: duplex}", ".path"},
		{"empty segment", "{path: '/v1//{lease}', capability: c, kind: duplex}", ".path"},
		{"escape", "{path: '/v%31/{lease}', capability: c, kind: duplex}", ".path"},
		{"query", "{path: '/v1/{lease}?x=1', capability: c, kind: duplex}", ".path"},
		{"expression", "{path: '/v1/{lease:.*}', capability: c, kind: duplex}", ".path"},
		{"other variable", "{path: '/v1/{tenant}/{lease}', capability: c, kind: duplex}", ".path"},
		{"part of a segment", "{path: '/v1/x{lease}', capability: c, kind: duplex}", ".path"},
		{"two leases", "{path: '/v1/{lease}/{lease}', capability: c, kind: duplex}", ".path"},
		{"no lease", "{path: /v1/x, capability: c, kind: duplex}", ".path"},
		{"two places for the lease", "{path: '/v1/{lease}', capability: c, kind: duplex, lease_header: X-Lease}", ".lease_header"},
		{"header that is the credential", "{path: /x, capability: c, kind: duplex, lease_header: authorization}", ".lease_header"},
		{"header of the handshake", "{path: /x, capability: c, kind: duplex, lease_header: Sec-WebSocket-Protocol}", ".lease_header"},
		{"header that is no token", "{path: /x, capability: c, kind: duplex, lease_header: 'a b'}", ".lease_header"},
		{"the gateway's own", "{path: '/v1/leases/{lease}/capabilities', capability: c, kind: request}", ".path"},
		{"no capability", "{path: '/v1/{lease}', kind: duplex}", ".capability"},
		{"no kind", "{path: '/v1/{lease}', capability: c}", ".kind"},
		{"other kind", "{path: '/v1/{lease}', capability: c, kind: look}", ".kind"},
		{"methods on duplex", "{path: '/v1/{lease}', capability: c, kind: duplex, methods: [GET]}", ".methods"},
		{"lower case method", "{path: '/v1/{lease}', capability: c, kind: request, methods: [get]}", ".methods[0]"},
		{"trace", "{path: '/v1/{lease}', capability: c, kind: request, methods: [GET, TRACE]}", ".methods[1]"},
		{"method twice", "{path: '/v1/{lease}', capability: c, kind: request, methods: [GET, GET]}", ".methods[1]"},
		{"upgrade on a request", "{path: '/v1/{lease}', capability: c, kind: request, upgrade: [websocket]}", ".upgrade"},
		{"upgrade to h2c", "{path: '/v1/{lease}', capability: c, kind: duplex, upgrade: [h2c]}", ".upgrade[0]"},
		{"upgrade to another HTTP", "{path: '/v1/{lease}', capability: c, kind: duplex, upgrade: [tcp, HTTP/2.0]}", ".upgrade[1]"},
		{"upgrade to TLS", "{path: '/v1/{lease}', capability: c, kind: duplex, upgrade: [TLS/1.0]}", ".upgrade[0]"},
		{"upgrade twice", "{path: '/v1/{lease}', capability: c, kind: duplex, upgrade: [tcp, tcp]}", ".upgrade[1]"},
		{"upgrade that is no name", "{path: '/v1/{lease}', capability: c, kind: duplex, upgrade: ['a, b']}", ".upgrade[0]"},
		{"upgrade in other letters", "{path: '/v1/{lease}', capability: c, kind: duplex, upgrade: [WebSocket]}", ".upgrade[0]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := loadText(t, "routes:\n  - {path: '/ok/{lease}', capability: c, kind: duplex, upgrade: [websocket]}\n  - "+tt.route)
			if err == nil || !strings.Contains(err.Error(), "routes[1]"+tt.want+": ") || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one fault of routes[1]%s", err, tt.want)
			}
		})
	}
	_, err := loadText(t, "routes: [{path: '/{lease}', capability: c, kind: duplex}, {path: '/{lease}', capability: d, kind: stream}]")
	if err == nil || err.Error() != "F:1:66: routes[1].path: is also the path of routes[0]; each path has one route" {
		t.Errorf("the same path twice: %v", err)
	}
	c, err := loadText(t, "routes: [{path: /pkg.Service/Method, capability: rootShell, kind: stream, lease_header: Sluice-Lease-Id}]")
	if err != nil || len(c.Routes) != 1 {
		t.Errorf("a route by header: %v", err)
	}
}

func TestEveryFaultOfAConfigurationIsNamedAtOnce(t *testing.T) {
	_, err := loadText(t, "store: {type: x}\nchannels: {max_open: 0, idle_timeout: 0s}", "workers.link=y")
	if err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("want four faults, got %v", err)
	}
}

func TestAnOverrideIsLaidOverTheFile(t *testing.T) {
	c, err := loadText(t, "channels: {max_open: 5, max_per_lease: 6}", "channels.max_open=7", "listen.address=[::1]:9", `workers.allow=["10.0.0.0/8"]`)
	if err != nil {
		t.Fatal(err)
	}
	if c.Channels.MaxOpen != 7 || c.Channels.MaxPerLease != 6 || c.Listen.Address != "[::1]:9" || c.Workers.Allow[0] != "10.0.0.0/8" {
		t.Errorf("got %+v, %s, %v", c.Channels, c.Listen.Address, c.Workers.Allow)
	}
	for set, want := range map[string]string{
		"channels.max_opn=1":          `--set channels.max_opn: unknown key "max_opn"; known are`,
		"channels":                    "--set channels: write it as a.b=c",
		"channels.max_open=x":         `--set channels.max_open: "x" is not a whole number`,
		"channels.max_open=0":         "--set channels.max_open: 0 would refuse everything",
		"routes=[{path: /x}]":         "--set routes: routes[0].path: nothing names the lease",
		"routes.0.path=x":             "--set routes.0.path: routes has no keys that could be set one by one",
		"store.redis.password=${NO1}": "--set store.redis.password: the environment variable NO1 is not set",
	} {
		if _, err := loadText(t, "", set); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", set, err, want)
		}
	}
}

func TestAConfigurationThatIsNotThereIsRefused(t *testing.T) {
	if _, err := Load("/nowhere/gateway.yaml", nil); err == nil || err.Error() != "read the configuration: open /nowhere/gateway.yaml: no such file or directory" {
		t.Errorf("got %v", err)
	}
	if _, err := Load(t.TempDir(), nil); err == nil {
		t.Error("a directory was read")
	}
	if _, err := loadText(t, strings.Repeat("#", maxConfigBytes+1)); err == nil || !strings.Contains(err.Error(), "larger than 262144 bytes") {
		t.Errorf("got %v", err)
	}
}

func TestEveryDurationAndCountIsListedAsALimit(t *testing.T) {
	listed := map[string]bool{}
	for _, l := range defaultConfig().Limits() {
		listed[l.Name] = true
		if l.Value == "" || l.Means == "" {
			t.Errorf("%s lacks its value or meaning", l.Name)
		}
	}
	var walk func(reflect.Type, string)
	walk = func(typ reflect.Type, path string) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			name := strings.TrimPrefix(path+"."+f.Tag.Get("yaml"), ".")
			switch {
			case f.Tag.Get("yaml") == "" || strings.HasPrefix(name, "identity."):
			case f.Type.Kind() == reflect.Struct:
				walk(f.Type, name)
			case f.Type.Kind() == reflect.Int64 || f.Type.Kind() == reflect.Int:
				if !listed[name] {
					t.Errorf("%s is not listed", name)
				}
			}
		}
	}
	walk(reflect.TypeFor[Config](), "")
}

func FuzzConfig(f *testing.F) {
	example, err := os.ReadFile("../../deploy/gateway.example.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(example)
	for _, seed := range []string{"", "listen: {address: ':0'}", "routes: [{path: '/{lease}', capability: c, kind: duplex}]", "opa: {a: [1, {b: c}]}", "state_dir: ${HOME}", "workers: {allow: ['::1/128:80']}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 16<<10 { // the parser's time grows with the square of a mapping's size
			return
		}
		l := loader{config: defaultConfig(), path: "fuzz.yaml", expander: expander{dir: t.TempDir(), lookup: os.LookupEnv}}
		l.read(text)
		if len(l.faults) == 0 {
			l.judge()
		}
		for _, fault := range l.faults {
			if fault.Message == "" || fault.Source != "fuzz.yaml" {
				t.Errorf("a fault that does not say what and where: %+v", fault)
			}
		}
		if c := l.config; len(l.faults) == 0 && (c.Channels.MaxOpen < 1 || c.Store.MaxAge <= 0 || c.Evaluation.Timeout <= 0) {
			t.Error("a configuration without a limit was accepted")
		}
	})
}
