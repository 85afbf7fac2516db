package proxy

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"sluice/internal/authz"
	"sluice/internal/channel"
	"strings"
	"testing"
	"time"
)

// echoes answers every byte behind its 101 with the same byte.
func echoes(t testing.TB) string {
	return listen(t, func(c net.Conn) {
		r, br := switches(t, c)
		if r == nil {
			return
		}
		// What a client masks with a zero key is, but for the mask bit and
		// the key, what a server sends.
		for {
			opcode, payload, err := readFrame(br)
			if err != nil {
				return
			}
			if _, err := c.Write(wireFrame(opcode, false, payload)); err != nil || opcode == opClose {
				return
			}
		}
	})
}

func TestAChannelEchoesAndEndsInOrder(t *testing.T) {
	g := startGateway(t, echoes(t))
	c, br := open(t, g.address, websocketHead)
	for _, size := range []int{0, 1, 125, 126, 65535, 65536, 1 << 20} {
		payload := bytes.Repeat([]byte("x"), size)
		go c.Write(wireFrame(opBinary, true, payload))
		if _, got, err := readFrame(br); err != nil || !bytes.Equal(got, payload) {
			t.Fatalf("a message of %d bytes came back as %d bytes, %v", size, len(got), err)
		}
	}
	c.Write(wireFrame(opClose, true, []byte{0x03, 0xe8}))
	if code, _ := readClose(t, br); code != 1000 {
		t.Fatalf("closed with %d", code)
	}
	c.Close()
	s := g.summary(t)
	if s.Ending.Why != channel.CallerClosed && s.Ending.Why != channel.WorkerClosed {
		t.Errorf("ended with %q", s.Ending.Why)
	}
	if s.MessagesToWorker != 7 || s.MessagesToCaller != 7 || s.BytesToCaller == 0 || s.BytesToWorker <= s.BytesToCaller {
		t.Errorf("counted %+v", s)
	}
}

func TestBytesRightBehindTheHandshakeReachTheWorkerOnce(t *testing.T) {
	got := make(chan []byte, 1)
	worker := listen(t, func(c net.Conn) {
		if r, br := switches(t, c); r != nil {
			b, _ := io.ReadAll(br)
			got <- b
		}
	})
	g := startGateway(t, worker)
	early := wireFrame(opBinary, true, []byte("early"))
	c, _ := open(t, g.address, websocketHead+string(early))
	c.(*net.TCPConn).CloseWrite()
	if b := <-got; !bytes.Equal(b, early) {
		t.Fatalf("the worker got %q", b)
	}
}

func TestBytesBehindADeniedHandshakeReachNobody(t *testing.T) {
	worker := listen(t, func(net.Conn) { t.Error("the worker was contacted") })
	g := startGateway(t, worker)
	g.decides.set(denies(authz.CodeDuplexDenied))
	_, br := dialRaw(t, g.address, websocketHead+"GET /v1/leases/lease-1/duplex HTTP/1.1\r\nHost: gateway\r\n\r\n")
	wantStatus(t, br, 403, "DUPLEX_CHANNEL_CAPABILITY_DENIED")
	if rest, err := io.ReadAll(br); err != nil || len(rest) > 0 {
		t.Fatalf("behind the refusal came %q, %v", rest, err)
	}
	if len(g.decides.asked) != 1 {
		t.Errorf("asked %d questions", len(g.decides.asked))
	}
}

func TestEarlyBytesOfTheWorkerReachTheCaller(t *testing.T) {
	worker := listen(t, func(c net.Conn) {
		br := make([]byte, 4096)
		n, _ := c.Read(br)
		if !strings.Contains(string(br[:n]), "Upgrade") {
			return
		}
		io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 Switching Protocols\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSluice-Secret: no\r\nSec-WebSocket-Accept: "+
			websocketAccept(testKey)+"\r\n\r\n"+string(wireFrame(opBinary, false, []byte("early"))))
		io.Copy(io.Discard, c)
	})
	g := startGateway(t, worker)
	c, br := dialRaw(t, g.address, websocketHead)
	answer, err := http.ReadResponse(br, nil)
	if err != nil || answer.StatusCode != 101 || answer.Header.Get("Sluice-Secret") != "" {
		t.Fatalf("answered %v, %v", answer, err)
	}
	if _, payload, err := readFrame(br); err != nil || string(payload) != "early" {
		t.Fatalf("the first frame is %q, %v", payload, err)
	}
	c.Close()
}

