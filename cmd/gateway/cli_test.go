package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"sluice/internal/authz"
	"sluice/internal/identity"
	"sluice/internal/pdp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ran is what a command did.
type ran struct {
	code           int
	stdout, stderr string
}

func runWith(t *testing.T, stdin string, args ...string) ran {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, strings.NewReader(stdin), &stdout, &stderr)
	return ran{code, stdout.String(), stderr.String()}
}

func runOK(t *testing.T, args ...string) string {
	t.Helper()
	got := runWith(t, "", args...)
	if got.code != exitFine {
		t.Fatalf("gateway %s: exit %d: %s", strings.Join(args, " "), got.code, got.stderr)
	}
	return got.stdout
}

func TestEveryCommandHasHelp(t *testing.T) {
	commands := []string{
		"", "serve", "demo", "init", "check", "test", "eval", "records", "records put", "records get",
		"records delete", "records list", "records sign", "records verify", "records keygen", "token", "token new", "channels list", "channels close", "version",
	}
	for _, c := range commands {
		got := runWith(t, "", append(strings.Fields(c), "--help")...)
		if got.code != exitFine || got.stderr != "" || !strings.HasPrefix(got.stdout, "Usage: gateway") {
			t.Errorf("gateway %s --help: exit %d, %q, %q", c, got.code, got.stdout, got.stderr)
		}
	}
}

func TestCommandsThatAreNotBuiltAreNotListed(t *testing.T) {
	help := runOK(t, "--help") + runOK(t, "records", "--help")
	for _, name := range []string{"explain", "replay", "policy"} {
		if regexp.MustCompile(`(?m)^  (records )?` + name).MatchString(help) {
			t.Errorf("%s is listed", name)
		}
	}
}

func TestWrongUsageExitsWithTwoAndSaysWhatToDo(t *testing.T) {
	tests := []struct {
		args string
		want string // in what standard error says
	}{
		{"", "Usage: gateway <command>"},
		{"bogus", "unexpected argument bogus; see gateway --help"},
		{"check --bogus", "unknown flag --bogus; see gateway check --help"},
		{"check extra", "unexpected argument extra; see gateway check --help"},
		{"version -o xml", `must be one of "text","json"`},
		{"token new alice", "missing flags: --tenant=T; see gateway token new --help"},
		{"token new alice --tenant *", `the tenant "*" is not an id`},
		{"token new alice --tenant t --expires soon", `--expires "soon" is neither a time`},
		{"token new alice --tenant t --expires=-1h", "has passed already"},
		{"token new alice --tenant t --expires 2020-01-01T00:00:00Z", "has passed already"},
		{"token new alice --tenant t --roles=a,,b", `the role "" is not`},
		{"init DIR", "missing flags: --worker=URL"},
		{"init --worker ftp://x DIR", "give the server as http://host:port or ws://host:port"},
		{"init --worker ws://127.0.0.1:1/path DIR", "it must end after host and port"},
		{"records list leases", `must be one of "lease"`},
		{"records get lease", "a lease has an id; name it behind the kind"},
		{"records get lease ../x", `"../x" is not an id`},
		{"records get control x", `there is one control record, without an id; leave "x" out`},
		{"records put lease x /nowhere/x.json", "read the record: open /nowhere/x.json: no such file"},
		{"records get lease x -c /nowhere/gateway.yaml", "read the configuration: open /nowhere/gateway.yaml"},
		{"records get lease x --set store.type=x", `--set store.type: "x" is none of file, redis`},
		{"check --records /nowhere", "--records /nowhere is not a directory that can be read"},
		{"check --policies /nowhere", "--policies: stat /nowhere: no such file or directory"},
		{"check -c /nowhere/gateway.yaml", "--config: stat /nowhere/gateway.yaml: no such file or directory"},
		{"test /nowhere", "stat /nowhere: no such file or directory"},
	}
	for _, tt := range tests {
		got := runWith(t, "", strings.Fields(tt.args)...)
		if got.code != exitUsage || got.stdout != "" || !strings.Contains(got.stderr, tt.want) {
			t.Errorf("gateway %s: exit %d, %q, want %q in %q", tt.args, got.code, got.stdout, tt.want, got.stderr)
		}
	}
}

