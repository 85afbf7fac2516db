package main

import (
	"context"
	"fmt"
	"os/exec"
	"sluice/internal/snapshot/redistest"
	"strings"
	"testing"
	"time"
)

// redisScene is a scene whose records are in a real Redis.
type redisScene struct {
	*scene
	redis *redistest.Server
	port  string
}

func newRedisScene(t testing.TB) *redisScene {
	s := &redisScene{scene: newScene(t), port: freePort(t)}
	s.redis = redistest.Start(t, "--bind", "127.0.0.1", "--port", s.port)
	s.set("control", `{"duplexEnabled": true, "revision": 1}`)
	s.set("plugin:plg-a", `{"id": "plg-a", "status": "ready", "revision": 1, "environmentDrivers": [{"driverKey": "box", "kind": "sandbox_provider", "sandboxCapabilities": {"duplexCommandStream": true}}]}`)
	s.set("worker:wrk-a", fmt.Sprintf(`{"id": "wrk-a", "pluginId": "plg-a", "url": %q, "revision": 1}`, s.url))
	s.set("lease:lease-1", s.leaseText("lease-1", nil))
	s.set("lease:lease-2", s.leaseText("lease-2", nil))
	return s
}

func (s *redisScene) start(config ...string) *redisScene {
	s.t.Helper()
	s.scene.start(append(config, fmt.Sprintf(`store: {type: redis, redis: {addresses: ["127.0.0.1:%s"]}}`, s.port))...)
	return s
}

// set writes a record as anybody would, with redis-cli.
func (s *redisScene) set(key, text string) { s.cli("SET", "sluice:"+key, text) }

func (s *redisScene) cli(args ...string) string {
	s.t.Helper()
	out, err := exec.Command("redis-cli", append([]string{"-s", s.redis.Addr}, args...)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("redis-cli %v: %v %s", args, err, out)
	}
	return string(out)
}

// within fails when a channel that something must end took longer than its
// bound: by the gateway's own measure, which is the scene's bound, and as seen
// from outside, where a busy machine gets a margin.
func (s *scene) within(since time.Time) {
	s.t.Helper()
	if took := time.Since(since); took > bound {
		s.t.Errorf("it took %v", took)
	}
	lines := s.metrics()
	all, inside := metricIn(lines, "sluice_revocation_delay_seconds_count"), metricIn(lines, `sluice_revocation_delay_seconds_bucket{le="5"}`)
	if all != inside {
		s.t.Errorf("of %q revocations %q were inside the bound", all, inside)
	}
}

func TestARevokedLeaseInRedisClosesItsChannelAndNoOther(t *testing.T) {
	t.Parallel()
	s := newRedisScene(t).start()
	mine, neighbour := s.open("alice", "lease-1"), s.open("alice", "lease-2")
	since := time.Now()
	s.set("lease:lease-1", s.leaseText("lease-1", fields{"status": "revoked", "revision": 2}))
	if e := closed(t, mine); e.Code != 1008 || !strings.HasPrefix(e.Reason, "DUPLEX_CHANNEL_CAPABILITY_DENIED ") {
		t.Errorf("closed with %d %q", e.Code, e.Reason)
	}
	s.within(since)
	s.echo(neighbour, "still here")
	s.eventually("one revocation is measured", func() bool { return s.metric("sluice_revocation_delay_seconds_count") == "1" })
}

func TestADeletedLeaseAndAFlushCloseChannels(t *testing.T) {
	t.Parallel()
	for name, command := range map[string][]string{
		"deleted":      {"DEL", "sluice:lease:lease-1"},
		"flushed":      {"FLUSHALL"},
		"expired":      {"PEXPIRE", "sluice:lease:lease-1", "50"},
		"another type": {"EVAL", "redis.call('DEL', KEYS[1]) return redis.call('LPUSH', KEYS[1], 'x')", "1", "sluice:lease:lease-1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newRedisScene(t).start()
			conn := s.open("alice", "lease-1")
			since := time.Now()
			s.cli(command...)
			if e := closed(t, conn); e.Code != 1008 {
				t.Errorf("closed with %d %q", e.Code, e.Reason)
			}
			s.within(since)
			p, answer := s.refused("alice", "lease-1")
			if answer.StatusCode != 403 || p.Code != "DUPLEX_CHANNEL_CAPABILITY_DENIED" {
				t.Errorf("then answered %d %+v", answer.StatusCode, p)
			}
		})
	}
}

func TestALeaseThatIsWrittenAfterItWasAskedForIsSeen(t *testing.T) {
	t.Parallel()
	s := newRedisScene(t).start()
	s.refused("alice", "lease-9")
	s.set("lease:lease-9", s.leaseText("lease-9", nil))
	s.eventually("the new lease is granted", func() bool {
		conn, _, err := s.connect("alice", "lease-9")
		if err == nil {
			conn.CloseNow()
		}
		return err == nil
	})
}

