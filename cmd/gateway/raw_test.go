package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sluice/internal/worker/sample"
	"testing"
	"time"
)

// rawWorker is a sample worker that also takes an upgrade to the protocol raw:
// it sends back what it gets, greets before and takes its leave at the end.
func rawWorker(t *testing.T) string {
	t.Helper()
	rest := sample.New(sample.Document{
		ID: "wrk-a", PluginID: "plg-a", Status: "running", Generation: "g1", SupportedMethods: sample.AllMethods,
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "raw/1" {
			rest.ServeHTTP(w, r)
			return
		}
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw/1\r\n\r\nhello\n")
		_, _ = io.Copy(conn, buffered)
		_, _ = io.WriteString(conn, "bye\n")
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// rawOpen opens a raw channel, and sends the first bytes with the handshake.
func (s *scene) rawOpen(lease, early string) (*net.TCPConn, *bufio.Reader) {
	s.t.Helper()
	c, err := net.Dial("tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(c, "GET /v1/leases/%s/raw HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer token-of-alice\r\nConnection: Upgrade\r\nUpgrade: raw/1\r\n\r\n%s", lease, early)
	return c.(*net.TCPConn), bufio.NewReader(c)
}

func (s *scene) rawLine(br *bufio.Reader, want string) {
	s.t.Helper()
	if got, err := br.ReadString('\n'); got != want+"\n" {
		s.t.Fatalf("read %q, %v; want %q", got, err, want)
	}
}

// A route may take other protocols than WebSocket: bytes as they are, judged
// and ended like any channel.
func TestAnotherProtocolIsATunnelThatEndsWithItsRight(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.put("worker", "wrk-a", fmt.Sprintf(`{"id": "wrk-a", "pluginId": "plg-a", "url": %q, "revision": 2}`, rawWorker(t)))
	s.lease("lease-2", nil)
	s.lease("lease-denied", fields{"capabilities": fields{}})
	s.start(`routes: [{path: "/v1/leases/{lease}/raw", capability: duplexCommandStream, kind: duplex, upgrade: [raw/1]}]`)

	open := func(lease string) (*net.TCPConn, *bufio.Reader) {
		c, br := s.rawOpen(lease, "early\n")
		answer, err := http.ReadResponse(br, nil)
		if err != nil || answer.StatusCode != 101 || answer.Header.Get("Upgrade") != "raw/1" {
			t.Fatalf("answered %+v, %v", answer, err)
		}
		s.rawLine(br, "hello")
		s.rawLine(br, "early")
		return c, br
	}
	revoked, rest := open("lease-1")
	finished, behind := open("lease-2")

	_, br := s.rawOpen("lease-denied", "early\n")
	answer, err := http.ReadResponse(br, nil)
	if err != nil || answer.StatusCode != 403 || !answer.Close {
		t.Errorf("a lease without the right was answered %+v, %v", answer, err)
	}

	s.lease("lease-1", fields{"status": "revoked", "revision": 2})
	if text, err := io.ReadAll(rest); len(text) > 0 || errors.Is(err, net.ErrClosed) {
		t.Errorf("the revoked channel said %q, %v", text, err)
	}
	_ = revoked.Close()
	end := s.recorded(func(e event) bool { return e.Path == "sluice/channel/end" && e.Custom.Sluice.Lease == "lease-1" })
	if why := end.Custom.Sluice.Ended.Why; why != "revoked" {
		t.Errorf("it ended because it was %s", why)
	}

	// Half-closed, the other half lives.
	fmt.Fprint(finished, "last\n")
	_ = finished.CloseWrite()
	s.rawLine(behind, "last")
	s.rawLine(behind, "bye")
	if text, err := io.ReadAll(behind); len(text) > 0 || err != nil {
		t.Errorf("behind the end: %q, %v", text, err)
	}
}
