package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// Faults that users of neighbouring gateways have reported, shown on a gateway
// that is a process. docs/faults.md says where the other kinds are shown.

// A drain ends every kind of channel in its own words, after readiness has
// gone, and the process in time.
func TestADrainTellsEveryTransport(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	l.start(lifeRoutes, `channels: {drain_delay: 1s, drain_timeout: 12s, max_per_lease: 100, open_rate_per_caller: 10000}`)
	var talks []*talk
	for range 10 {
		for _, transport := range []string{"websocket", "websocket over HTTP/2", "grpc", "sse"} {
			talks = append(talks, l.talk(t, transport, "alice", "lease-1", "duplex"))
		}
	}
	for range 90 {
		l.open("alice", "lease-2")
	}
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	since, stoodStill := time.Now(), watchForStandstills(t)
	l.eventually("readiness is 503", func() bool {
		answer, err := http.Get("http://" + l.probes + "/readyz")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == 503
	})
	if took := time.Since(since); took > time.Second && !stoodStill(since) {
		t.Errorf("readiness went only after %v", took)
	}
	for _, k := range talks {
		e := k.ends(t, 12*time.Second+bound)
		switch {
		case e.at.Sub(since) < 900*time.Millisecond:
			t.Errorf("%s: ended %v after the signal, before the delay was over", k.name, e.at.Sub(since))
		case strings.HasPrefix(k.transport, "websocket") && (e.status != 1001 || e.code != "SHUTTING_DOWN"):
			t.Errorf("%s: ended with %+v", k.name, e)
		case k.transport == "grpc" && (e.status != 14 || e.code != "SHUTTING_DOWN"):
			t.Errorf("%s: ended with %+v", k.name, e)
		}
	}
	<-l.exited
	if code, took := l.cmd.ProcessState.ExitCode(), time.Since(since); code != 0 || took > 12*time.Second && !stoodStill(since) || took > 12*time.Second+bound {
		t.Errorf("exited with %d after %v", code, took)
	}
	<-l.http2.ended
	if code, ok := <-l.http2.goAways; !ok || code != http2.ErrCodeNo {
		t.Errorf("over HTTP/2 the connection was told to go away with %v, %v", code, ok)
	}
	for _, e := range l.decisions {
		if ended := e.Custom.Sluice.Ended; ended != nil && ended.Why != "drain" {
			t.Errorf("recorded %+v", ended)
		}
	}
}

// Nobody speaks on this channel, and nothing tells of the moment.
func TestASilentChannelEndsByTheClock(t *testing.T) {
	t.Parallel()
	l := &life{redisScene: &redisScene{scene: newScene(t).start()}}
	when := time.Now().Add(clock)
	expires := when.UTC().Format(time.RFC3339Nano)
	l.scene.lease("lease-short", fields{"expiresAt": expires})
	l.credential("shortly", "acme", expires)
	s := l.scene
	byLease, byCredential := s.open("alice", "lease-short"), s.open("shortly", "lease-1")
	for name, code := range map[string]string{"lease": duplexDenied, "credential": "CREDENTIAL_EXPIRED"} {
		conn := byLease
		if name == "credential" {
			conn = byCredential
		}
		e := closed(t, conn)
		if after := time.Since(when); after < -50*time.Millisecond || after > bound {
			t.Errorf("%s: closed %v after its expiry", name, after)
		}
		if e.Code != 1008 || !strings.HasPrefix(e.Reason, code+" ") {
			t.Errorf("%s: closed with %d %q", name, e.Code, e.Reason)
		}
	}
}

func TestATenantsLimitIsNoOthers(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.lease("lease-globex", fields{"tenantId": "globex"})
	s.start(`channels: {max_per_tenant: 3, max_per_lease: 2, max_open: 5}`)
	for _, open := range []string{"lease-1", "lease-1", "lease-2"} {
		s.open("alice", open)
	}
	for lease, reason := range map[string]string{"lease-1": "MAX_PER_LEASE", "lease-2": "MAX_PER_TENANT"} {
		p, answer := s.refused("alice", lease)
		if answer.StatusCode != 429 || p.Code != "DUPLEX_CHANNEL_ROUTE_BUSY" || answer.Header.Get("Retry-After") == "" || string(s.decision(p.DecisionID).Result.Reason) != reason {
			t.Errorf("%s: answered %d %+v for %s", lease, answer.StatusCode, p, s.decision(p.DecisionID).Result.Reason)
		}
	}
	last := s.open("bob", "lease-globex")
	s.open("bob", "lease-globex")
	p, answer := s.refused("bob", "lease-globex")
	if answer.StatusCode != 429 && answer.StatusCode != 503 || p.Code != "DUPLEX_CHANNEL_ROUTE_BUSY" {
		t.Errorf("answered %d %+v", answer.StatusCode, p)
	}
	_ = last.CloseNow()
	s.eventually("a place that was given back is taken", func() bool {
		conn, _, err := s.connect("bob", "lease-globex")
		if err == nil {
			s.t.Cleanup(func() { _ = conn.CloseNow() })
		}
		return err == nil
	})
}