// Nothing is looked up for a caller who is not known, and nothing for a lease
// that is held and confirmed.
func TestTheStoreIsAskedOnlyWhenItMustBe(t *testing.T) {
	t.Parallel()
	s := newRedisScene(t)
	s.token("late", "acme", "2026-01-01T00:00:00Z")
	s.start(`routes:
  - {path: "/v1/leases/{lease}/duplex", capability: duplexCommandStream, kind: duplex}
  - {path: "/v1/leases/{lease}/none", capability: noSuchCapability, kind: duplex}`)
	s.open("alice", "lease-1").CloseNow()

	reads := s.reads()
	for _, ask := range []struct{ caller, path, code string }{
		{"", "/v1/leases/lease-2/duplex", "UNAUTHENTICATED"},
		{"nobody", "/v1/leases/lease-2/duplex", "UNAUTHENTICATED"},
		{"late", "/v1/leases/lease-2/duplex", "CREDENTIAL_EXPIRED"},
		{"alice", "/v1/leases/lease-2/none", "SANDBOX_CAPABILITY_DENIED"},
	} {
		answer := s.get(ask.caller, ask.path, handshakeHeaders...)
		if p := readProblem(t, answer); p.Code != ask.code || p.DecisionID == "" {
			t.Errorf("%s at %s: answered %+v", ask.caller, ask.path, p)
		}
	}
	for range 20 {
		s.open("alice", "lease-1").CloseNow()
	}
	if now := s.reads(); now != reads {
		t.Errorf("the store was read %s times, before %s", now, reads)
	}
}

var handshakeHeaders = []string{
	"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==",
}

// reads is Redis's own count of what was read.
func (s *redisScene) reads() string {
	info, err := s.redis.Client.Info(context.Background(), "commandstats").Result()
	if err != nil {
		s.t.Fatal(err)
	}
	out := ""
	for line := range strings.Lines(info) {
		if strings.HasPrefix(line, "cmdstat_get") || strings.HasPrefix(line, "cmdstat_mget") || strings.HasPrefix(line, "cmdstat_pttl") {
			calls, _, _ := strings.Cut(line, ",")
			out += calls + " "
		}
	}
	if out == "" {
		s.t.Fatalf("Redis counts no reads: %s", info)
	}
	return out
}

func TestAFrozenRedisMakesNobodyWaitAndThenDenies(t *testing.T) {
	t.Parallel()
	const maxAge = 10 * time.Second
	s := newRedisScene(t)
	s.scene.start(fmt.Sprintf(`store: {type: redis, max_age: %s, redis: {addresses: ["127.0.0.1:%s"]}}`, maxAge, s.port))
	conn := s.open("alice", "lease-1")
	s.redis.Freeze()
	defer s.redis.Thaw()
	s.open("alice", "lease-1") // by what was confirmed a moment ago
	if e := closed(t, conn); e.Code != 1011 || !strings.HasPrefix(e.Reason, "AUTHORIZATION_UNAVAILABLE ") {
		t.Errorf("closed with %d %q", e.Code, e.Reason)
	}
	p, answer := s.refused("alice", "lease-1")
	if answer.StatusCode != 503 || p.Code != "AUTHORIZATION_UNAVAILABLE" || answer.Header.Get("Retry-After") == "" {
		t.Errorf("answered %d %v %+v", answer.StatusCode, answer.Header, p)
	}
	if s.decision(p.DecisionID).Result.Reason != "SNAPSHOT_STALE" {
		t.Errorf("recorded %+v", s.decision(p.DecisionID))
	}
	s.agesAgree(maxAge)
	s.redis.Thaw()
	s.eventually("the gateway grants again", func() bool {
		conn, _, err := s.connect("alice", "lease-1")
		if err == nil {
			conn.CloseNow()
		}
		return err == nil
	})
}

// agesAgree shows, by the gateway's own clock, that what was allowed rested on
// facts inside the age limit, and what was stale on older ones.
func (s *scene) agesAgree(maxAge time.Duration) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh, stale := 0, 0
	for _, e := range s.decisions {
		if e.Result == nil || e.Custom.Sluice.AgeMS == nil {
			continue
		}
		switch age := time.Duration(*e.Custom.Sluice.AgeMS) * time.Millisecond; {
		case e.Result.Allow && age > maxAge:
			s.t.Errorf("allowed by facts %v old: %+v", age, e)
		case e.Result.Allow:
			fresh++
		case e.Result.Reason == "SNAPSHOT_STALE" && age < maxAge:
			s.t.Errorf("stale are facts %v old: %+v", age, e)
		case e.Result.Reason == "SNAPSHOT_STALE":
			stale++
		}
	}
	if fresh == 0 || stale == 0 {
		s.t.Errorf("recorded with an age: %d allowed, %d stale", fresh, stale)
	}
}
