package proxy

import (
	"io"
	"net"
	"net/http"
	"testing"

	"sluice/internal/authz"
	"sluice/internal/channel"
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
