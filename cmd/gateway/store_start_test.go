package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sluice/internal/snapshot/redistest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// Without a store a known caller is told that it could not be decided, the
// worker hears nothing, and all is well once the store is there.
func TestAGatewayThatStartsBeforeItsStoreDeniesUntilItComes(t *testing.T) {
	t.Parallel()
	s := &faultScene{scene: newScene(t), t: t}
	port := freePort(t)
	s.run(fmt.Sprintf(`store: {type: redis, redis: {addresses: ["127.0.0.1:%s"]}}`, port))
	p, answer := s.refused("alice", "lease-1")
	if answer.StatusCode != 503 || p.Code != "AUTHORIZATION_UNAVAILABLE" || !p.Retryable || answer.Header.Get("Retry-After") == "" {
		t.Errorf("answered %d %v %+v", answer.StatusCode, answer.Header, p)
	}
	if d := s.decision(p.DecisionID); d.Result.Reason != "SNAPSHOT_STALE" {
		t.Errorf("recorded %+v", d.Result)
	}
	if answer := s.get("alice", "/v1/leases/lease-1/capabilities"); answer.StatusCode != 503 {
		t.Errorf("a look was answered %d", answer.StatusCode)
	}
	if answer := s.get("nobody", "/v1/leases/lease-1/duplex", handshakeHeaders...); answer.StatusCode != 401 {
		t.Errorf("a stranger was answered %d", answer.StatusCode)
	}
	if status, said := s.ready("/readyz?verbose"); status != 503 || !strings.Contains(fmt.Sprint(said["not_ready"]), "store") {
		t.Errorf("ready: %d %v", status, said)
	}
	if counts := s.worker.Counts(); counts.Connections != 0 {
		t.Errorf("the worker was contacted: %+v", counts)
	}

	server := redistest.Start(t, "--bind", "127.0.0.1", "--port", port)
	s.writer = server.Client
	s.fill()
	s.eventually("it is granted", func() bool { return s.granted("lease-1") })
	s.eventually("the gateway is ready", func() bool { status, _ := s.ready("/readyz?verbose"); return status == 200 })
}

// A master that restarts without its data holds no lease: what rests on one
// ends, and comes back with it.
func TestAMasterThatRestartsEmptyEndsTheChannels(t *testing.T) {
	t.Parallel()
	server := redistest.StartNode(t)
	s := newFaultScene(t, server.Client).serve(time.Minute, "", server.Address)
	mine := s.open("alice", "lease-1")
	server.Down()
	s.eventually("the loss is noticed", func() bool { return s.metric("sluice_store_up") == "0" })
	s.echo(mine, "still here") // by what was confirmed a moment ago
	server.Up()
	s.lost(mine)
	end := s.ended("lease-1")
	if end.Custom.Sluice.Ended.Why != "revoked" || end.Custom.Sluice.Reason != "SNAPSHOT_MISSING" {
		t.Errorf("recorded %s for %s", end.Custom.Sluice.Ended.Why, end.Custom.Sluice.Reason)
	}
	s.denied("lease-2", "SNAPSHOT_MISSING")
	s.fill()
	s.eventually("it is granted again", func() bool { return s.granted("lease-1") })
}

// Two gateways have one store and nothing else in common: what any client
// writes into it, both enforce.
func TestAPlainWriteIsEnforcedByEveryGateway(t *testing.T) {
	t.Parallel()
	a := newRedisScene(t).start()
	b := &redisScene{scene: newScene(t), redis: a.redis, port: a.port}
	b.start()
	type pair struct {
		*redisScene
		mine, neighbour *websocket.Conn
	}
	var all []pair
	for _, s := range []*redisScene{a, b} {
		all = append(all, pair{s, s.open("alice", "lease-1"), s.open("alice", "lease-2")})
	}
	since := time.Now()
	a.set("lease:lease-1", a.leaseText("lease-1", fields{"status": "revoked", "revision": 2}))
	for _, p := range all {
		if e := closed(t, p.mine); e.Code != 1008 || !strings.HasPrefix(e.Reason, duplexDenied+" ") {
			t.Errorf("closed with %d %q", e.Code, e.Reason)
		}
		p.within(since)
	}
	for _, p := range all {
		p.echo(p.neighbour, "still here")
		if refused, answer := p.refused("alice", "lease-1"); answer.StatusCode != 403 || p.decision(refused.DecisionID).Result.Reason != "LEASE_NOT_ACTIVE" {
			t.Errorf("answered %d %+v", answer.StatusCode, refused)
		}
	}
}