func TestTheVersionNamesEveryPart(t *testing.T) {
	var info versionInfo
	if err := json.Unmarshal([]byte(runOK(t, "version", "--json")), &info); err != nil {
		t.Fatal(err)
	}
	if info.Version == "" || info.Commit == "" || info.OPA == "" || !strings.HasPrefix(info.Go, "go1") || info.PolicyRevision == "" {
		t.Errorf("got %+v", info)
	}
	text := runOK(t, "version")
	for _, part := range []string{info.Version, info.Commit, info.OPA, info.Go, info.PolicyRevision} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in %q", part, text)
		}
	}
}

func TestAMadeTokenIsTheOneOfItsEntry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	out := runOK(t, "token", "new", "a\"b", "--tenant", "acme", "--roles", "ops,audit", "--expires", "90d")
	token := regexp.MustCompile(`(?m)^sluice_[A-Za-z0-9_-]{43}$`).FindString(out)
	if token == "" {
		t.Fatalf("there is no token in %q", out)
	}
	if err := os.WriteFile(path, []byte(out[:strings.Index(out, "# the token")]), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := identity.OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	p := tokens.Principal(token)
	if p == nil || p.Subject != `a"b` || p.TenantID != "acme" || p.ExpiresAt == nil || len(p.Roles) != 2 {
		t.Errorf("the token stands for %+v", p)
	}

	var made madeToken
	if err := json.Unmarshal([]byte(runOK(t, "token", "new", "bob", "--tenant", "acme", "--output", "json")), &made); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(made.Token))
	if made.Entry.SHA256 != hex.EncodeToString(sum[:]) || made.Token == token || made.Entry.ExpiresAt != "" {
		t.Errorf("made %+v", made)
	}
}

func TestInitWritesWhatLetsTheTokenThrough(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "my gateway")
	out := runOK(t, "init", "--worker", "ws://127.0.0.1:8080", dir)
	if got := runWith(t, "", "check", "-c", filepath.Join(dir, "gateway.yaml")); got.code != exitFine ||
		!strings.Contains(got.stdout, "3 records are fine") || !strings.Contains(got.stderr, "workers.link: static takes your word") {
		t.Errorf("check of what init wrote: %+v", got)
	}
	cfg, err := Load(filepath.Join(dir, "gateway.yaml"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Listen.Address == "127.0.0.1:8080" {
		t.Error("the gateway wants the worker's address")
	}
	if info, err := os.Stat(cfg.Identity.TokensFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the tokens file: %v, %v", info, err)
	}
	for _, want := range []string{
		"gateway serve -c '" + dir + "/gateway.yaml'\n",
		"ws://" + cfg.Listen.Address + "/v1/leases/lease-1/duplex\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in %q", want, out)
		}
	}

	tokens, err := identity.OpenTokens(cfg.Identity.TokensFile)
	if err != nil {
		t.Fatal(err)
	}
	token := regexp.MustCompile(`sluice_[A-Za-z0-9_-]{43}`).FindString(out)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	principal, err := identity.New(tokens).Identify(r)
	if err != nil || principal == nil {
		t.Fatalf("the token stands for %v, %v", principal, err)
	}
	if d := decideInit(t, cfg, principal); !d.Allow {
		t.Errorf("the decision is %s", d.Reason)
	}
}

