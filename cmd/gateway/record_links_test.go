package main

import (
	"fmt"
	"sluice/internal/authz"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

// What happens to a channel can be followed in the decision log from its open
// to its end, by one id.
func TestTheRecordsOfAChannelAreLinked(t *testing.T) {
	t.Parallel()
	s := newScene(t).start()
	mine, other := s.open("alice", "lease-1"), s.open("alice", "lease-1")
	for i := range 3 {
		s.echo(mine, fmt.Sprint("message ", i))
	}
	s.echo(mine, strings.Repeat("x", 20000))
	s.lease("lease-1", fields{"status": "revoked", "revision": 2})
	for _, conn := range []*websocket.Conn{mine, other} {
		if e := closed(t, conn); e.Code != 1008 {
			t.Errorf("closed with %d %q", e.Code, e.Reason)
		}
	}
	all := func() map[string][]event {
		s.mu.Lock()
		defer s.mu.Unlock()
		by := map[string][]event{}
		for _, e := range s.decisions {
			by[e.Custom.Sluice.ChannelID] = append(by[e.Custom.Sluice.ChannelID], e)
		}
		return by
	}
	s.eventually("both ends are recorded", func() bool {
		return s.countRecorded(func(e event) bool { return e.Custom.Sluice.Ended != nil }) == 2
	})
	records := all()
	if len(records[""]) > 0 || len(records) != 2 {
		t.Fatalf("the records are of %d channels, %d are of none", len(records), len(records[""]))
	}
	talked := map[int64]bool{}
	for id, of := range records {
		var phases []string
		for _, e := range of {
			phases = append(phases, e.Custom.Sluice.Phase)
		}
		opened, rechecked, end := of[0], of[max(0, len(of)-2)], of[len(of)-1]
		if len(of) < 3 || opened.Custom.Sluice.Phase != string(authz.Open) || rechecked.Custom.Sluice.Phase != string(authz.Recheck) || end.Custom.Sluice.Phase != "end" {
			t.Fatalf("channel %s is recorded as %v", id, phases)
		}
		if !opened.Result.Allow || rechecked.Result.Allow || rechecked.Result.Reason != "LEASE_NOT_ACTIVE" {
			t.Errorf("channel %s: %+v, then %+v", id, opened.Result, rechecked.Result)
		}
		ended := end.Custom.Sluice.Ended
		if ended.Why != "revoked" || ended.CloseCode != 1008 || !ended.Opened || ended.LastDecisionID != rechecked.ID {
			t.Errorf("channel %s: the end is recorded as %+v, the last decision was %s", id, ended, rechecked.ID)
		}
		lasted := end.At.Sub(opened.At).Milliseconds()
		if ended.DurationMS < 0 || ended.DurationMS > lasted+1000 {
			t.Errorf("channel %s lasted %d ms, between its records lie %d", id, ended.DurationMS, lasted)
		}
		talked[ended.MessagesToWorker] = true
		// What is counted are the bytes on the wire: each frame has a head, and
		// the close frame is one more.
		said := map[int64]int64{5: 20032, 1: 5}[ended.MessagesToWorker]
		if ended.MessagesToCaller != ended.MessagesToWorker || ended.BytesToWorker < said || ended.BytesToWorker > said+300 || ended.BytesToCaller < said || ended.BytesToCaller > said+300 {
			t.Errorf("channel %s: %+v, of which were said %d bytes", id, ended, said)
		}
	}
	if !talked[5] || !talked[1] {
		t.Errorf("messages: %v", talked)
	}
}