// The password of the store is in nothing that the gateway says, whatever
// becomes of the store.
func TestTheStoresPasswordIsNowhere(t *testing.T) {
	t.Parallel()
	const password = "canary-of-the-store"
	server := redistest.StartNode(t)
	relay := redistest.StartRelay(t, server.Address)
	s := newFaultScene(t, server.Client)
	ctx := context.Background()
	user := func(password string) {
		t.Helper()
		if err := server.Client.Do(ctx, "ACL", "SETUSER", "gateway", "reset", "on", ">"+password, "~*", "&*", "+@all").Err(); err != nil {
			t.Fatal(err)
		}
	}
	user(password)
	s.write("password", password)
	s.scene.start(fmt.Sprintf(`store: {type: redis, max_age: 2s, redis: {addresses: [%q], username: gateway, password: "${file:%s}"}}`, relay.Address, filepath.Join(s.dir, "password")))
	var said strings.Builder
	listen := func() {
		t.Helper()
		for _, path := range []string{"/metrics", "/readyz?verbose", "/livez", "/health?bundles&plugins"} {
			answer, err := http.Get("http://" + s.probes + path)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			fmt.Fprintf(&said, "%s: %v\n%s\n", path, answer.Header, body)
		}
		for _, path := range []string{"/v1/records/lease", "/v1/records/lease/lease-1", "/v1/channels", "/v1/leases/lease-1/teardown"} {
			status, header, body := s.operator("GET", path, "")
			fmt.Fprintf(&said, "%s: %d %v\n%s\n", path, status, header, body)
		}
		_, header, body := s.operator("POST", "/v1/explain", `{"leaseId": "lease-1", "capability": "duplexCommandStream"}`)
		fmt.Fprintf(&said, "explain: %v\n%s\n", header, body)
		_, _, body = s.operator("PUT", "/v1/records/lease/lease-1", s.leaseText("lease-1", nil))
		fmt.Fprintf(&said, "put: %s\n", body)
		for _, path := range []string{"/v1/leases/lease-1/duplex", "/v1/leases/lease-1/capabilities"} {
			answer := s.get("alice", path, handshakeHeaders...)
			if answer.StatusCode != 101 {
				body, _ := io.ReadAll(answer.Body)
				fmt.Fprintf(&said, "%s: %v\n%s\n", path, answer.Header, body)
			}
		}
	}
	listen()
	lost := func() {
		t.Helper()
		s.eventually("the store is lost", func() bool { status, _ := s.ready("/readyz"); return status == 503 })
		listen()
	}
	// It cannot be reached.
	relay.Refuse(true)
	relay.Cut()
	lost()
	// The password is another one now.
	user("another")
	relay.Refuse(false)
	refuses := func(word string) {
		t.Helper()
		s.eventually("the store answers with "+word, func() bool {
			_, said := s.ready("/readyz?verbose")
			return strings.Contains(fmt.Sprint(said), word)
		})
	}
	refuses("WRONGPASS")
	lost()
	// It may do nothing.
	if err := server.Client.Do(ctx, "ACL", "SETUSER", "gateway", "resetpass", ">"+password, "-@all").Err(); err != nil {
		t.Fatal(err)
	}
	refuses("NOPERM")
	lost()
	// What answers is no Redis.
	relay.To(strings.TrimPrefix(s.url, "http://"))
	relay.Cut()
	lost()
	check := runWith(t, "", "check", "-c", filepath.Join(s.dir, "gateway.yaml"), "--limits")
	list := runWith(t, "", "records", "list", "lease", "-c", filepath.Join(s.dir, "gateway.yaml"))
	fmt.Fprintf(&said, "%+v\n%+v\n", check, list)
	s.term()
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, text := range map[string]string{"an answer": said.String(), "the log": s.log.String(), "the decision log": s.stdout.String()} {
		for line := range strings.Lines(text) {
			if strings.Contains(line, password) {
				t.Errorf("the password is in %s: %s", name, line)
			}
		}
	}
	if len(s.decisions) == 0 || said.Len() == 0 || s.log.Len() == 0 {
		t.Error("nothing was said")
	}
}
