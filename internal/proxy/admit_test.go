package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sluice/internal/authz"
	"strings"
	"testing"
)

// The credential is withdrawn while the worker takes its time to answer: no
// sweep of what is open finds a channel that is not.
func TestACredentialWithdrawnDuringAnOpenOpensNothing(t *testing.T) {
	for name, first := range map[string]string{
		"duplex":                        websocketHead,
		"duplex, refused by the worker": websocketHead,
		"request":                       "POST /v1/leases/lease-1/execute HTTP/1.1\r\nHost: gateway\r\nContent-Length: 2\r\n\r\nhi",
		"stream":                        "GET /v1/leases/lease-1/output HTTP/1.1\r\nHost: gateway\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			var g *gateway
			worker := listen(t, func(c net.Conn) {
				if strings.HasPrefix(name, "duplex") {
					br := bufio.NewReader(c)
					r, err := http.ReadRequest(br)
					if err != nil {
						return
					}
					g.withdrawn.Store(true)
					if name != "duplex" {
						_, _ = io.WriteString(c, "HTTP/1.1 406 Not Acceptable\r\nContent-Length: 6\r\n\r\nsecret")
						return
					}
					_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
						"Sec-WebSocket-Accept: "+websocketAccept(r.Header.Get("Sec-Websocket-Key"))+"\r\n\r\n")
				}
				if n, _ := c.Read(make([]byte, 1)); n > 0 {
					t.Error("the worker was sent something")
				}
			})
			g = startGateway(t, worker)
			allow := allows(worker)
			g.decides.set(func(r *authz.Request) authz.Decision {
				if r.Principal == nil {
					return authz.Deny(authz.CodeUnauthenticated, authz.ReasonUnauthenticated)
				}
				if !strings.HasPrefix(name, "duplex") {
					g.withdrawn.Store(true) // just behind the open's decision
				}
				return allow(r)
			})
			_, br := dialRaw(t, g.address, first)
			wantStatus(t, br, 401, "UNAUTHENTICATED")
		})
	}
}
