package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sluice/internal/worker/sample"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

func TestATermDrains(t *testing.T) {
	t.Parallel()
	s := newScene(t).start(`channels: {drain_delay: 1s, drain_timeout: 5s}`)
	conns := make([]*websocket.Conn, 10)
	for i := range conns {
		conns[i] = s.open("alice", "lease-1")
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.eventually("readiness is 503", func() bool {
		answer, err := http.Get("http://" + s.probes + "/readyz")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == 503
	})
	s.eventually("an open is refused", func() bool {
		conn, answer, err := s.connect("alice", "lease-1")
		if err == nil {
			conn.CloseNow()
			return false
		}
		if answer == nil {
			t.Fatalf("refused without an answer: %v", err)
		}
		p := readProblem(t, answer)
		if answer.StatusCode != 503 || p.Code != "SHUTTING_DOWN" || answer.Header.Get("Retry-After") == "" {
			t.Fatalf("answered %+v", p)
		}
		return true
	})
	for _, conn := range conns {
		if e := closed(t, conn); e.Code != 1001 || !strings.HasPrefix(e.Reason, "SHUTTING_DOWN ") {
			t.Errorf("closed with %d %q", e.Code, e.Reason)
		}
	}
	<-s.exited
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exited with %d", code)
	}
}

func TestASecondTermEndsAtOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t).start(`channels: {drain_delay: 20s, drain_timeout: 25s}`)
	s.open("alice", "lease-1")
	s.cmd.Process.Signal(syscall.SIGTERM)
	s.logged("draining")
	since := time.Now()
	s.cmd.Process.Signal(syscall.SIGTERM)
	<-s.exited
	if took := time.Since(since); took > 10*time.Second {
		t.Errorf("ended after %v", took)
	}
}

func TestAChangedConfigurationIsTakenOrRefusedWhole(t *testing.T) {
	t.Parallel()
	s := newScene(t).start()
	conn := s.open("alice", "lease-1")
	if answer := s.get("alice", "/other/lease-1", handshakeHeaders...); answer.StatusCode != 404 {
		t.Fatalf("answered %d", answer.StatusCode)
	}
	s.configure(`routes: [{path: "/other/{lease}", capability: duplexCommandStream, kind: duplex}]`)
	s.eventually("the new route serves", func() bool {
		answer := s.get("", "/other/lease-1", handshakeHeaders...)
		return answer.StatusCode == 401
	})
	s.configure(`routes: [{path: "/third/{lease}", capability: duplexCommandStream, kind: nonsense}]`)
	s.cmd.Process.Signal(syscall.SIGHUP)
	s.logged("the changed configuration is refused; the old one stays")
	if answer := s.get("", "/other/lease-1", handshakeHeaders...); answer.StatusCode != 401 {
		t.Errorf("the old route is gone: %d", answer.StatusCode)
	}
	s.write("strict/team.rego", "package sluice.custom\n\ndeny contains \"no\" if true\n")
	s.write("bad.yaml", "no list of tokens\n")
	s.configure(`routes: [{path: "/other/{lease}", capability: duplexCommandStream, kind: duplex}]`,
		`policies: {path: strict}`, `identity: {tokens_file: bad.yaml}`)
	s.logged("bad.yaml:1:1")
	if answer := s.get("alice", "/other/lease-1", handshakeHeaders...); answer.StatusCode != 404 { // the worker's
		t.Errorf("the refused configuration's policies decide: %d", answer.StatusCode)
	}
	s.echo(conn, "still here")
}

