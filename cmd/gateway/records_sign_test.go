package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"sluice/internal/authz"
	"sluice/internal/snapshot"
	"sluice/internal/worker/sample"
	"strings"
	"testing"
	"time"
)

// signer is somebody who signs records with keys that the command made.
type signer struct {
	t   *testing.T
	dir string
}

func newSigner(t *testing.T) signer { return signer{t, t.TempDir()} }

func (s signer) path(name string) string { return filepath.Join(s.dir, name) }

// key makes a key and adds its entry to the keys file.
func (s signer) key(name string, args ...string) {
	s.t.Helper()
	entry := runOK(s.t, append([]string{"records", "keygen", "--out", s.path(name)}, args...)...)
	f, err := os.OpenFile(s.path("keys.yaml"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(entry); err != nil {
		s.t.Fatal(err)
	}
}

// sign signs a record, which is given as it is written.
func (s signer) sign(key, kind, id, text string, args ...string) string {
	s.t.Helper()
	args = append([]string{"records", "sign", kind, id, "-", "--key", s.path(key)}, args...)
	if kind == "control" {
		args = append(args[:3], args[4:]...)
	}
	got := runWith(s.t, text, args...)
	if got.code != exitFine {
		s.t.Fatalf("sign %s %s: %+v", kind, id, got)
	}
	return got.stdout
}

const plainLease = `{"id": "l", "tenantId": "acme", "status": "active", "revision": 3}`

func TestAMadeKeySignsWhatItsEntryVerifies(t *testing.T) {
	for _, args := range [][]string{nil, {"--alg", "ES256"}, {"--tenant", "acme"}, {"--alg", "ES256", "--tenant", "acme"}} {
		s := newSigner(t)
		s.key("k.jwk", args...)
		if info, err := os.Stat(s.path("k.jwk")); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v: the private key: %v, %v", args, info, err)
		}
		compact := s.sign("k.jwk", "lease", "l", plainLease, "--life", "90s")
		got := runWith(t, compact, "records", "verify", "lease", "l", "--keys", s.path("keys.yaml"))
		says := regexp.MustCompile(`^lease:l: revision 3, signed with key [0-9a-f]{16} \((EdDSA|ES256), (the installation's|tenant acme's)\) at .*Z, counts until .*Z\n$`)
		if got.code != exitFine || !says.MatchString(got.stdout) || got.stderr != "" {
			t.Errorf("%v: got %+v", args, got)
		}
		var answer verifiedRecord
		if err := json.Unmarshal([]byte(runWith(t, compact, "records", "verify", "lease", "l", "-", "--keys", s.path("keys.yaml"), "--json").stdout), &answer); err != nil {
			t.Fatal(err)
		}
		if !answer.Valid || *answer.Revision != 3 || answer.ExpiresAt.Sub(*answer.IssuedAt) != 90*time.Second || !answer.Until.Equal(*answer.ExpiresAt) {
			t.Errorf("%v: got %+v", args, answer)
		}
		if again := runWith(t, "", "records", "keygen", "--out", s.path("k.jwk")); again.code != exitUsage || !strings.Contains(again.stderr, "is there already") {
			t.Errorf("a private key was written over: %+v", again)
		}
	}
}

func TestKeygenAndSignAnswerInJSONToo(t *testing.T) {
	t.Chdir(t.TempDir())
	var made madeKey
	if err := json.Unmarshal([]byte(runOK(t, "records", "keygen", "-o", "json")), &made); err != nil {
		t.Fatal(err)
	}
	if made.KeyFile != "sluice-"+made.Entry.Kid+".jwk" || made.Entry.Alg != "EdDSA" || made.Entry.Kty != "OKP" {
		t.Errorf("made %+v", made)
	}
	got := runWith(t, `{"revision": 7}`, "records", "sign", "control", "--key", made.KeyFile, "-o", "json")
	var signed signedRecord
	if err := json.Unmarshal([]byte(got.stdout), &signed); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	life := time.Until(signed.ExpiresAt)
	if signed.Kind != authz.KindControl || signed.ID != "" || signed.Revision != 7 || signed.Kid != made.Entry.Kid || life > time.Hour || life < 59*time.Minute || strings.Count(signed.JWS, ".") != 2 {
		t.Errorf("signed %+v", signed)
	}
}

func TestWhatIsNotValidIsToldAndExitsWithOne(t *testing.T) {
	s := newSigner(t)
	s.key("k.jwk")
	s.key("acme.jwk", "--tenant", "acme")
	good := s.sign("k.jwk", "lease", "l", plainLease)
	for _, c := range []struct{ name, kind, id, text, want string }{
		{"unsigned", "lease", "l", plainLease, "gateway: lease:l: is not signed\n"},
		{"for another id", "lease", "m", good, "gateway: lease:m: is signed for another record, lease:l\n"},
		{"for another kind", "environment", "l", good, "gateway: environment:l: is signed for another record, lease:l\n"},
		{"altered", "lease", "l", good[:len(good)-10] + "AAAA" + good[len(good)-6:], "gateway: lease:l: its signature is wrong\n"},
		{"for longer than max_life", "lease", "l", s.sign("k.jwk", "lease", "l", plainLease, "--life", "2h"), "gateway: lease:l: its signature is for longer than 1h0m0s\n"},
	} {
		got := runWith(t, c.text, "records", "verify", c.kind, c.id, "--keys", s.path("keys.yaml"))
		if got.code != exitNo || got.stdout != "" || got.stderr != c.want {
			t.Errorf("%s: got %+v, want %q", c.name, got, c.want)
		}
		got = runWith(t, c.text, "records", "verify", c.kind, c.id, "--keys", s.path("keys.yaml"), "-o", "json")
		var answer verifiedRecord
		if err := json.Unmarshal([]byte(got.stdout), &answer); err != nil || got.code != exitNo || answer.Valid || answer.Fault == "" || got.stderr != "" {
			t.Errorf("%s: got %+v", c.name, got)
		}
	}
	got := runWith(t, strings.Replace(plainLease, "acme", "globex", 1), "records", "sign", "lease", "l", "--key", s.path("acme.jwk"))
	if got.code != exitNo || got.stdout != "" || !strings.Contains(got.stderr, "is signed with a key of tenant acme, and is another tenant's") {
		t.Errorf("a tenant signs for another: %+v", got)
	}
	got = runWith(t, "{\n\"id\": 7}", "records", "sign", "lease", "l", "--key", s.path("k.jwk"))
	if got.code != exitNo || got.stdout != "" || !strings.Contains(got.stderr, "standard input:2:7: id: is no id") {
		t.Errorf("what is malformed was signed: %+v", got)
	}
}

func TestWrongUsageOfSigningExitsWithTwo(t *testing.T) {
	s := newSigner(t)
	s.key("k.jwk")
	for args, want := range map[string]string{
		"sign lease l":                                           "missing flags: --key=FILE",
		"sign lease l --key /nowhere/k.jwk":                      "--key: open /nowhere/k.jwk: no such file",
		"sign lease l --key " + s.path("keys.yaml"):              "is no private key to sign records with",
		"sign lease l --life 0s --key " + s.path("k.jwk"):        "--life 0s is not one or more whole seconds",
		"sign lease l --life 1500ms --key " + s.path("k.jwk"):    "--life 1.5s is not one or more whole seconds",
		"sign lease ../l --key " + s.path("k.jwk"):               `"../l" is not an id`,
		"sign lease l /nowhere/l.json --key " + s.path("k.jwk"):  "read the record: open /nowhere/l.json",
		"verify lease l":                                         "no keys to verify with: name them with --keys, or with store.verify.keys_file",
		"verify lease l --keys /nowhere/keys.yaml":               "read the keys file: open /nowhere/keys.yaml",
		"verify lease l --keys " + s.path("k.jwk"):               `k.jwk:1:1: a mapping, where a list is wanted`,
		"keygen --alg HS256":                                     `must be one of "EdDSA","ES256"`,
		"keygen --tenant *":                                      `the tenant "*" is not an id`,
		"keygen --out /nowhere/k.jwk":                            "write the private key: open /nowhere/k.jwk",
		"get lease l --set store.verify.required=true":           "--set store.verify.required: is true and no key is known",
		"get lease l --set store.verify.keys_file=/nowhere/k":    "store.verify.keys_file: read the keys file: open /nowhere/k",
		"verify lease l --set store.verify.keys_file=/nowhere/k": "read the keys file: open /nowhere/k",
	} {
		got := runWith(t, "", append([]string{"records"}, strings.Fields(args)...)...)
		if got.code != exitUsage || got.stdout != "" || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: got %+v, want %q", args, got, want)
		}
	}
}

