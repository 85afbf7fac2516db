package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// another is a second gateway over the same records and workers.
func (l *life) another(config ...string) *life {
	l.t.Helper()
	s := &scene{t: l.t, dir: l.t.TempDir()}
	s.token("alice", "acme", "")
	other := &life{redisScene: &redisScene{scene: s, redis: l.redis, port: l.port}, process: l.process}
	other.scene.start(append(config, lifeRoutes)...)
	return other
}

// age is a store's section with an age limit.
func (l *life) age(limit string) string {
	return fmt.Sprintf(`store: {type: redis, max_age: %s, redis: {addresses: ["127.0.0.1:%s"]}}`, limit, l.port)
}

// The neighbour is another gateway's, whose age limit is far.
func TestAStoreThatAnswersNobodyEndsChannelsAtItsAgeLimit(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	const limit = 6 * time.Second
	l.scene.start(l.age(limit.String()), lifeRoutes)
	neighbour := l.another(l.age("10m")).talk(t, "websocket", "alice", "lease-1", "duplex")
	var mine []*talk
	for _, transport := range []string{"websocket", "grpc", "sse"} {
		mine = append(mine, l.talk(t, transport, "alice", "lease-1", "duplex"))
	}
	since := time.Now()
	l.redis.Freeze()
	defer l.redis.Thaw()
	for _, k := range mine {
		e := k.ends(t, limit+2*bound)
		if k.transport == "websocket" && (e.status != 1011 || e.code != "AUTHORIZATION_UNAVAILABLE") || k.transport == "grpc" && e.status != 14 {
			t.Errorf("%s: ended with %+v", k.name, e)
		}
		// The last confirmation is older than the freeze, by a ping's interval.
		if after := e.at.Sub(since); after > limit+bound {
			t.Errorf("%s: ended after %v", k.name, after)
		}
	}
	if why := l.ended("lease-1").Custom.Sluice.Ended.Why; why != "undecided" {
		t.Errorf("recorded %s", why)
	}
	l.eventually("it is recorded that the facts were stale", func() bool {
		return l.countRecorded(func(e event) bool { return e.Result != nil && e.Result.Reason == "SNAPSHOT_STALE" }) > 0
	})
	l.agesAgree(limit)
	stay(t, neighbour)
}

// Nothing tells of these: a worker that is only probed, and a rule that looks
// at the clock.
func TestTheTimerFindsWhatNoEventTold(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	l.write("rules/team.rego", "package sluice.custom\n")
	w := l.worker("probed", "plg-a")
	l.lease("probed", fields{"pin": pinned("probed", "plg-a")})
	l.lease("by-day", fields{"metadata": fields{"sandboxProviderPlugin": true, "class": "by day"}})
	l.start(lifeRoutes, `workers: {link: probe}`, `channels: {recheck_interval: 500ms, revocation_bound: 20s}`, `policies: {path: rules}`)

	probed, byDay := l.talk(t, "websocket", "alice", "probed", "duplex"), l.talk(t, "websocket", "alice", "by-day", "duplex")
	neighbour := l.talk(t, "websocket", "alice", "lease-2", "duplex")
	loaded := l.metric(`sluice_policy_reloads_total{result="loaded"}`)
	when := time.Now().Add(8 * time.Second)
	l.write("rules/team.rego", fmt.Sprintf("package sluice.custom\n\ndeny contains \"after hours\" if {\n\tinput.snapshot.lease.metadata.class == \"by day\"\n\tinput.now_ns > %d\n}\n", when.UnixNano()))
	l.eventually("the rule is loaded", func() bool { return l.metric(`sluice_policy_reloads_total{result="loaded"}`) != loaded })
	doc := document("probed", "plg-a", "g1")
	doc.SupportedMethods = nil
	since := time.Now()
	w.update(doc)
	if e := probed.ends(t, 2*bound); e.status != 1008 || e.code != duplexDenied {
		t.Errorf("the worker without a method: %+v", e)
	} else if after := e.at.Sub(since); after > 500*time.Millisecond+bound {
		t.Errorf("the worker without a method: after %v", after)
	}
	if e := byDay.ends(t, time.Until(when)+bound); e.status != 1008 || e.at.Before(when) {
		t.Errorf("the rule of the clock: %+v, %v after its time", e, e.at.Sub(when))
	}
	stay(t, neighbour)
}