func TestATeamsRuleTakesEffectOnOpenChannelsAndABadOneDoesNot(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.lease("lease-2", fields{"metadata": fields{"sandboxProviderPlugin": true, "class": "restricted"}})
	s.write("rules/team.rego", "package sluice.custom\n")
	s.start(`policies: {path: rules}`)
	open, restricted := s.open("alice", "lease-1"), s.open("alice", "lease-2")

	s.write("rules/team.rego", "package sluice.custom\n\ndeny contains \"x\" if {\n")
	s.logged("policies refused")
	s.echo(open, "the old rules stay")
	if got := s.metric(`sluice_policy_reloads_total{result="refused"}`); got == "" || got == "0" {
		t.Errorf("refused reloads: %q", got)
	}
	s.write("rules/team.rego", "package sluice.custom\n\ndeny contains \"restricted class\" if input.snapshot.lease.metadata.class == \"restricted\"\n")
	if e := closed(t, restricted); e.Code != 1008 || !strings.HasPrefix(e.Reason, "DUPLEX_CHANNEL_CAPABILITY_DENIED ") {
		t.Errorf("closed with %d %q", e.Code, e.Reason)
	}
	s.echo(open, "the other lease keeps its channel")
	p, _ := s.refused("alice", "lease-2")
	if reason := s.decision(p.DecisionID).Result.Reason; reason != "CUSTOM_DENY" {
		t.Errorf("recorded %s", reason)
	}
}

func TestWithoutAnythingConfiguredEverythingIsRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.run(`identity: {}`, `store: {file: {dir: nowhere}}`)
	answer := s.get("alice", "/v1/leases/lease-1/duplex", handshakeHeaders...)
	if p := readProblem(t, answer); answer.StatusCode != 401 || p.Code != "UNAUTHENTICATED" || answer.Header.Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("answered %d %+v", answer.StatusCode, p)
	}
	live, err := http.Get("http://" + s.probes + "/livez")
	if err != nil || live.StatusCode != 200 {
		t.Errorf("livez: %v %v", live, err)
	}
	ready, err := http.Get("http://" + s.probes + "/readyz?verbose")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(ready.Body)
	if ready.StatusCode != 503 || !strings.Contains(string(body), "store") {
		t.Errorf("readyz: %d %s", ready.StatusCode, body)
	}
}

func TestAPolicyThatIsNotThereDeniesEverything(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.run(`policies: {path: nowhere}`)
	p, answer := s.refused("alice", "lease-1")
	if answer.StatusCode != 503 || p.Code != "AUTHORIZATION_UNAVAILABLE" || s.decision(p.DecisionID).Result.Reason != "POLICY_NOT_LOADED" {
		t.Errorf("answered %d %+v", answer.StatusCode, p)
	}
	ready, _ := http.Get("http://" + s.probes + "/readyz")
	health, _ := http.Get("http://" + s.probes + "/health?bundles")
	if ready.StatusCode != 503 || health.StatusCode != 500 {
		t.Errorf("readyz %d, health %d", ready.StatusCode, health.StatusCode)
	}
	s.write("nowhere/team.rego", "package sluice.custom\n")
	s.eventually("the gateway becomes ready", func() bool {
		ready, err := http.Get("http://" + s.probes + "/readyz")
		return err == nil && ready.StatusCode == 200
	})
	s.open("alice", "lease-1")
}

func TestARunawayRuleIsStoppedAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.write("rules/team.rego", `package sluice.custom

deny contains "never" if {
	input.request.lease_id == "lease-2"
	count([1 | some i in numbers.range(1, 3000); some j in numbers.range(1, 3000); i * j == 7]) < 0
}
`)
	s.start(`policies: {path: rules}`, `evaluation: {timeout: 300ms}`)
	p, answer := s.refused("alice", "lease-2")
	if answer.StatusCode != 503 || s.decision(p.DecisionID).Result.Reason != "EVALUATION_TIMEOUT" {
		t.Errorf("answered %d %+v", answer.StatusCode, s.decision(p.DecisionID).Result)
	}
	s.open("alice", "lease-1")
}

