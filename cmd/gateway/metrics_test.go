package main

import (
	"strconv"
	"strings"
	"testing"
)

func TestBytesCountWhileTheirChannelIsOpenAndPlainRequestsAreNoChannels(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.lease("lease-1", fields{"capabilities": fields{"independentControlCommands": true, "duplexCommandStream": true}, "revision": 2})
	s.start()
	for _, name := range []string{`sluice_channel_ends_total{kind="stream",why="revoked"}`, `sluice_policy_reloads_total{result="refused"}`} {
		if got := s.metric(name); got != "0" {
			t.Errorf("before anything happened %s is %q", name, got)
		}
	}
	s.echo(s.open("alice", "lease-1"), "hello")
	for _, direction := range []string{"to_worker", "to_caller"} {
		s.eventually("bytes "+direction+" are counted", func() bool {
			n, _ := strconv.ParseFloat(s.metric(`sluice_channel_bytes_total{direction="`+direction+`"}`), 64)
			return n >= 7 // a frame of five bytes
		})
	}
	if answer := s.do("POST", "alice", "/v1/leases/lease-1/execute", "hi"); answer.StatusCode != 200 {
		t.Fatalf("answered %d", answer.StatusCode)
	}
	s.eventually("the request's decision is counted", func() bool {
		return s.metric(`sluice_decisions_total{code="ALLOW",kind="request",phase="admit"`) == "1"
	})
	if text := s.metrics(); strings.Contains(text, `sluice_channel_ends_total{kind="request"`) {
		t.Error("a plain request is counted as a channel")
	}
}