// decideInit asks the policies what a duplex request of p would be told on
// the written records and the static worker.
func decideInit(t *testing.T, cfg *Config, p *authz.Principal) authz.Decision {
	t.Helper()
	record := func(name string) json.RawMessage {
		text, err := os.ReadFile(filepath.Join(cfg.Store.File.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	w := cfg.Workers.Static[0]
	line, err := json.Marshal(map[string]any{
		"request": map[string]any{
			"leaseId": "lease-1", "capability": cfg.Routes[0].Capability,
			"principal": map[string]any{"subject": p.Subject, "tenantId": p.TenantID},
		},
		"records": map[string]any{
			"control": record("control.json"), "lease": record("leases/lease-1.json"), "plugin": record("plugins/plugin-1.json"),
			"worker": map[string]any{"id": w.ID, "pluginId": w.PluginID, "url": w.URL, "revision": 0},
		},
		"live": map[string]any{"id": w.ID, "pluginId": w.PluginID, "status": "running", "generation": "static", "supportedMethods": w.Methods},
	})
	if err != nil {
		t.Fatal(err)
	}
	question, err := pdp.ReadCase(line, nil)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := pdp.New(pdp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	if err := engine.Reload(ctx); err != nil {
		t.Fatal(err)
	}
	go func() { done <- engine.Run(ctx) }()
	d := engine.Decide(ctx, question)
	cancel()
	<-done
	return d
}

func TestInitOverwritesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tokens.yaml"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := runWith(t, "", "init", "--worker", "http://[::1]:9000", dir)
	if got.code != exitUsage || !strings.Contains(got.stderr, "tokens.yaml is there already; choose another directory") {
		t.Errorf("got %+v", got)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("something was written: %v", entries)
	}
}

func TestInitAllowsTheServersAddressAlone(t *testing.T) {
	for url, want := range map[string]string{
		"http://10.1.2.3:80": "10.1.2.3/32:80", "wss://[2001:db8::1]": "2001:db8::1/128:443", "http://127.0.0.1": "127.0.0.1/32:80",
	} {
		dir := t.TempDir()
		runOK(t, "init", "--worker", url, dir)
		cfg, err := Load(filepath.Join(dir, "gateway.yaml"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{want}, cfg.Workers.Allow); diff != "" {
			t.Errorf("%s: %s", url, diff)
		}
	}
}

func TestCheckNamesEveryFaultWithItsPlace(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"gateway.yaml":            "store: {file: {dir: records}}\nidentity: {tokens_file: tokens.yaml}\npolicies: {path: rules}\nlisten: {address: '0.0.0.0:80', tls: {cert_file: c.pem, key_file: k.pem}}\nroutes: [{path: '/{lease}', capability: rootShell, kind: duplex}]\n",
		"tokens.yaml":             "- {name: a, tenantId: t, sha256: x}\n",
		"rules/a.rego":            "package sluice.custom\n\ndeny contains x if {\n\tinput.capability == 1\n}\n",
		"records/control.json":    `{"duplexEnabled": true, "revision": 1}`,
		"records/leases/a.json":   "{\n  \"id\": \"b\", \"tenantId\": \"t\", \"status\": \"active\", \"revision\": 1}",
		"records/lease.c.json":    `{"id": "c", "id": "c"}`,
		"records/worker.w.json":   `{"id": "w", "pluginId": "p", "url": "http://x", "revision": 1}`,
		"records/workers/w.json":  `{"id": "w", "pluginId": "p", "url": "http://x", "revision": 1}`,
		"records/lease/typo.json": `{}`,
		"records/..old/x.json":    `{}`,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := runWith(t, "", "check", "-c", filepath.Join(dir, "gateway.yaml"))
	if got.code != exitNo || got.stdout != "" {
		t.Errorf("exit %d, %q", got.code, got.stdout)
	}
	for _, want := range []string{
		dir + `/rules/a.rego:3:15: rego_`,
		dir + `/records/leases/a.json:2:9: id: `,
		dir + `/records/lease.c.json:1:13: id: `,
		dir + `/records/workers/w.json: stands in two files`,
		dir + `/tokens.yaml:1:34: [0].sha256: is not 64 hexadecimal digits`,
		dir + `/gateway.yaml:4:38: listen.tls: open ` + dir + `/c.pem: no such file`,
		`warning: ` + dir + `/records/lease/typo.json: is the file of no record`,
		"6 faults\n",
	} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("%q is not in\n%s", want, got.stderr)
		}
	}

	var answer checker
	asJSON := runWith(t, "", "check", "--json", "-c", filepath.Join(dir, "gateway.yaml"))
	if err := json.Unmarshal([]byte(asJSON.stdout), &answer); err != nil || asJSON.code != exitNo {
		t.Fatal(err)
	}
	if answer.Fine || len(answer.Faults) != 6 || answer.Faults[0].Line != 3 || answer.Faults[0].Column != 15 {
		t.Errorf("got %+v", answer)
	}
}

func TestCheckOfABadConfigurationStillLooksAtTheRest(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "lease.a.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := runWith(t, "", "check", "--set", "channels.max_open=0", "--records", dir)
	if got.code != exitNo || !strings.Contains(got.stderr, "--set channels.max_open: 0 would") || !strings.Contains(got.stderr, "lease.a.json:1:2: ") {
		t.Errorf("got %+v", got)
	}
}

func TestCheckWarnsOfWhatIsProbablyNotMeant(t *testing.T) {
	got := runWith(t, "", "check",
		"--set", "listen.address=0.0.0.0:8080", "--set", "workers.link=static",
		"--set", "workers.static=[{id: w, pluginId: p, url: 'http://10.0.0.1:80'}]",
		"--set", "routes=[{path: '/{lease}', capability: rootShell, kind: duplex}]", "--set", "store.file.dir=/nowhere/records")
	if got.code != exitFine {
		t.Errorf("got %+v", got)
	}
	for _, want := range []string{
		"--set listen.address: is reachable from other machines without TLS",
		"--set workers.link: static takes your word",
		"--set workers.static: workers.static[0].url: 10.0.0.1:80 is outside workers.allow",
		"--set routes: routes[0].capability: rootShell is not in the policies' table",
		"identity: no caller is known", "admin: there is neither token_file nor state_dir",
		"--set store.file.dir: /nowhere/records is not there yet",
	} {
		if !strings.Contains(got.stderr, "warning: "+want) {
			t.Errorf("%q is not in\n%s", want, got.stderr)
		}
	}
}

func TestCheckWithoutAnythingIsFineAndListsLimits(t *testing.T) {
	t.Chdir(t.TempDir())
	got := runWith(t, "", "check", "--limits")
	if got.code != exitFine || got.stderr != "" || !strings.Contains(got.stdout, "channels.max_per_lease ") {
		t.Errorf("got %+v", got)
	}
}

func TestRecordsAreComparedAndSet(t *testing.T) {
	dir := t.TempDir()
	records := func(stdin string, args ...string) ran {
		return runWith(t, stdin, append(append([]string{"records"}, args...), "--set", "store.file.dir="+dir)...)
	}
	lease := func(revision int, status string) string {
		return fmt.Sprintf(`{"id": "l", "tenantId": "t", "status": %q, "revision": %d}`, status, revision)
	}
	file := filepath.Join(t.TempDir(), "l.json")
	if err := os.WriteFile(file, []byte(lease(3, "active")), 0o600); err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		name, stdin, args string
		code              int
		stdout, stderr    string
	}{
		{"nothing there", "", "list lease", 0, "ID  REVISION  STATUS\n", ""},
		{"put from standard input", lease(2, "active"), "put lease l", 0, "lease:l: revision 2\n", ""},
		{"the same again", lease(2, "active"), "put lease l -", 0, "lease:l: revision 2\n", ""},
		{"other content", lease(2, "released"), "put lease l", 1, "", "gateway: lease:l, revision 2: the store holds this revision with other content\n"},
		{"older", lease(1, "active"), "put lease l", 1, "", "gateway: lease:l, revision 1: the store holds a newer revision (2)\n"},
		{"put from a file", "", "put lease l " + file, 0, "lease:l: revision 3\n", ""},
		{"other revision expected", lease(9, "active"), "put lease l --if-revision 8", 1, "", "gateway: lease:l: the store does not hold the expected revision, 8 (it holds 3)\n"},
		{"expected revision", lease(4, "revoked"), "put lease l --if-revision 3", 0, "lease:l: revision 4\n", ""},
		{"malformed", "{\n\"id\": 7}", "put lease l", 1, "", "gateway: standard input:2:7: id: is no id ([A-Za-z0-9][A-Za-z0-9_-]{0,127})\n"},
		{"of another id", lease(5, "active"), "put lease m", 1, "", ""},
		{"control from standard input", `{"revision": 1}`, "put control", 0, "control: revision 1\n", ""},
		{"control from a file", `{"revision": 2}`, "put control -", 0, "control: revision 2\n", ""},
		{"get", "", "get lease l", 0, lease(4, "revoked") + "\n", ""},
		{"get control", "", "get control", 0, `{"revision": 2}` + "\n", ""},
		{"get what is not there", "", "get plugin p", 1, "", "gateway: plugin:p: no such record\n"},
		{"list", "", "list lease", 0, "ID  REVISION  STATUS\nl   4         revoked\n", ""},
		{"delete of another revision", "", "delete lease l --if-revision 3", 1, "", "gateway: lease:l: the store does not hold the expected revision, 3 (it holds 4)\n"},
		{"delete", "", "delete lease l", 0, "lease:l: deleted\n", ""},
		{"delete again", "", "delete lease l", 1, "", "gateway: lease:l: no such record\n"},
	}
	for _, s := range steps {
		got := records(s.stdin, strings.Fields(s.args)...)
		if s.name == "of another id" { // the decoder's words
			s.stderr = got.stderr
		}
		if diff := cmp.Diff(ran{s.code, s.stdout, s.stderr}, got, cmp.AllowUnexported(ran{})); diff != "" {
			t.Errorf("%s: %s", s.name, diff)
		}
	}
}

func TestAMalformedRecordIsShownWithItsFault(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "lease.l.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	set := []string{"--set", "store.file.dir=" + dir}
	got := runWith(t, "", append([]string{"records", "get", "lease", "l"}, set...)...)
	if got.code != exitFine || got.stdout != "{\n" || !strings.HasPrefix(got.stderr, "warning: lease:l is malformed: ") {
		t.Errorf("got %+v", got)
	}
	var list []listedRecord
	out := runOK(t, append([]string{"records", "list", "lease", "--json"}, set...)...)
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 1 || list[0].Fault == "" {
		t.Errorf("listed %s (%v)", out, err)
	}
	if out = runOK(t, append([]string{"records", "list", "lease"}, set...)...); !strings.Contains(out, "malformed: ") {
		t.Errorf("listed %s", out)
	}
}

func TestATooLargeRecordIsRefusedAndNotCutOff(t *testing.T) {
	got := runWith(t, strings.Repeat(" ", 256<<10)+`{"revision": 1}`, "records", "put", "control", "--set", "store.file.dir="+t.TempDir())
	if got.code != exitNo || !strings.Contains(got.stderr, "standard input:") {
		t.Errorf("got %+v", got)
	}
}

func TestEveryFaultOfCheckHasItsPlace(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"gateway.yaml":      "store: {file: {dir: records}}\nidentity: {tokens_file: gone.yaml}\npolicies: {path: rules}\n",
		"rules/a.rego":      "package sluice.custom\n\ndeny contains \"x\" if {\n\tinput.a\n",
		"records/keep.json": "{}",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := runWith(t, "", "check", "-c", filepath.Join(dir, "gateway.yaml"))
	for _, want := range []string{"gateway.yaml:2:25: identity.tokens_file: ", "a.rego:5:1: rego_parse_error: "} {
		if got.code != exitNo || !strings.Contains(got.stderr, want) {
			t.Errorf("%q is not in %+v", want, got)
		}
	}
}