func TestOperatorsPutRecordsAndAskWhy(t *testing.T) {
	t.Parallel()
	s := newScene(t).start()
	status, header, body := s.operator("GET", "/v1/records/lease/lease-1", "")
	if status != 200 || header.Get("ETag") != `"1"` || !strings.Contains(body, `"lease-1"`) {
		t.Fatalf("answered %d %v %s", status, header, body)
	}
	conn := s.open("alice", "lease-1")
	for precondition, want := range map[[2]string]int{
		{"If-Match", `"7"`}: 412, {"If-None-Match", "*"}: 412, // of an edit that has not seen what is there
		{"If-Match", "1"}: 400, {"If-Match", `"-1"`}: 400, {"If-None-Match", `"1"`}: 400,
	} {
		if status, _, body := s.operator("PUT", "/v1/records/lease/lease-1", s.leaseText("lease-1", fields{"status": "revoked", "revision": 2}), precondition[0], precondition[1]); status != want {
			t.Errorf("with %v an edit was answered %d %s", precondition, status, body)
		}
	}
	if status, _, body := s.operator("PUT", "/v1/records/lease/lease-new", s.leaseText("lease-new", nil), "If-Match", "*"); status != 412 {
		t.Errorf("an edit of nothing was answered %d %s", status, body)
	}
	if status, _, body := s.operator("PUT", "/v1/records/lease/lease-1", s.leaseText("lease-1", fields{"status": "revoked", "revision": 2}), "If-Match", `"1"`); status != 200 {
		t.Errorf("an edit was answered %d %s", status, body)
	}
	if e := closed(t, conn); e.Code != 1008 {
		t.Errorf("closed with %d", e.Code)
	}
	for name, row := range map[string]struct {
		method, path, body string
		status             int
	}{
		"an older revision": {"PUT", "/v1/records/lease/lease-1", s.leaseText("lease-1", nil), 409},
		"an equal one":      {"PUT", "/v1/records/lease/lease-1", s.leaseText("lease-1", fields{"revision": 2}), 409},
		"a malformed one":   {"PUT", "/v1/records/lease/lease-1", `{"id": "lease-1", "id": "lease-1"}`, 422},
		"another id":        {"PUT", "/v1/records/lease/lease-1", s.leaseText("lease-2", fields{"revision": 9}), 422},
		"no such record":    {"GET", "/v1/records/lease/lease-77", "", 404},
		"no such kind":      {"GET", "/v1/records/thing/x", "", 400},
		"no id":             {"GET", "/v1/records/lease/..", "", 404},
		"a list":            {"GET", "/v1/records/lease", "", 200},
		"no question":       {"POST", "/v1/explain", `{}`, 400},
		"a question":        {"POST", "/v1/explain", `{"leaseId": "lease-1", "capability": "duplexCommandStream"}`, 200},
		"worth a teardown":  {"GET", "/v1/leases/lease-1/teardown", "", 200},
		"a deletion":        {"DELETE", "/v1/records/lease/lease-2", "", 204},
	} {
		if status, _, body := s.operator(row.method, row.path, row.body); status != row.status {
			t.Errorf("%s: answered %d %s", name, status, body)
		}
	}
	_, _, body = s.operator("POST", "/v1/explain", `{"leaseId": "lease-1", "capability": "duplexCommandStream"}`)
	var why struct {
		Decision struct{ Reason string }
		Gates    []struct{ Pass bool }
	}
	if err := json.Unmarshal([]byte(body), &why); err != nil || why.Decision.Reason != "LEASE_NOT_ACTIVE" || len(why.Gates) != 32 || why.Gates[11].Pass || !why.Gates[10].Pass {
		t.Errorf("explained by %s", body)
	}
	if _, _, body := s.operator("GET", "/v1/leases/lease-1/teardown", ""); !strings.Contains(body, "WORKER_RUNNING") {
		t.Errorf("teardown: %s", body)
	}
}