// A process that dies takes its connections with it; the caller sees that, and
// the register hears of it whatever the kernel made of the connection.
func TestAWorkerThatIsKilledEndsItsChannels(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	w := l.worker("killed", "plg-a")
	l.lease("killed", fields{"pin": pinned("killed", "plg-a")})
	l.start(lifeRoutes)
	var mine []*talk
	for _, transport := range []string{"websocket", "grpc", "sse"} {
		mine = append(mine, l.talk(t, transport, "alice", "killed", "duplex"))
	}
	neighbour := l.talk(t, "websocket", "alice", "lease-2", "duplex")
	since := time.Now()
	w.kill()
	for _, k := range mine {
		e := k.ends(t, bound)
		if k.transport == "websocket" && e.status != 0 && e.status != 1014 || k.transport == "grpc" && e.status != 14 {
			t.Errorf("%s: ended with %+v", k.name, e)
		}
		if after := e.at.Sub(since); after > bound {
			t.Errorf("%s: ended after %v", k.name, after)
		}
	}
	l.eventually("nothing is left of its channels", func() bool {
		return l.metric(`sluice_channels_open{kind="stream"}`) == "0" && l.metric(`sluice_channels_open{kind="duplex"}`) == "1"
	})
	stay(t, neighbour)
}

// A rule that cannot be evaluated for one lease ends that lease's channels: a
// recheck that fails is no reason to let go on.
func TestARecheckThatFailsEndsTheChannelAndSaysSo(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	l.write("rules/team.rego", "package sluice.custom\n")
	l.lease("broken", fields{"metadata": fields{"sandboxProviderPlugin": true, "since": "not a time"}})
	l.start(lifeRoutes, `policies: {path: rules}`)
	mine, neighbour := l.talk(t, "websocket", "alice", "broken", "duplex"), l.talk(t, "websocket", "alice", "lease-2", "duplex")
	l.write("rules/team.rego", "package sluice.custom\n\ndeny contains \"old\" if time.parse_rfc3339_ns(input.snapshot.lease.metadata.since) < 0\n")
	e := mine.ends(t, 2*bound)
	if e.status != 1011 || e.code != "AUTHORIZATION_UNAVAILABLE" {
		t.Errorf("ended with %+v", e)
	}
	if reason := l.decision(e.decision).Result.Reason; reason != "EVALUATION_ERROR" {
		t.Errorf("recorded %s", reason)
	}
	stay(t, neighbour)
}

// What changes no verdict closes nothing, however many rest on it.
func TestWhatChangesNoVerdictEndsNoneOfManyChannels(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	l.write("rules/team.rego", "package sluice.custom\n")
	// Not the bound is looked at here: a machine too busy to recheck in time
	// would end channels, and be right.
	const busy = `channels: {max_per_lease: 1000, open_rate_per_caller: 100000, revocation_bound: 20s}`
	l.start(lifeRoutes, `policies: {path: rules}`, busy)
	var many []*talk
	for range 30 {
		many = append(many, l.talk(t, "websocket", "alice", "lease-1", "duplex"))
	}
	idle := 170
	for range idle {
		l.open("alice", "lease-1")
	}
	swapped := func(text string) {
		before := l.metric(`sluice_policy_reloads_total{result="loaded"}`)
		l.write("rules/team.rego", text)
		l.eventually("the policy is swapped", func() bool { return l.metric(`sluice_policy_reloads_total{result="loaded"}`) != before })
	}
	swapped("package sluice.custom\n\n# a comment\n")
	swapped("package sluice.custom\n\n# a comment\n\ndeny contains \"never\" if input.snapshot.lease.metadata.class == \"restricted\"\n")
	for n := range 500 {
		text := l.leaseText("lease-1", fields{"metadata": fields{"sandboxProviderPlugin": true, "label": n / 2}, "revision": 2 + n/2})
		if err := l.redis.Client.Set(t.Context(), "sluice:lease:lease-1", text, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	l.configure(lifeRoutes, `policies: {path: rules}`, strings.Replace(busy, "100000", "100001", 1),
		fmt.Sprintf(`store: {type: redis, redis: {addresses: ["127.0.0.1:%s"]}}`, l.port))
	l.logged("the configuration was read again")
	stay(t, many...)
	l.eventually("only those that left are gone", func() bool {
		return l.metric(`sluice_channels_open{kind="duplex"}`) == fmt.Sprint(idle)
	})
	for _, why := range []string{"revoked", "undecided", "worker_failed", "drain"} {
		if n := strings.TrimSpace(l.metric(`sluice_channel_ends_total{kind="duplex",why="` + why + `"}`)); n != "" && n != "0" {
			t.Errorf("%s ended as %s", n, why)
		}
	}
}