func TestARevokedChannelIsClosedOnBothSides(t *testing.T) {
	workerSaw := make(chan []byte, 1)
	worker := listen(t, func(c net.Conn) {
		r, br := switches(t, c)
		if r == nil {
			return
		}
		opcode, payload, _ := readFrame(br)
		if opcode == opClose {
			workerSaw <- payload
		}
		io.Copy(io.Discard, br)
	})
	g := startGateway(t, worker)
	c, br := open(t, g.address, websocketHead)
	g.decides.set(denies(authz.CodeDuplexDenied))
	g.register.LeaseChanged("lease-1")

	code, reason := readClose(t, br)
	if code != 1008 || !strings.HasPrefix(reason, "DUPLEX_CHANNEL_CAPABILITY_DENIED ") || len(reason) != 59 {
		t.Errorf("closed with %d %q", code, reason)
	}
	c.Write(wireFrame(opClose, true, []byte{0x03, 0xf0}))
	if _, err := br.ReadByte(); err != io.EOF {
		t.Errorf("behind the close frame: %v", err)
	}
	if payload := <-workerSaw; len(payload) < 2 || int(payload[0])<<8|int(payload[1]) != 1008 {
		t.Errorf("the worker's close is %q", payload)
	}
	if s := g.summary(t); s.Ending.Why != channel.Revoked || !s.Committed {
		t.Errorf("recorded %+v", s.Ending)
	}
}

func TestNothingIsForwardedBehindARevocation(t *testing.T) {
	got := make(chan []byte, 1)
	worker := listen(t, func(c net.Conn) {
		if r, br := switches(t, c); r != nil {
			b, _ := io.ReadAll(br)
			got <- b
		}
	})
	g := startGateway(t, worker)
	c, br := open(t, g.address, websocketHead)
	g.decides.set(denies(authz.CodeDuplexDenied))
	g.register.LeaseChanged("lease-1")
	readClose(t, br)
	c.Write(wireFrame(opBinary, true, []byte("too late")))
	c.Close()
	if b := <-got; bytes.Contains(b, []byte("too late")) {
		t.Errorf("the worker got %q", b)
	}
}

func TestACallerThatDoesNotReadIsCutAllTheSame(t *testing.T) {
	worker := listen(t, func(c net.Conn) {
		if r, _ := switches(t, c); r == nil {
			return
		}
		flood := wireFrame(opBinary, false, make([]byte, 1000))
		for {
			if _, err := c.Write(flood); err != nil {
				return
			}
		}
	})
	g := startGateway(t, worker)
	_, br := open(t, g.address, websocketHead)
	readFrame(br) // it flows
	waitUntilStuck(t, g)
	g.decides.set(denies(authz.CodeDuplexDenied))
	asked := time.Now()
	g.register.LeaseChanged("lease-1")
	s := g.summary(t)
	if took := time.Since(asked); took > time.Second {
		t.Errorf("the channel was cut after %v", took)
	}
	if s.Ending.Why != channel.Revoked {
		t.Errorf("recorded %+v", s.Ending)
	}
}

// waitUntilStuck returns when the only channel forwards nothing any more.
func waitUntilStuck(t *testing.T, g *gateway) {
	t.Helper()
	last := int64(-1)
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		toWorker, toCaller := g.register.Forwarded()
		now := toWorker + toCaller
		if now == last {
			return
		}
		last = now
	}
	t.Fatal("the channel never got stuck")
}

func TestAFrameTooLargeToHoldIsCutWithoutAClose(t *testing.T) {
	worker := listen(t, func(c net.Conn) {
		r, br := switches(t, c)
		if r == nil {
			return
		}
		c.Write(wireFrame(opBinary, false, make([]byte, 1<<20))[:200<<10])
		io.Copy(io.Discard, br)
	})
	g := startGateway(t, worker)
	_, br := open(t, g.address, websocketHead)
	got := make([]byte, 200<<10)
	if _, err := io.ReadFull(br, got); err != nil {
		t.Fatal(err)
	}
	g.decides.set(denies(authz.CodeDuplexDenied))
	g.register.LeaseChanged("lease-1")
	if rest, _ := io.ReadAll(br); len(rest) > 0 {
		t.Errorf("inside the frame came %q", rest)
	}
}

func TestAHalfFrameIsHeldBackSoThatACloseCanFollow(t *testing.T) {
	worker := listen(t, func(c net.Conn) {
		r, br := switches(t, c)
		if r == nil {
			return
		}
		c.Write(append(wireFrame(opBinary, false, []byte("whole")), wireFrame(opBinary, false, make([]byte, 1000))[:500]...))
		io.Copy(io.Discard, br)
	})
	g := startGateway(t, worker)
	_, br := open(t, g.address, websocketHead)
	if _, payload, err := readFrame(br); err != nil || string(payload) != "whole" {
		t.Fatalf("%q, %v", payload, err)
	}
	g.decides.set(denies(authz.CodeDuplexDenied))
	g.register.LeaseChanged("lease-1")
	if code, _ := readClose(t, br); code != 1008 {
		t.Errorf("closed with %d", code)
	}
}