func TestTheAdminListenerTakesNobodyElse(t *testing.T) {
	t.Parallel()
	s := newScene(t).start()
	for name, row := range map[string]struct {
		header []string
		status int
	}{
		"a wrong token":    {[]string{"Authorization", "Bearer x"}, 401},
		"a foreign host":   {[]string{"Host", "evil.test"}, 403},
		"a browser":        {[]string{"Origin", "https://evil.test"}, 403},
		"its own operator": {nil, 200},
	} {
		if status, _, body := s.operator("GET", "/v1/records/lease", "", row.header...); status != row.status {
			t.Errorf("%s: answered %d %s", name, status, body)
		}
	}
	for _, path := range []string{"//v1/records/lease", "/v1/../v1/records/lease", "/v1/records/lease/"} {
		if status, _, body := s.operator("GET", path, ""); status != 404 {
			t.Errorf("%s: answered %d %s", path, status, body)
		}
	}
	for _, path := range []string{"/metrics", "/livez", "/readyz", "/v1/records/lease", "/debug/pprof/", "/v1/data"} {
		if answer := s.get("alice", path); answer.StatusCode != 404 {
			t.Errorf("the data plane answers %s with %d", path, answer.StatusCode)
		}
	}
}

func TestACallerLooksBeforeItOpens(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.lease("lease-revoked", fields{"status": "revoked"})
	s.lease("lease-foreign", fields{"tenantId": "globex"})
	s.put("lease", "lease-malformed", "{")
	s.start()
	var look struct {
		LeaseID      string
		Capabilities map[string]bool
		Revision     int64
	}
	read := func(lease string) int {
		answer := s.get("alice", "/v1/leases/"+lease+"/capabilities")
		if answer.StatusCode == 200 {
			look.Capabilities = nil
			if err := json.NewDecoder(answer.Body).Decode(&look); err != nil {
				t.Fatal(err)
			}
		}
		return answer.StatusCode
	}
	if status := read("lease-1"); status != 200 || len(look.Capabilities) != 9 || look.Revision != 1 || look.LeaseID != "lease-1" {
		t.Fatalf("answered %d %+v", status, look)
	}
	for name, granted := range look.Capabilities {
		if !granted {
			t.Errorf("%s is not granted", name)
		}
	}
	if status := read("lease-revoked"); status != 200 || len(look.Capabilities) != 9 {
		t.Fatalf("answered %d %+v", status, look)
	}
	for name, granted := range look.Capabilities {
		if granted {
			t.Errorf("%s is granted on a revoked lease", name)
		}
	}
	var bodies []string
	for _, lease := range []string{"lease-missing", "lease-foreign", "lease-malformed"} {
		answer := s.get("alice", "/v1/leases/"+lease+"/capabilities")
		p := readProblem(t, answer)
		if answer.StatusCode != 403 || p.Code != "SANDBOX_CAPABILITY_DENIED" {
			t.Errorf("%s: answered %d %+v", lease, answer.StatusCode, p)
		}
		p.DecisionID = ""
		text, _ := json.Marshal(p)
		bodies = append(bodies, string(text))
	}
	if bodies[0] != bodies[1] || bodies[1] != bodies[2] {
		t.Errorf("the answers differ: %v", bodies)
	}
	if answer := s.get("", "/v1/leases/lease-1/capabilities"); answer.StatusCode != 401 {
		t.Errorf("without a credential: %d", answer.StatusCode)
	}
}

func TestAStandardClientOfAnotherMake(t *testing.T) {
	t.Parallel()
	s := newScene(t).start()
	script := `
import asyncio, sys, websockets
async def main():
    uri, token = sys.argv[1:]
    async with websockets.connect(uri, extra_headers={"Authorization": "Bearer " + token}) as ws:
        for message in ["hello", b"\x00\x01" * 70000, "caf\u00e9"]:
            await ws.send(message)
            assert await ws.recv() == message
        await ws.ping()
    try:
        await websockets.connect(uri.replace("lease-1", "lease-9"), extra_headers={"Authorization": "Bearer " + token})
    except websockets.InvalidStatusCode as e:
        print("echoed, then refused with", e.status_code)
asyncio.run(main())
`
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "/usr/bin/python3", "-c", script, "ws://"+s.address+"/v1/leases/lease-1/duplex", "token-of-alice").CombinedOutput()
	if err != nil || string(out) != "echoed, then refused with 403\n" {
		t.Errorf("%v %s", err, out)
	}
}