// Sockets that send a head slowly or not at all are cut in time, and hinder
// nobody meanwhile.
func TestSlowHeadsAreCutAndHinderNobody(t *testing.T) {
	t.Parallel()
	const many = 400
	s := newScene(t).start() // header_timeout is five seconds
	var all sync.WaitGroup
	var late sync.Map
	for i := range many {
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		since := time.Now()
		all.Go(func() {
			defer conn.Close()
			for _, b := range []byte("GET /v1/leases/lease-1/duplex HTTP/1.1\r\n") {
				if i%2 == 0 {
					break // silent
				}
				if _, err := conn.Write([]byte{b}); err != nil {
					break
				}
				time.Sleep(300 * time.Millisecond)
			}
			_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
			_, _ = io.Copy(io.Discard, conn)
			if took := time.Since(since); took > 20*time.Second {
				late.Store(i, took)
			}
		})
	}
	for range 20 {
		s.open("alice", "lease-1").CloseNow()
	}
	all.Wait()
	late.Range(func(i, took any) bool {
		t.Errorf("socket %v was cut after %v", i, took)
		return true
	})
}

func TestAnOversizedRequestIsRefusedInWords(t *testing.T) {
	t.Parallel()
	s := newScene(t).start()
	before := s.worker.Counts()
	headers := func(n int, line string) string { return strings.Repeat(line, n) }
	for name, row := range map[string]struct {
		request string
		status  []int
	}{
		"a header of a mebibyte":            {"GET /v1/leases/lease-1/output HTTP/1.1\r\nHost: g\r\nX-Large: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", []int{431}},
		"ten thousand headers":              {"GET /v1/leases/lease-1/output HTTP/1.1\r\nHost: g\r\n" + headers(10000, "X-A: b\r\n") + "\r\n", []int{431}},
		"eight thousand cookies":            {"GET /v1/leases/lease-1/output HTTP/1.1\r\nHost: g\r\nCookie: " + headers(8000, "a=b; ") + "c=d\r\n\r\n", []int{401, 431}},
		"a request line of 64 KiB":          {"GET /" + strings.Repeat("a", 64<<10) + " HTTP/1.1\r\nHost: g\r\n\r\n", []int{414, 431}},
		"a target of ten thousand segments": {"GET " + headers(10000, "/a") + " HTTP/1.1\r\nHost: g\r\n\r\n", []int{414}},
	} {
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		go func() { _, _ = io.WriteString(conn, row.request) }()
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		found := false
		for _, status := range row.status {
			found = found || answer.StatusCode == status
		}
		if !found || answer.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: answered %d %v", name, answer.StatusCode, answer.Header)
		}
		conn.Close()
	}
	if after := s.worker.Counts(); after != before {
		t.Errorf("the worker was touched: %+v, before %+v", after, before)
	}
	if memory := s.metric("process_resident_memory_bytes"); memory == "" {
		t.Error("no memory is measured")
	}
}

// With next to no descriptors the gateway refuses, lives, and serves again.
func TestAGatewayOutOfDescriptorsLivesAndServesAgain(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.limit = "ulimit -n 256; "
	s.start(`channels: {max_per_lease: 1000, open_rate_per_caller: 100000}`)
	kept := s.open("alice", "lease-1")
	var conns []net.Conn
	for range 1000 {
		conn, err := net.DialTimeout("tcp", s.address, time.Second)
		if err != nil {
			break // the backlog is full too
		}
		conns = append(conns, conn)
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = io.WriteString(conn, "GET /v1/leases/lease-1/duplex HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer token-of-alice\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	}
	opened := 0
	for _, conn := range conns {
		_ = conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if answer, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil && answer.StatusCode == 101 {
			opened++
		}
	}
	t.Logf("%d of %d opened", opened, len(conns))
	if opened > 128 {
		t.Errorf("%d channels opened with 256 descriptors", opened)
	}
	s.echo(kept, "still here")
	for _, conn := range conns {
		conn.Close()
	}
	s.eventually("channels open again", func() bool {
		conn, _, err := s.connect("alice", "lease-2")
		if err == nil {
			conn.CloseNow()
		}
		return err == nil
	})
	s.echo(kept, "and still")
	if code := s.term(); code != 0 {
		t.Errorf("exited with %d", code)
	}
}
