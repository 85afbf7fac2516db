package proxy

import (
	"io"
	"net"
	"sluice/internal/authz"
	"sluice/internal/channel"
	"testing"
	"time"
)

func TestARefusalThatTheWorkerBreaksOffGivesItsPlaceBack(t *testing.T) {
	worker := listen(t, func(c net.Conn) {
		c.Read(make([]byte, 4096))
		io.WriteString(c, "HTTP/1.1 403 Forbidden\r\nContent-Length: 10\r\n\r\nhalf")
	})
	g := startGateway(t, worker)
	_, br := dialRaw(t, g.address, websocketHead)
	_, _ = io.Copy(io.Discard, br)
	if s := g.summary(t); s.Committed || s.Ending.Why != channel.Refused {
		t.Errorf("recorded %+v", s)
	}
	if n := g.register.Len(); n != 0 {
		t.Errorf("%d places are still taken", n)
	}
}

// refusesWithoutEnd answers an upgrade with a refusal whose body never ends.
func refusesWithoutEnd(t *testing.T) string {
	return listen(t, func(c net.Conn) {
		c.Read(make([]byte, 4096))
		_, err := io.WriteString(c, "HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n")
		for chunk := "1000\r\n" + string(make([]byte, 0x1000)) + "\r\n"; err == nil; {
			_, err = io.WriteString(c, chunk)
		}
	})
}

func TestAWorkersRefusalIsNotForwardedBehindARevocation(t *testing.T) {
	for name, reads := range map[string]bool{"to a caller that reads": true, "to one that does not": false} {
		t.Run(name, func(t *testing.T) {
			longEnough := func(s *Settings, _ *channel.Limits) { s.HandshakeTimeout = time.Minute }
			g := startGateway(t, refusesWithoutEnd(t), longEnough)
			_, br := dialRaw(t, g.address, websocketHead)
			if _, err := br.Peek(1); err != nil {
				t.Fatal(err)
			}
			if reads {
				go func() { _, _ = io.Copy(io.Discard, br) }()
			}
			g.decides.set(denies(authz.CodeDuplexDenied))
			g.register.LeaseChanged("lease-1")
			if s := g.summary(t); s.Committed || s.Ending.Why != channel.Revoked {
				t.Errorf("recorded %+v", s)
			}
		})
	}
}

func TestAWorkersRefusalTakesNoLongerThanItsAnswerMay(t *testing.T) {
	short := func(s *Settings, _ *channel.Limits) { s.HandshakeTimeout = 200 * time.Millisecond }
	g := startGateway(t, refusesWithoutEnd(t), short)
	_, br := dialRaw(t, g.address, websocketHead) // and is not read
	if _, err := br.Peek(1); err != nil {
		t.Fatal(err)
	}
	if s := g.summary(t); s.Committed {
		t.Errorf("recorded %+v", s)
	}
}