func TestAHalfCloseIsCarriedAndTheOtherDirectionGoesOn(t *testing.T) {
	got := make(chan int, 1)
	worker := listen(t, func(c net.Conn) {
		r, br := switches(t, c)
		if r == nil {
			return
		}
		c.(*net.TCPConn).CloseWrite()
		n, _ := io.Copy(io.Discard, br)
		got <- int(n)
	})
	g := startGateway(t, worker)
	c, br := open(t, g.address, rawHead)
	if rest, err := io.ReadAll(br); err != nil || len(rest) > 0 {
		t.Fatalf("read %q, %v", rest, err)
	}
	c.Write(make([]byte, 1<<20))
	c.(*net.TCPConn).CloseWrite()
	if n := <-got; n != 1<<20 {
		t.Errorf("the worker got %d bytes", n)
	}
}

func TestAWorkerThatBreaksIs1014(t *testing.T) {
	worker := listen(t, func(c net.Conn) {
		if r, _ := switches(t, c); r == nil {
			return
		}
		c.(*net.TCPConn).SetLinger(0)
	})
	g := startGateway(t, worker)
	_, br := open(t, g.address, websocketHead)
	if code, reason := readClose(t, br); code != 1014 || !strings.HasPrefix(reason, "WORKER_BAD_GATEWAY ") {
		t.Errorf("closed with %d %q", code, reason)
	}
}

func TestAMessageThatIsTooLargeIs1009(t *testing.T) {
	g := startGateway(t, echoes(t), func(_ *Settings, l *channel.Limits) { l.MaxMessageBytes = 1000 })
	c, br := open(t, g.address, websocketHead)
	c.Write(wireFrame(opBinary, true, make([]byte, 1000)))
	if _, payload, err := readFrame(br); err != nil || len(payload) != 1000 {
		t.Fatalf("%d bytes, %v", len(payload), err)
	}
	c.Write(wireFrame(opBinary, true, make([]byte, 1001)))
	if code, reason := readClose(t, br); code != 1009 || !strings.HasPrefix(reason, "MESSAGE_TOO_LARGE ") {
		t.Errorf("closed with %d %q", code, reason)
	}
}

func TestLimitsOfTimeClose1001(t *testing.T) {
	for name, change := range map[string]func(*channel.Limits){
		"IDLE_TIMEOUT": func(l *channel.Limits) { l.IdleTimeout = 100 * time.Millisecond },
		"MAX_LIFETIME": func(l *channel.Limits) { l.MaxLifetime = 100 * time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			g := startGateway(t, echoes(t), func(_ *Settings, l *channel.Limits) { change(l) })
			_, br := open(t, g.address, websocketHead)
			if code, reason := readClose(t, br); code != 1001 || !strings.HasPrefix(reason, name+" ") {
				t.Errorf("closed with %d %q", code, reason)
			}
		})
	}
}

func TestALimitOfPlacesRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*channel.Limits)
		status int
	}{
		"a lease's":     {func(l *channel.Limits) { l.MaxPerLease = 1 }, 429},
		"a tenant's":    {func(l *channel.Limits) { l.MaxPerTenant = 1 }, 429},
		"the gateway's": {func(l *channel.Limits) { l.MaxOpen = 1 }, 503},
	} {
		t.Run(name, func(t *testing.T) {
			g := startGateway(t, echoes(t), func(_ *Settings, l *channel.Limits) { row.change(l) })
			c, _ := open(t, g.address, websocketHead)
			_, br := dialRaw(t, g.address, websocketHead)
			wantStatus(t, br, row.status, "DUPLEX_CHANNEL_ROUTE_BUSY")
			c.Close()
			g.summary(t)
			open(t, g.address, websocketHead)
		})
	}
}

func TestADeniedAdmitIsRefusedBeforeTheCallerSeesAnything(t *testing.T) {
	g := startGateway(t, echoes(t))
	yes := g.decides.answer
	g.decides.set(func(r *authz.Request) authz.Decision {
		if r.Phase == authz.Admit {
			return authz.Deny(authz.CodeWorkerUnavailable, authz.ReasonWorkerChanged)
		}
		return yes(r)
	})
	_, br := dialRaw(t, g.address, websocketHead)
	wantStatus(t, br, 503, "WORKER_UNAVAILABLE")
	if s := g.summary(t); s.Committed || s.Ending.Why != channel.Refused {
		t.Errorf("recorded %+v", s)
	}
}