func TestPlainRequestsAndStreamsAreJudgedAndCarried(t *testing.T) {
	t.Parallel()
	s := newScene(t).start()
	answer := s.do("POST", "alice", "/v1/leases/lease-1/execute", "echo this")
	body, _ := io.ReadAll(answer.Body)
	if answer.StatusCode != 200 || !strings.Contains(string(body), "echo this") {
		t.Errorf("execute: %d %s", answer.StatusCode, body)
	}
	if answer := s.do("POST", "bob", "/v1/leases/lease-1/execute", "x"); answer.StatusCode != 403 {
		t.Errorf("execute by bob: %d", answer.StatusCode)
	}
	stream := s.get("alice", "/v1/leases/lease-1/output")
	if stream.StatusCode != 200 || !strings.HasPrefix(stream.Header.Get("Content-Type"), "text/event-stream") {
		t.Fatalf("output: %d %v", stream.StatusCode, stream.Header)
	}
	if _, err := stream.Body.Read(make([]byte, 1)); err != nil {
		t.Fatalf("output: %v", err)
	}
	s.lease("lease-1", fields{"status": "revoked", "revision": 2})
	since := time.Now()
	if _, err := io.ReadAll(stream.Body); err == nil {
		t.Error("the revoked stream ended as if it were complete")
	}
	s.within(since)
	if why := s.ended("lease-1").Custom.Sluice.Ended.Why; why != "revoked" {
		t.Errorf("recorded %s", why)
	}
}

func TestTheWorkerGetsTheGatewaysHeadersAndNoneOfTheCallers(t *testing.T) {
	t.Parallel()
	s := newScene(t).start()
	spoofed := []string{
		"Sluice-Subject", "root", "Sluice_Tenant_Id", "evil", "X-Forwarded-For", "6.6.6.6", "X_Forwarded_User", "root", "Forwarded", "for=6.6.6.6",
		"X-Real-Ip", "6.6.6.6", "X-Original-Url", "/admin", "Cookie", "a=b", "X-Request-Id", "mine", "X-Harmless", "stays",
	}
	s.get("alice", "/v1/leases/lease-1/duplex", append(spoofed, handshakeHeaders...)...)
	s.do("POST", "alice", "/v1/leases/lease-1/execute", "x", spoofed...)
	s.eventually("the worker saw both", func() bool { return len(s.worker.Heads()) == 2 })
	for _, head := range s.worker.Heads() {
		want := map[string]string{
			"Sluice-Subject": "alice", "Sluice-Tenant-Id": "acme", "Sluice-Lease-Id": "lease-1", "Sluice-Driver-Key": "box",
			"Sluice-Provider-Lease-Id": "sbx-lease-1", "Sluice-Worker-Generation": "g1", "X-Forwarded-For": "127.0.0.1",
			"X-Forwarded-Host": s.address, "X-Forwarded-Proto": "http", "X-Harmless": "stays", "Cookie": "a=b",
		}
		for name, value := range want {
			if got := head.Header.Values(name); len(got) != 1 || got[0] != value {
				t.Errorf("%s: %s is %q, want %q", head.Path, name, got, value)
			}
		}
		for _, name := range []string{"Sluice-Decision-Id", "X-Request-Id", "Traceparent"} {
			if got := head.Header.Values(name); len(got) != 1 || got[0] == "mine" || len(got[0]) < 20 {
				t.Errorf("%s: %s is %q", head.Path, name, got)
			}
		}
		for name := range head.Header {
			switch http.CanonicalHeaderKey(name) {
			case "Authorization", "Forwarded", "X-Real-Ip", "X-Original-Url", "X_forwarded_user", "Sluice_tenant_id":
				t.Errorf("%s: the worker got %s", head.Path, name)
			}
		}
	}
}

