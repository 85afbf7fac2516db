package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeFiles lays out files, by name, in a new directory.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, want := range lines {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

func TestCheckWarnsOfWhatARecordProbablyDoesNotMean(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"control.json": "{\"duplexEnabled\": \"true\",\n \"suspendedTenants\": [\"acme\", \"not an id\"], \"revision\": 1}",
		"leases/a.json": `{"id": "a", "tenantId": "t", "status": "Active", "revision": 1, "region": "eu", "environment_id": "e",
  "leasePolicy": "reuse", "configResolution": "okay",
  "capabilities": {"duplexCommandStream": "yes", "duplexCommandstream": true, "rootShell": true},
  "pin": {"driver": "sandbx", "pluginID": "p"}}`,
		"plugins/p.json": `{"id": "p", "status": "running", "revision": 1, "environmentDrivers": [
  {"driverKey": "k", "kind": "sandbox", "sandboxCapabilities": {"duplexCommandStream": 1}}]}`,
		"leases/good.json": `{"id": "good", "tenantId": "t", "status": "active", "revision": 1, "capabilities": {"duplexCommandStream": true}, "pin": null}`,
	})
	got := runWith(t, "", "check", "--records", dir, "--set", "policies.extra_fields=[lease.region]")
	if got.code != exitFine || strings.Contains(got.stderr, "good.json") || strings.Contains(got.stderr, "region") {
		t.Errorf("got %+v", got)
	}
	at := "warning: " + dir
	wantLines(t, got.stderr,
		at+`/control.json:1:19: duplexEnabled: is no boolean`,
		at+`/control.json:2:31: suspendedTenants[1]: "not an id" cannot be a tenant's id`,
		at+`/leases/a.json:1:40: status: nobody knows "Active"; did you mean "active"?`,
		at+`/leases/a.json:1:81: environment_id: is no field of a lease and is dropped; did you mean environmentId?`,
		at+`/leases/a.json:2:18: leasePolicy: nobody knows "reuse"; there are ephemeral,`,
		`configResolution: nobody knows "okay"; there are ok, failed`,
		at+`/leases/a.json:3:43: capabilities.duplexCommandStream: is no boolean`,
		`capabilities.duplexCommandstream: names no capability; did you mean duplexCommandStream?`,
		`capabilities.rootShell: names no capability`+"\n",
		at+`/leases/a.json:4:21: pin.driver: nobody knows "sandbx"; did you mean "sandbox"?`,
		`pin.pluginID: is no field of a pin; did you mean pluginId?`,
		at+`/plugins/p.json:1:23: status: nobody knows "running"; there are installed,`,
		at+`/plugins/p.json:2:30: environmentDrivers[0].kind: nobody knows "sandbox"; there are sandbox_provider,`,
		`environmentDrivers[0].sandboxCapabilities.duplexCommandStream: is no boolean`,
	)
}

func TestPutTakesAndWarnsOfWhatIsProbablyNotMeant(t *testing.T) {
	got := runWith(t, `{"duplexEnable": true, "revision": 1}`, "records", "put", "control", "control", "-", "--set", "store.file.dir="+t.TempDir())
	if got.code != exitFine || got.stdout != "control: revision 1\n" {
		t.Errorf("got %+v", got)
	}
	wantLines(t, got.stderr, "standard input:1:2: duplexEnable: is no field of a control and is dropped; did you mean duplexEnabled?")
}

func TestTheControlRecordMayBeCalledControl(t *testing.T) {
	dir := writeFiles(t, map[string]string{"control.json": `{"duplexEnabled": true, "revision": 1}`})
	got := runWith(t, "", "records", "get", "control", "control", "--set", "store.file.dir="+dir)
	if got.code != exitFine || !strings.Contains(got.stdout, "duplexEnabled") {
		t.Errorf("got %+v", got)
	}
	if got := runWith(t, "", "records", "get", "control", "other", "--set", "store.file.dir="+dir); got.code != exitUsage {
		t.Errorf("got %+v", got)
	}
}