func TestAChangeWhileTheWorkerIsSilentRefusesAtOnce(t *testing.T) {
	asked := make(chan struct{})
	worker := listen(t, func(c net.Conn) {
		c.Read(make([]byte, 4096))
		close(asked)
		io.Copy(io.Discard, c)
	})
	g := startGateway(t, worker)
	_, br := dialRaw(t, g.address, websocketHead)
	<-asked
	g.decides.set(denies(authz.CodeDuplexDenied))
	g.register.LeaseChanged("lease-1")
	wantStatus(t, br, 403, "DUPLEX_CHANNEL_CAPABILITY_DENIED")
}

func TestAWorkersAnswerThatIsNo101(t *testing.T) {
	for name, row := range map[string]struct {
		answer string
		status int
		want   string
	}{
		"a refusal passes with its body":   {"HTTP/1.1 406 Not Acceptable\r\nContent-Length: 2\r\nX-Why: it\r\n\r\nno", 406, "no"},
		"a chunked refusal passes":         {"HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n", 403, "no"},
		"a redirect is not followed":       {"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", 302, ""},
		"no accept":                        {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 502, "WORKER_BAD_GATEWAY"},
		"another generation":               {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSluice-Worker-Generation: g2\r\nSec-WebSocket-Accept: " + websocketAccept(testKey) + "\r\n\r\n", 503, "WORKER_UNAVAILABLE"},
		"an unoffered subprotocol":         {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: x\r\nSec-WebSocket-Accept: " + websocketAccept(testKey) + "\r\n\r\n", 502, "WORKER_BAD_GATEWAY"},
		"garbage":                          {"SSH-2.0-OpenSSH_9\r\n", 502, "WORKER_BAD_GATEWAY"},
		"an end of the connection":         {"", 502, "WORKER_BAD_GATEWAY"},
		"a 101 for another protocol (h2c)": {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", 502, "WORKER_BAD_GATEWAY"},
	} {
		t.Run(name, func(t *testing.T) {
			worker := listen(t, func(c net.Conn) {
				c.Read(make([]byte, 4096))
				io.WriteString(c, row.answer)
			})
			g := startGateway(t, worker)
			_, br := dialRaw(t, g.address, websocketHead)
			answer, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(answer.Body)
			if answer.StatusCode != row.status || !strings.Contains(string(body), row.want) || !answer.Close {
				t.Errorf("answered %d %q (close %v)", answer.StatusCode, body, answer.Close)
			}
		})
	}
}

func TestAWorkerThatStaysSilentIs504(t *testing.T) {
	worker := listen(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	g := startGateway(t, worker, func(s *Settings, _ *channel.Limits) { s.HandshakeTimeout = 100 * time.Millisecond })
	_, br := dialRaw(t, g.address, websocketHead)
	wantStatus(t, br, 504, "WORKER_TIMEOUT")
}

func TestAWorkerThatRefusesTheConnectionIs502(t *testing.T) {
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	l.Close()
	g := startGateway(t, l.Addr().String())
	_, br := dialRaw(t, g.address, websocketHead)
	wantStatus(t, br, 502, "WORKER_BAD_GATEWAY")
}

func TestDrainingRefusesAndThenClosesWith1001(t *testing.T) {
	g := startGateway(t, echoes(t))
	_, br := open(t, g.address, websocketHead)
	g.proxy.Drain()
	_, refused := dialRaw(t, g.address, websocketHead)
	wantStatus(t, refused, 503, "SHUTTING_DOWN")
	go g.register.Drain(t.Context(), 0)
	if code, reason := readClose(t, br); code != 1001 || !strings.HasPrefix(reason, "SHUTTING_DOWN ") {
		t.Errorf("closed with %d %q", code, reason)
	}
}

func TestConnectionsBeyondTheLimitAreClosedAtOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limited := &limitListener{Listener: l, max: 1}
	defer l.Close()
	first, _ := net.Dial("tcp", l.Addr().String())
	accepted, err := limited.Accept()
	if err != nil {
		t.Fatal(err)
	}
	second, _ := net.Dial("tcp", l.Addr().String())
	third := make(chan net.Conn, 1)
	go func() {
		c, _ := limited.Accept()
		third <- c
	}()
	if _, err := second.Read(make([]byte, 1)); err == nil {
		t.Error("the second connection was served")
	}
	accepted.Close()
	accepted.Close() // gives its place back once
	next, _ := net.Dial("tcp", l.Addr().String())
	defer first.Close()
	defer next.Close()
	if c := <-third; c == nil {
		t.Error("the place was not given back")
	}
}