func TestASignedStoreIsOperatedAsAnother(t *testing.T) {
	s := newSigner(t)
	s.key("k.jwk")
	set := []string{"--set", "store.file.dir=" + s.path("records"), "--set", "store.verify.keys_file=" + s.path("keys.yaml"), "--set", "store.verify.required=true"}
	records := func(stdin string, args ...string) ran {
		return runWith(t, stdin, append(append([]string{"records"}, args...), set...)...)
	}
	lease := func(revision int, status string) string {
		return fmt.Sprintf(`{"id": "l", "tenantId": "acme", "status": %q, "revision": %d}`, status, revision)
	}
	signed := s.sign("k.jwk", "lease", "l", lease(3, "active"))
	for _, c := range []struct {
		name, stdin, args string
		code              int
		stdout, stderr    string
	}{
		{"unsigned", lease(2, "active"), "put lease l", 1, "", "gateway: lease:l: malformed record: is not signed\n"},
		{"for another", signed, "put lease m", 1, "", "gateway: lease:m: malformed record: is signed for another record, lease:l\n"},
		{"signed", signed, "put lease l", 0, "lease:l: revision 3\n", ""},
		{"older", s.sign("k.jwk", "lease", "l", lease(2, "active")), "put lease l", 1, "", "gateway: lease:l, revision 2: the store holds a newer revision (3)\n"},
		{"other content", s.sign("k.jwk", "lease", "l", lease(3, "released")), "put lease l", 1, "", "gateway: lease:l, revision 3: the store holds this revision with other content\n"},
		{"signed again", s.sign("k.jwk", "lease", "l", lease(3, "active"), "--life", "30m"), "put lease l --if-revision 3", 0, "lease:l: revision 3\n", ""},
		{"get", "", "get lease l", 0, lease(3, "active") + "\n", ""},
		{"list", "", "list lease", 0, "ID  REVISION  STATUS\nl   3         active\n", ""},
		{"control", s.sign("k.jwk", "control", "", `{"revision": 1}`), "put control", 0, "control: revision 1\n", ""},
		{"delete of another revision", "", "delete lease l --if-revision 2", 1, "", "gateway: lease:l: the store does not hold the expected revision, 2 (it holds 3)\n"},
	} {
		if got := records(c.stdin, strings.Fields(c.args)...); got != (ran{c.code, c.stdout, c.stderr}) {
			t.Errorf("%s: got %+v", c.name, got)
		}
	}
	raw := records("", "get", "lease", "l", "--signed").stdout
	if got := records(raw, "put", "lease", "l", "-"); got.code != exitFine {
		t.Errorf("what get printed was not put: %+v", got)
	}
	if got := records("", "verify", "lease", "l"); got.code != exitFine || !strings.HasPrefix(got.stdout, "lease:l: revision 3, signed with key ") {
		t.Errorf("got %+v", got)
	}
	if got := runWith(t, "", append([]string{"check"}, set...)...); got.code != exitFine || !strings.Contains(got.stdout, "2 records are fine") {
		t.Errorf("got %+v", got)
	}
	if err := os.WriteFile(s.path("records/leases/l.json"), []byte(lease(4, "active")), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := runWith(t, "", append([]string{"check"}, set...)...); got.code != exitNo || !strings.Contains(got.stderr, "l.json: is not signed\n") {
		t.Errorf("got %+v", got)
	}
	if got := records("", "list", "lease"); got.stdout != "ID  REVISION  STATUS\nl   0         malformed: is not signed\n" {
		t.Errorf("got %+v", got)
	}
	if err := os.WriteFile(s.path("keys.yaml"), []byte("- {kid: a}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := runWith(t, "", append([]string{"check"}, set...)...); got.code != exitNo || !strings.Contains(got.stderr, `keys.yaml:1:3: [0].alg: "" is none of EdDSA, ES256`) || strings.Contains(got.stderr, "l.json") {
		t.Errorf("got %+v", got)
	}
}

// signedScene is a scene all of whose records are signed.
func signedScene(t *testing.T) (*scene, signer) {
	t.Helper()
	s, by := newScene(t), newSigner(t)
	by.key("all.jwk")
	by.key("acme.jwk", "--tenant", "acme", "--alg", "ES256")
	for _, kind := range []string{"control", "plugin", "worker", "lease"} {
		files, err := filepath.Glob(filepath.Join(s.dir, "records", kind+"*.json"))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			id := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), kind+"."), ".json")
			if kind == "control" {
				id = ""
			}
			s.put(kind, id, by.sign("all.jwk", kind, id, string(text)))
		}
	}
	return s, by
}

