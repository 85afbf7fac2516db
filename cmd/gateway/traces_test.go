package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/protobuf/encoding/protowire"
)

// span is a span as a collector receives it.
type span struct{ trace, id, parent, name string }

// parts are the values of a message's field, which are messages or bytes.
func parts(message []byte, number protowire.Number) (out [][]byte) {
	for len(message) > 0 {
		n, kind, length := protowire.ConsumeTag(message)
		if length < 0 {
			return nil
		}
		message = message[length:]
		if length = protowire.ConsumeFieldValue(n, kind, message); length < 0 {
			return nil
		}
		if n == number && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message)
			out = append(out, value)
		}
		message = message[length:]
	}
	return out
}

// spans reads an export (opentelemetry-proto, ExportTraceServiceRequest).
func spans(export []byte) (out []span) {
	one := func(message []byte, number protowire.Number) []byte {
		return slices.Concat(parts(message, number)...)
	}
	for _, resource := range parts(export, 1) {
		for _, scope := range parts(resource, 2) {
			for _, s := range parts(scope, 2) {
				out = append(out, span{
					trace: hex.EncodeToString(one(s, 1)), id: hex.EncodeToString(one(s, 2)),
					parent: hex.EncodeToString(one(s, 4)), name: string(one(s, 5)),
				})
			}
		}
	}
	return out
}

// An open is one trace, below the caller's own span: who called, by which facts,
// what was decided, and the worker.
func TestAnOpenIsOneTraceBelowTheCallers(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got []span
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Encoding") != "" {
			t.Errorf("the collector was sent %s %v: %v", r.URL.Path, r.Header, err)
		}
		mu.Lock()
		defer mu.Unlock()
		got = append(got, spans(body)...)
	}))
	t.Cleanup(collector.Close)
	s := newScene(t).start(fmt.Sprintf(`telemetry: {traces: {otlp_endpoint: %q}}`, collector.URL))
	const trace, caller = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	header := bearer("alice")
	header.Set("Traceparent", "00-"+trace+"-"+caller+"-01")
	conn, _, err := websocket.Dial(t.Context(), "ws://"+s.address+"/v1/leases/lease-1/duplex", &websocket.DialOptions{HTTPHeader: header})
	if err != nil {
		t.Fatal(err)
	}
	s.echo(conn, "hello")
	_ = conn.CloseNow()
	s.ended("lease-1")
	s.refused("bob", "lease-1")
	if code := s.term(); code != 0 { // what is left is sent at the end
		t.Errorf("exited with %d", code)
	}

	mu.Lock()
	defer mu.Unlock()
	names, ids := map[string]span{}, map[string]string{}
	for _, sp := range got {
		if sp.trace == trace {
			names[sp.name], ids[sp.id] = sp, sp.name
		}
	}
	for name, parents := range map[string][]string{"identify": {"open"}, "snapshot": {"open"}, "decide": {"open"}, "dial": {"open"}} {
		if sp, ok := names[name]; !ok || !slices.Contains(parents, ids[sp.parent]) {
			t.Errorf("%s: %+v, below %q", name, sp, ids[sp.parent])
		}
	}
	if open := names["open"]; open.parent != caller {
		t.Errorf("the open is %+v, not below the caller's %s", open, caller)
	}
	// The worker is told of a span of this trace.
	told := s.worker.Heads()[0].Header.Get("Traceparent")
	if len(told) != 55 || told[3:35] != trace || ids[told[36:52]] == "" {
		t.Errorf("the worker was told %q, the spans are %v", told, ids)
	}
	// Who brings no trace gets one of its own, which ends where it is refused.
	var refused []string
	for _, sp := range got {
		if sp.trace != trace {
			refused = append(refused, sp.name)
		}
	}
	if !slices.Contains(refused, "open") || !slices.Contains(refused, "decide") || slices.Contains(refused, "dial") {
		t.Errorf("the refused open has spans %q", refused)
	}
}

// A collector that takes everything and never answers hinders no open and no end.
func TestACollectorThatNeverAnswersHindersNothing(t *testing.T) {
	t.Parallel()
	reached, over := make(chan struct{}, 1000), make(chan struct{})
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case reached <- struct{}{}:
		default:
		}
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() {
		close(over)
		collector.Close()
	})
	s := newScene(t).start(fmt.Sprintf(`telemetry: {traces: {otlp_endpoint: %q}}`, collector.URL), `channels: {open_rate_per_caller: 100000, revocation_bound: 20s, drain_delay: 100ms, drain_timeout: 20s}`)
	kept := s.open("alice", "lease-2")
	round := func() {
		for i, a := range s.atOnce(20, func(int) asked { return s.ask("alice", "lease-1") }) {
			if a.status != 101 {
				t.Fatalf("open %d was answered %d %s", i, a.status, a.code)
			}
			_ = a.conn.CloseNow()
		}
	}
	round()
	select {
	case <-reached:
	case <-time.After(bound):
		t.Fatal("nothing is sent to the collector")
	}
	round()
	s.echo(kept, "still here")
	s.term()
}
