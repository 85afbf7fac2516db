package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sluice/internal/authz"
	"sluice/internal/channel"
	"testing"
	"time"
)

func TestARevokedStreamEndsThoughItsCallerNeverSendsTheAnnouncedBody(t *testing.T) {
	for _, announced := range []string{"Content-Length: 100", "Transfer-Encoding: chunked", "Content-Length: 9\r\nExpect: 100-continue"} {
		t.Run(announced, func(t *testing.T) {
			answered := make(chan struct{})
			worker := listen(t, func(c net.Conn) {
				c.Read(make([]byte, 4096))
				io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
				close(answered)
				io.Copy(io.Discard, c)
			})
			g := startGateway(t, worker)
			dialRaw(t, g.address, fmt.Sprintf("GET /v1/leases/lease-1/output HTTP/1.1\r\nHost: gateway\r\n%s\r\n\r\n", announced))
			<-answered
			g.decides.set(denies(authz.CodeCapabilityDenied))
			g.register.LeaseChanged("lease-1")
			if s := g.summary(t); s.Ending.Why != channel.Revoked {
				t.Errorf("recorded %+v", s)
			}
		})
	}
}

// A body that breaks HTTP's framing is its sender's fault, not the worker's.
func TestAMalformedBodyIsItsSendersFault(t *testing.T) {
	worker := listen(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	g := startGateway(t, worker)
	_, br := dialRaw(t, g.address, "POST /v1/leases/lease-1/execute HTTP/1.1\r\nHost: gateway\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nx\r\n")
	wantStatus(t, br, 400, "BAD_REQUEST")
}

// A worker that dies while its caller says nothing more is a bad gateway at once.
func TestAWorkerThatDiesBeforeTheBodyIsThereIs502(t *testing.T) {
	for _, announced := range []string{"Content-Length: 100", "Transfer-Encoding: chunked"} {
		for name, die := range map[string]func(net.Conn){
			"FIN": func(net.Conn) {},
			"RST": func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) },
		} {
			worker := listen(t, func(c net.Conn) {
				c.Read(make([]byte, 4096))
				die(c)
			})
			g := startGateway(t, worker)
			_, br := dialRaw(t, g.address, fmt.Sprintf("POST /v1/leases/lease-1/execute HTTP/1.1\r\nHost: gateway\r\n%s\r\n\r\n", announced))
			began := time.Now()
			wantStatus(t, br, 502, "WORKER_BAD_GATEWAY")
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("%s, %s: answered after %s", announced, name, took)
			}
		}
	}
}

func TestAWorkerThatDiesBeforeTheBodyOfAnHTTP2RequestIsThereIs502(t *testing.T) {
	worker := listen(t, func(c net.Conn) { c.Read(make([]byte, 4096)) })
	g := startGateway(t, worker)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	never, sender := io.Pipe()
	defer sender.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+g.address+"/v1/leases/lease-1/execute", never)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != 502 {
		t.Errorf("answered %d", answer.StatusCode)
	}
}

// What becomes of a worker's connection when it is settled that there is an
// answer is nothing to the caller's, which may be at its next request.
func TestAWatchedConnectionTellsOnceAndOnlyBeforeItIsSettled(t *testing.T) {
	for _, settled := range []bool{false, true} {
		near, far := net.Pipe()
		told := 0
		c := &watchedConn{Conn: near, lost: func() { told++ }}
		if settled && c.settle() {
			t.Error("it has not ended")
		}
		far.Close()
		for range 2 {
			if _, err := c.Read(make([]byte, 1)); err == nil {
				t.Error("it has ended")
			}
		}
		if want := map[bool]int{false: 1, true: 0}[settled]; told != want || c.settle() == settled {
			t.Errorf("settled %v: told %d times", settled, told)
		}
	}
}
