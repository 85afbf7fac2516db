package proxy

import (
	"fmt"
	"io"
	"net"
	"sluice/internal/authz"
	"sluice/internal/channel"
	"testing"
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