func TestCheckSaysWhatThePoliciesHold(t *testing.T) {
	t.Chdir(t.TempDir())
	dir := writeFiles(t, map[string]string{
		"a.rego": "package sluice.custom\n\ndeny contains \"x\" if input.version == 2\n\ndeny contains \"y\" if input.version == 3\n\nlimits := {} if input.version == 4\n",
	})
	got := runWith(t, "", "check", "--policies", dir)
	if got.code != exitFine || got.stderr != "" || got.stdout != "policies: 2 deny rules, 1 limits\npolicies are fine\n" {
		t.Errorf("got %+v", got)
	}
	got = runWith(t, "", "check", "--policies", writeFiles(t, map[string]string{
		"a.rego": "package sluice.custom\n\ndenny contains \"x\" if not \"a\" in input.principal.roles\n",
	}))
	if got.code != exitFine {
		t.Errorf("got %+v", got)
	}
	wantLines(t, got.stderr, "a.rego:3:1: nobody asks for denny", "a.rego:3:23: without import rego.v2 this not is undefined",
		"there is no rule sluice.custom.deny and no sluice.custom.limits")
	got = runWith(t, "", "check", "--policies", writeFiles(t, map[string]string{"a.rego": "package sluice.custom\n\nlimits := 3\n"}))
	if got.code != exitNo || !strings.Contains(got.stderr, "a.rego:3:1: limits must be an object") {
		t.Errorf("got %+v", got)
	}
}

func TestCheckDoesNotSayThatRecordsItDidNotReadAreFine(t *testing.T) {
	got := runWith(t, "", "check", "--set", "store.type=redis", "--set", "store.redis.addresses=['127.0.0.1:1']")
	if got.code != exitFine || !strings.Contains(got.stdout, "the records were not read: they are in redis") || !strings.HasSuffix(got.stdout, "configuration and policies are fine\n") {
		t.Errorf("got %+v", got)
	}
}

func TestAStartingGatewayLogsWhatCheckWarnsOf(t *testing.T) {
	cfg, err := Load("", []string{"workers.link=static"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	logWarnings(slog.New(slog.NewTextHandler(&out, nil)), cfg)
	wantLines(t, out.String(), "level=WARN", "key=workers.static", "key=identity")
}

func TestEvalTellsWhatIsMalformedAndWhatNobodyReads(t *testing.T) {
	got := runWith(t, `{"request": {"leaseID": "a"}, "records": {"control": {"revision": "1"}}}`+"\n", "eval")
	if got.code != exitFine {
		t.Errorf("got %+v", got)
	}
	wantLines(t, got.stdout, `"reason":"UNAUTHENTICATED"`, `"ignored":["request.leaseID"]`, `"malformed":{"control":"line 1, column 14: revision`)
	got = runWith(t, `{"request": {"leaseId": "a"}}`+"\n", "eval")
	if strings.Contains(got.stdout, "ignored") || strings.Contains(got.stdout, "malformed") {
		t.Errorf("got %+v", got)
	}
	got = runWith(t, "{\n\"request\": {}}\n", "eval")
	if got.code != exitNo || !strings.Contains(got.stdout, "jq -c .") {
		t.Errorf("got %+v", got)
	}
}

func TestAnEditThatExpectsAnotherRevisionNamesBoth(t *testing.T) {
	dir := writeFiles(t, map[string]string{"control.json": `{"duplexEnabled": true, "revision": 5}`})
	for _, args := range [][]string{{"put", "control", "-"}, {"delete", "control"}} {
		got := runWith(t, `{"duplexEnabled": true, "revision": 6}`, append(append([]string{"records"}, args...), "--if-revision", "4", "--set", "store.file.dir="+dir)...)
		if got.code != exitNo || !strings.Contains(got.stderr, "expected revision, 4 (it holds 5)") {
			t.Errorf("got %+v", got)
		}
	}
}
