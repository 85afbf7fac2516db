package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

var transports = []string{"websocket", "websocket over HTTP/2", "grpc", "sse"}

// What is said of channels holds for every transport: what their ends count, how
// a limit of their time ends them, and that they share their lease's places.
func TestEveryTransportIsAChannel(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	l.write("rules/team.rego", "package sluice.custom\n\nlimits := {\"max_lifetime_ms\": 3500} if input.snapshot.lease.metadata.class == \"brief\"\n")
	l.lease("brief", fields{"metadata": fields{"sandboxProviderPlugin": true, "class": "brief"}})
	l.start(lifeRoutes, `policies: {path: rules}`, `channels: {max_per_lease: 4, open_rate_per_caller: 100000, revocation_bound: 20s}`)
	for i := range transports {
		l.lease(fmt.Sprint("counted-", i), nil)
	}

	t.Run("its end counts what was said", func(t *testing.T) {
		var talks []*talk
		for i, transport := range transports {
			talks = append(talks, l.talk(t, transport, "alice", fmt.Sprint("counted-", i), "duplex"))
		}
		stay(t, talks...)
		for i, k := range talks {
			end := l.ended(fmt.Sprint("counted-", i))
			ended, said, heard := end.Custom.Sluice.Ended, k.said.Load(), k.heard.Load()
			opened := l.recorded(func(e event) bool {
				return e.Custom.Sluice.ChannelID == end.Custom.Sluice.ChannelID && e.Custom.Sluice.Phase == "open"
			})
			if !ended.Opened || ended.DurationMS <= 0 || !opened.Result.Allow {
				t.Errorf("%s: recorded %+v, opened by %+v", k.name, ended, opened.Result)
			}
			letters := int64(0)
			for n := range heard {
				letters += int64(len(spoken(n)))
			}
			if ended.BytesToCaller < letters {
				t.Errorf("%s: %d bytes came to the caller, who heard %d", k.name, ended.BytesToCaller, letters)
			}
			if k.transport == "sse" {
				continue // a stream of events is bytes, and only the worker speaks
			}
			if ended.MessagesToWorker != said || ended.MessagesToCaller != heard || ended.BytesToWorker < letters {
				t.Errorf("%s: %d things were said and %d heard, recorded is %+v", k.name, said, heard, ended)
			}
		}
	})

	t.Run("its time is over in its own words", func(t *testing.T) {
		var talks []*talk
		for _, transport := range transports {
			talks = append(talks, l.talk(t, transport, "alice", "brief", "duplex"))
		}
		for _, k := range talks {
			e := k.ends(t, bound)
			switch {
			case strings.HasPrefix(k.transport, "websocket") && (e.status != 1001 || e.code != "MAX_LIFETIME"),
				k.transport == "grpc" && (e.status != 14 || e.code != "MAX_LIFETIME"):
				t.Errorf("%s: ended with %+v", k.name, e)
			}
		}
		l.eventually("all ends are recorded", func() bool {
			return l.countRecorded(func(e event) bool {
				ended := e.Custom.Sluice.Ended
				return e.Custom.Sluice.Lease == "brief" && ended != nil && ended.Why == "lifetime" && ended.DurationMS >= 3500
			}) == len(talks)
		})
	})

	t.Run("its place is its lease's", func(t *testing.T) {
		var talks []*talk
		for _, transport := range transports {
			talks = append(talks, l.talk(t, transport, "alice", "lease-1", "duplex"))
		}
		before := l.process.active("lease-1")
		if p, answer := l.refused("alice", "lease-1"); answer.StatusCode != 429 || p.Code != "DUPLEX_CHANNEL_ROUTE_BUSY" {
			t.Errorf("a WebSocket was answered %d %+v", answer.StatusCode, p)
		}
		_, answer, err := websocket.Dial(t.Context(), "ws://"+l.address+"/v1/leases/lease-1/duplex", &websocket.DialOptions{HTTPHeader: bearer("alice"), HTTPClient: l.streams()})
		if err == nil || answer == nil || answer.StatusCode != 429 || answer.Header.Get("Retry-After") == "" {
			t.Errorf("a WebSocket over HTTP/2 was answered %+v, %v", answer, err)
		}
		if answer := l.get("alice", "/v1/leases/lease-1/output"); answer.StatusCode != 429 {
			t.Errorf("a stream was answered %d", answer.StatusCode)
		}
		call := l.byGRPC(t, "alice", "lease-1")
		if _, err := call.hear(); call.ending(err).status != 8 || call.ending(err).code != "DUPLEX_CHANNEL_ROUTE_BUSY" {
			t.Errorf("a call was answered %+v", call.ending(err))
		}
		call.leave()
		if now := l.process.active("lease-1"); now != before || before != len(transports) {
			t.Errorf("the worker has %d conversations, before %d", now, before)
		}
		stay(t, talks...)
	})
}

// Over HTTP/2 too, whoever may not know whether a lease exists learns nothing
// from how an open is refused.
func TestOverHTTP2AMissingAndAForeignLeaseLookTheSame(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.lease("lease-foreign", fields{"tenantId": "globex"})
	s.put("lease", "lease-malformed", "{")
	s.start()
	caller := callHTTP2(t, s.address)
	for _, row := range []struct{ method, path string }{{"CONNECT", "duplex"}, {"CONNECT", "runner"}, {"GET", "output"}, {"POST", "execute"}, {"GET", "capabilities"}} {
		var seen []string
		for _, lease := range []string{"lease-missing", "lease-malformed", "lease-foreign"} {
			pairs := []string{":method", row.method}
			if row.method == "CONNECT" {
				pairs = append(pairs, ":protocol", "websocket")
			}
			pairs = append(pairs, ":scheme", "http", ":authority", s.address, ":path", "/v1/leases/"+lease+"/"+row.path, "authorization", "Bearer token-of-alice")
			if row.method == "CONNECT" {
				pairs = append(pairs, "sec-websocket-version", "13")
			}
			stream, err := caller.request(pairs...)
			if err != nil {
				t.Fatal(err)
			}
			all := map[string]string{}
			for _, f := range stream.head() {
				all[f.Name] = f.Value
			}
			delete(all, "date")
			body, err := io.ReadAll(stream)
			if err != nil {
				t.Fatal(err)
			}
			_, id, _ := strings.Cut(string(body), `"decision_id":"`)
			id, _, _ = strings.Cut(id, `"`)
			if all[":status"] != fmt.Sprint(http.StatusForbidden) || len(id) != 26 {
				t.Errorf("%s of %s: answered %v %s", row.path, lease, all, body)
				continue
			}
			text := ""
			for _, name := range slices.Sorted(maps.Keys(all)) {
				text += name + ": " + all[name] + "\n"
			}
			seen = append(seen, text+strings.ReplaceAll(string(body), id, ""))
		}
		if len(slices.Compact(seen)) != 1 {
			t.Errorf("%s: the answers differ:\n%s", row.path, strings.Join(seen, "\n---\n"))
		}
	}
	if after := s.worker.Counts(); after.Connections != 0 {
		t.Errorf("the worker was contacted: %+v", after)
	}
}
