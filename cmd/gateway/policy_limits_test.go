package main

import (
	"context"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

// The team's own policy lowers what a channel may, each lease its own way, and
// raises nothing.
func TestAPolicyLowersALimitAndRaisesNone(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.write("rules/team.rego", `package sluice.custom

limits := table[input.snapshot.lease.metadata.class]

table := {
	"idle": {"idle_timeout_ms": 700},
	"short": {"max_lifetime_ms": 1500},
	"narrow": {"max_message_bytes": 1000},
	"greedy": {"idle_timeout_ms": 86400000, "max_lifetime_ms": 86400000, "max_message_bytes": 1000000000},
}
`)
	classes := []string{"idle", "short", "narrow", "greedy"}
	for _, class := range classes {
		s.lease("lease-"+class, fields{"metadata": fields{"sandboxProviderPlugin": true, "class": class}})
	}
	s.start(`policies: {path: rules}`, `channels: {idle_timeout: 1m, max_lifetime: 5s, max_message_bytes: 5000, revocation_bound: 20s}`)
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	open := func(class string) *websocket.Conn {
		t.Helper()
		conn, _, err := s.connect("alice", "lease-"+class)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.CloseNow() })
		return conn
	}
	say := func(conn *websocket.Conn, size int) *websocket.Conn {
		t.Helper()
		if err := conn.Write(ctx, websocket.MessageText, []byte(strings.Repeat("x", size))); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	greedy := open("greedy")
	s.echo(greedy, strings.Repeat("x", 4000)) // more than narrow may, and less than the gateway's own limit
	narrow, tooLarge := say(open("narrow"), 1001), say(open("greedy"), 5001)
	idle, short := open("idle"), open("short")
	for name, row := range map[string]struct {
		conn   *websocket.Conn
		code   int
		reason string
	}{
		"idle":                          {idle, 1001, "IDLE_TIMEOUT "},
		"short":                         {short, 1001, "MAX_LIFETIME "},
		"narrow":                        {narrow, 1009, "MESSAGE_TOO_LARGE "},
		"a raise of the message's size": {tooLarge, 1009, "MESSAGE_TOO_LARGE "},
		"a raise of the lifetime":       {greedy, 1001, "MAX_LIFETIME "},
	} {
		e := closed(t, row.conn)
		if int(e.Code) != row.code || !strings.HasPrefix(e.Reason, row.reason) {
			t.Errorf("%s: closed with %d %q", name, e.Code, e.Reason)
		}
	}
	// How long each lasted is the gateway's own measure.
	for class, least := range map[string]int64{"idle": 700, "short": 1500, "greedy": 5000} {
		why := map[string]string{"idle": "idle", "short": "lifetime", "greedy": "lifetime"}[class]
		end := s.recorded(func(e event) bool {
			return e.Custom.Sluice.Lease == "lease-"+class && e.Custom.Sluice.Ended != nil && e.Custom.Sluice.Ended.Why == why
		}).Custom.Sluice.Ended
		if end.DurationMS < least || end.DurationMS > least+bound.Milliseconds() {
			t.Errorf("%s: it lasted %d ms", class, end.DurationMS)
		}
	}
}