func (s signer) store() string {
	return fmt.Sprintf("store: {file: {dir: records}, verify: {required: true, keys_file: %q, max_life: 1h}}", s.path("keys.yaml"))
}

// expOf is when a signed record expires.
func expOf(t *testing.T, compact string) time.Time {
	t.Helper()
	header, _, _ := strings.Cut(compact, ".")
	text, err := base64.RawURLEncoding.DecodeString(header)
	var read struct{ Exp int64 }
	if err = errors.Join(err, json.Unmarshal(text, &read)); err != nil || read.Exp == 0 {
		t.Fatalf("the header is %s, %v", text, err)
	}
	return time.Unix(read.Exp, 0)
}

func TestAChannelLastsAsLongAsWhatWasSignedForIt(t *testing.T) {
	t.Parallel()
	s, by := signedScene(t)
	s.put("worker", "wrk-b", by.sign("all.jwk", "worker", "wrk-b", fmt.Sprintf(`{"id": "wrk-b", "tenantId": "acme", "pluginId": "plg-a", "url": %q, "revision": 1}`, serveWorker(t, sample.New(sample.Document{
		ID: "wrk-b", PluginID: "plg-a", Status: "running", Generation: "g1", SupportedMethods: sample.AllMethods,
	})))))
	mine := func(worker string, revision int) string {
		return s.leaseText("mine", fields{"revision": revision, "pin": fields{"driver": "sandbox", "pluginId": "plg-a", "driverKey": "box", "workerId": worker}})
	}
	s.put("lease", "mine", by.sign("acme.jwk", "lease", "mine", mine("wrk-b", 1)))
	s.put("lease", "unsigned", s.leaseText("unsigned", nil))
	s.start(by.store())

	neighbour := s.open("alice", "lease-2")
	tenants := s.open("alice", "mine")
	if p, _ := s.refused("alice", "unsigned"); p.Code != "DUPLEX_CHANNEL_CAPABILITY_DENIED" || s.decision(p.DecisionID).Custom.Sluice.Reason != "RECORD_MALFORMED" {
		t.Errorf("a lease that nobody signed: %+v", p)
	}
	s.logged(`"record":"lease:unsigned","error":"is not signed"`)

	// It expires, and nobody says so.
	short := s.leaseText("short", nil)
	signed := by.sign("all.jwk", "lease", "short", short, "--life", "12s")
	s.put("lease", "short", signed)
	exp := expOf(t, signed)
	channel := s.open("alice", "short")
	if e := closed(t, channel); e.Code != 1008 || time.Now().Before(exp) {
		t.Errorf("closed with %d, %s before its exp", e.Code, time.Until(exp))
	}
	s.within(exp)
	if p, _ := s.refused("alice", "short"); s.decision(p.DecisionID).Custom.Sluice.Reason != "RECORD_MALFORMED" {
		t.Errorf("got %+v", p)
	}
	s.logged("its signature has expired")

	// Signed again it is back, and what writes without a key takes it away.
	s.put("lease", "short", by.sign("all.jwk", "lease", "short", short))
	s.eventually("the lease that was signed again is granted", func() bool {
		conn, _, err := s.connect("alice", "short")
		if err == nil {
			channel = conn
			t.Cleanup(func() { _ = conn.CloseNow() })
		}
		return err == nil
	})
	since := time.Now()
	s.put("lease", "short", s.leaseText("short", fields{"revision": 9}))
	if e := closed(t, channel); e.Code != 1008 {
		t.Errorf("closed with %d", e.Code)
	}
	s.within(since)

	// A tenant's own lease does not reach a worker that others use too.
	since = time.Now()
	s.put("lease", "mine", by.sign("acme.jwk", "lease", "mine", mine("wrk-a", 2)))
	if e := closed(t, tenants); e.Code != 1014 {
		t.Errorf("closed with %d", e.Code)
	}
	s.within(since)
	s.put("lease", "mine", by.sign("acme.jwk", "lease", "mine", mine("wrk-b", 3)))
	s.eventually("the tenant's lease is granted", func() bool {
		conn, _, err := s.connect("alice", "mine")
		if err == nil {
			tenants = conn
			t.Cleanup(func() { _ = conn.CloseNow() })
		}
		return err == nil
	})

	// A key that is taken out of the file takes what it signed along.
	all, err := os.ReadFile(by.path("keys.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(all), "# tenant")
	since = time.Now()
	if err := os.WriteFile(by.path("keys.yaml"), []byte(first), 0o600); err != nil {
		t.Fatal(err)
	}
	if e := closed(t, tenants); e.Code != 1008 {
		t.Errorf("closed with %d", e.Code)
	}
	s.within(since)
	s.logged("is signed with a key that is not known")
	s.echo(neighbour, "still here")
}

func TestTheAdminCallsTakeAndShowSignedRecords(t *testing.T) {
	t.Parallel()
	s, by := signedScene(t)
	s.start(by.store())
	put := func(text string) int {
		status, _, body := s.operator(http.MethodPut, "/v1/records/lease/l", text)
		t.Log(body)
		return status
	}
	large := strings.Replace(plainLease, "{", `{"x": "`+strings.Repeat("x", 250<<10)+`", `, 1)
	if got := put(plainLease); got != http.StatusUnprocessableEntity {
		t.Errorf("unsigned: got %d", got)
	}
	if got := put(by.sign("all.jwk", "lease", "l", large)); got != http.StatusOK {
		t.Errorf("signed: got %d", got)
	}
	status, header, body := s.operator(http.MethodGet, "/v1/records/lease/l", "")
	var got map[string]any
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK || header.Get("ETag") != `"3"` || got["id"] != "l" {
		t.Errorf("got %d %v %v %.100s", status, header, err, body)
	}
	if status, _, body := s.operator(http.MethodDelete, "/v1/records/lease/l", "", "If-Match", `"3"`); status != http.StatusNoContent {
		t.Errorf("got %d %s", status, body)
	}
}

func TestWhatIsNotSignedIsTakenWhereItNeedNotBe(t *testing.T) {
	s := newSigner(t)
	s.key("k.jwk")
	cfg, err := Load("", []string{"store.file.dir=" + s.path("records"), "store.verify.keys_file=" + s.path("keys.yaml")})
	if err != nil {
		t.Fatal(err)
	}
	store, err := openStore(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	k := snapshot.Key{Kind: authz.KindLease, ID: "l"}
	if _, err := store.Put(t.Context(), k, []byte(plainLease), nil); err != nil {
		t.Errorf("unsigned: %v", err)
	}
	if _, err := store.Put(t.Context(), k, []byte(s.sign("k.jwk", "lease", "l", plainLease)), nil); err != nil {
		t.Errorf("signed: %v", err)
	}
	if got := runWith(t, "", "check", "--set", "store.file.dir="+s.path("records"), "--set", "store.verify.keys_file="+s.path("keys.yaml")); !strings.Contains(got.stderr, "warning: store.verify.required: is false, so what is not signed is taken too") {
		t.Errorf("got %+v", got)
	}
}