func TestABrowserOffersItsCredentialAsASubprotocol(t *testing.T) {
	t.Parallel()
	s := newScene(t).start(`identity: {tokens_file: tokens.yaml, allowed_origins: ["https://app.test"]}`)
	const credential = "sluice.bearer.dG9rZW4tb2YtYWxpY2U" // base64url of "token-of-alice"
	dial := func(header http.Header, offers ...string) (*websocket.Conn, *http.Response, error) {
		return websocket.Dial(t.Context(), "ws://"+s.address+"/v1/leases/lease-1/duplex", &websocket.DialOptions{HTTPHeader: header, Subprotocols: offers})
	}
	conn, answer, err := dial(http.Header{"Origin": {"https://app.test"}}, "sluice.v1", credential)
	if err != nil {
		t.Fatal(err)
	}
	s.echo(conn, "hello")
	conn.CloseNow()
	if selected := answer.Header.Get("Sec-WebSocket-Protocol"); selected != "sluice.v1" {
		t.Errorf("selected %q", selected)
	}
	for _, head := range s.worker.Heads() {
		if strings.Contains(head.Header.Get("Sec-WebSocket-Protocol"), "bearer") {
			t.Errorf("the worker got %v", head.Header)
		}
	}
	_, answer, _ = dial(http.Header{"Origin": {"https://evil.test"}}, "sluice.v1", credential)
	if p := readProblem(t, answer); answer.StatusCode != 403 || p.Code != "ORIGIN_NOT_ALLOWED" || p.DecisionID != "" {
		t.Errorf("a foreign page was answered %d %+v", answer.StatusCode, p)
	}
	if _, answer, _ = dial(nil, credential); answer.StatusCode != 400 {
		t.Errorf("a credential alone was answered %d", answer.StatusCode)
	}
	if _, answer, _ = dial(bearer("alice"), "sluice.v1", credential); answer.StatusCode != 400 {
		t.Errorf("two credentials were answered %d", answer.StatusCode)
	}
}

func TestSecretsAreInNoLog(t *testing.T) {
	t.Parallel()
	s := newScene(t).start()
	s.get("alice", "/v1/leases/lease-1/duplex?access_token=canary-in-query", append([]string{"Cookie", "canary-in-cookie"}, handshakeHeaders...)...)
	s.get("", "/v1/leases/lease-1/duplex", append([]string{"Authorization", "Bearer canary-in-header"}, handshakeHeaders...)...)
	s.get("", "/v1/leases/lease-1/duplex", append([]string{"Sec-WebSocket-Protocol", "x, sluice.bearer.Y2FuYXJ5LWluLXByb3RvY29s"}, handshakeHeaders...)...)
	s.term()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.decisions) == 0 {
		t.Fatal("nothing was logged")
	}
	for _, expected := range []string{`"headers":{`, `"path":"/v1/leases/lease-1/duplex"`} { // so that there is what to look through
		if !strings.Contains(s.stdout.String(), expected) {
			t.Errorf("the decision log holds no %s", expected)
		}
	}
	for _, secret := range []string{"canary-in-", "token-of-alice", "Y2FuYXJ5", "access_token", "sluice.bearer"} {
		if strings.Contains(s.log.String(), secret) || strings.Contains(s.stdout.String(), secret) {
			t.Errorf("%s is in a log", secret)
		}
	}
}

func TestTheOnRampInFrontOfAnUnmodifiedServer(t *testing.T) {
	t.Parallel()
	// A WebSocket server that has never heard of the gateway: it serves no
	// live document.
	w := sample.New(sample.Document{})
	w.Misbehave(sample.Faults{LinkStatus: 404})
	url := serveWorker(t, w)
	dir := filepath.Join(t.TempDir(), "first")
	out, err := gatewayCommand(t.Context(), "init", "--worker", url, dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if out, err := gatewayCommand(t.Context(), "check", "-c", filepath.Join(dir, "gateway.yaml")).CombinedOutput(); err != nil {
		t.Errorf("check: %v %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "tokens.yaml")); err != nil {
		t.Error(err)
	}
}
