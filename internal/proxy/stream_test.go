package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"sluice/internal/authz"
	"sluice/internal/channel"
	"testing"
	"time"
)

// The stream is a channel from the moment its worker is asked. Until the
// worker answers, a caller who loses its right is told so.
func TestAChangeWhileAStreamsWorkerIsSilentRefusesInWords(t *testing.T) {
	asked := make(chan struct{})
	worker := listen(t, func(c net.Conn) {
		c.Read(make([]byte, 4096))
		close(asked)
		io.Copy(io.Discard, c)
	})
	g := startGateway(t, worker)
	_, br := dialRaw(t, g.address, "GET /v1/leases/lease-1/output HTTP/1.1\r\nHost: gateway\r\n\r\n")
	<-asked
	g.decides.set(denies(authz.CodeCapabilityDenied))
	g.register.LeaseChanged("lease-1")
	wantStatus(t, br, 403, "SANDBOX_CAPABILITY_DENIED")
	if s := g.summary(t); s.Ending.Why != channel.Revoked || s.Committed {
		t.Errorf("recorded %+v, opened %v", s.Ending, s.Committed)
	}
}

func TestAStreamThatNobodyReadsIsCutAllTheSame(t *testing.T) {
	worker := listen(t, func(c net.Conn) {
		c.Read(make([]byte, 4096))
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
		for {
			if _, err := c.Write(make([]byte, 1000)); err != nil {
				return
			}
		}
	})
	g := startGateway(t, worker)
	_, br := dialRaw(t, g.address, "GET /v1/leases/lease-1/output HTTP/1.1\r\nHost: gateway\r\n\r\n")
	if answer, err := http.ReadResponse(br, nil); err != nil || answer.StatusCode != 200 {
		t.Fatal(answer, err)
	}
	waitUntilStuck(t, g)
	g.decides.set(denies(authz.CodeCapabilityDenied))
	g.register.LeaseChanged("lease-1")
	if s := g.summary(t); s.Ending.Why != channel.Revoked || !s.Committed {
		t.Errorf("recorded %+v", s.Ending)
	}
}

// What ends in order ends whole, and its connection serves on: many requests,
// with and without a body, and answers of every form.
func TestOneConnectionServesRequestsAndStreamsOneAfterAnother(t *testing.T) {
	worker := listen(t, func(c net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		body, _ := io.ReadAll(r.Body)
		if r.Method == http.MethodPost {
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			return
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n8\r\ndata: 1\n\r\n0\r\n\r\n")
	})
	g := startGateway(t, worker)
	c, br := dialRaw(t, g.address, "")
	for i := range 100 {
		ask, want := "GET /v1/leases/lease-1/output HTTP/1.1\r\nHost: gateway\r\n\r\n", "data: 1\n"
		if i%3 > 0 {
			want = fmt.Sprintf("request %d", i)
			ask = fmt.Sprintf("POST /v1/leases/lease-1/execute HTTP/1.1\r\nHost: gateway\r\nContent-Length: %d\r\n\r\n%s", len(want), want)
		}
		if i%3 == 2 {
			ask = fmt.Sprintf("POST /v1/leases/lease-1/execute HTTP/1.1\r\nHost: gateway\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(want), want)
		}
		if _, err := io.WriteString(c, ask); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		body, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != 200 || string(body) != want || answer.Close {
			t.Fatalf("request %d: answered %d %q, %v, close %v", i, answer.StatusCode, body, err, answer.Close)
		}
		if i%7 == 0 {
			time.Sleep(2 * time.Millisecond) // the server looks whether its caller is there
		}
	}
}
