package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sluice/internal/authz"
	"sluice/internal/channel"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
)

// decides answers every question with what it holds: the real decision is
// tested where it is made, here it is what the data plane does with one.
type decides struct {
	mu     sync.Mutex
	answer func(*authz.Request) authz.Decision
	asked  []authz.Phase
}

func (d *decides) set(answer func(*authz.Request) authz.Decision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answer = answer
}

func (d *decides) Authorize(_ context.Context, req *authz.Request, reserve func(*authz.Decision) authz.Reason) authz.Decision {
	d.mu.Lock()
	answer := d.answer(req)
	d.asked = append(d.asked, req.Phase)
	d.mu.Unlock()
	if answer.Allow && reserve != nil {
		if reason := reserve(&answer); reason != "" {
			answer = authz.Busy(reason)
		}
	}
	answer.ID = authz.NewID()
	return answer
}

func (d *decides) Admit(ctx context.Context, req *authz.Request, _ *authz.Decision) authz.Decision {
	return d.Authorize(ctx, req, nil)
}

func (d *decides) Recheck(ctx context.Context, req *authz.Request, _ *authz.Decision) authz.Decision {
	return d.Authorize(ctx, req, nil)
}

func (d *decides) Kin(context.Context, *authz.Request) (authz.Kinship, bool) {
	return authz.Kinship{}, false
}

func (d *decides) Repeat(_ *authz.Request, answer authz.Decision) authz.Decision { return answer }

func (d *decides) Refuse(_ *authz.Request, answer authz.Decision) authz.Decision {
	answer.ID = authz.NewID()
	return answer
}

func (d *decides) Look(context.Context, *authz.Request) (map[authz.Capability]bool, authz.Decision) {
	return nil, authz.Decision{}
}

// allows is an allow that rests on a worker at address.
func allows(address string) func(*authz.Request) authz.Decision {
	lease := &authz.Record{Kind: authz.KindLease, ID: "lease-1", TenantID: "acme", Pin: authz.Pin{PluginID: "plg", DriverKey: "key", WorkerID: "wrk"}}
	worker := &authz.Record{Kind: authz.KindWorker, ID: "wrk", URL: "http://" + address}
	view := authz.View{Fresh: true, Snapshot: &authz.Snapshot{LeaseID: "lease-1", Lease: lease, Worker: worker}}
	live := &authz.Live{ID: "wrk", PluginID: "plg", Status: "running", Generation: "g1"}
	return func(*authz.Request) authz.Decision {
		return authz.Decision{Allow: true, Code: authz.CodeAllow, Status: 200, View: view, Live: live}
	}
}

func denies(code authz.Code) func(*authz.Request) authz.Decision {
	return func(*authz.Request) authz.Decision { return authz.Deny(code, "TEST") }
}

type everybody struct {
	principal *authz.Principal
	withdrawn *atomic.Bool
}

func (e everybody) Identify(*http.Request) (*authz.Principal, error) {
	return e.principal, nil
}
func (everybody) Scrub(h http.Header) http.Header { return h }
func (e everybody) Current(p *authz.Principal) *authz.Principal {
	if e.withdrawn.Load() {
		return nil
	}
	return p
}

type loopback struct{}

func (loopback) DialAddress(ctx context.Context, url, _ string) (net.Conn, error) {
	d := net.Dialer{Timeout: time.Second}
	return d.DialContext(ctx, "tcp", strings.TrimPrefix(url, "http://"))
}

func (d loopback) DialHTTP2(ctx context.Context, url, address string) (net.Conn, error) {
	return d.DialAddress(ctx, url, address)
}

type keepsNothing struct{}

func (keepsNothing) Retain(string)  {}
func (keepsNothing) Release(string) {}

// endings keeps what was recorded.
type endings struct{ ended chan channel.Summary }

func (e endings) RecordEnd(s *channel.Summary) { e.ended <- *s }
func (endings) RecordRevocation(time.Duration) {}

// gateway is a running data plane in front of a worker.
type gateway struct {
	address  string
	decides  *decides
	register *channel.Register
	proxy    *Proxy
	ended    chan channel.Summary

	withdrawn *atomic.Bool // the caller's credential
}

func startGateway(t testing.TB, worker string, change ...func(*Settings, *channel.Limits)) *gateway {
	t.Helper()
	g := &gateway{decides: &decides{answer: allows(worker)}, ended: make(chan channel.Summary, 4096), withdrawn: new(atomic.Bool)}
	settings := Settings{
		OpenRate: 1 << 20, HandshakeTimeout: 2 * time.Second, CloseGrace: 250 * time.Millisecond,
		Routes: []Route{
			{Path: "/v1/leases/{lease}/duplex", Capability: authz.DuplexCommandStream, Kind: authz.Duplex, Upgrade: []string{"raw"}},
			{Path: "/v1/leases/{lease}/execute", Capability: "independentControlCommands", Kind: authz.PlainRequest, Methods: []string{"POST"}},
			{Path: "/v1/leases/{lease}/output", Capability: "incrementalSessionOutput", Kind: authz.Stream, Methods: []string{"GET"}},
		},
	}
	limits := channel.Limits{
		RevocationBound: time.Second, RecheckInterval: time.Minute, IdleTimeout: time.Minute, MaxLifetime: time.Hour,
		MaxOpen: 1 << 20, MaxPerLease: 1 << 20, MaxPerTenant: 1 << 20,
	}
	for _, f := range change {
		f(&settings, &limits)
	}
	caller := everybody{&authz.Principal{Subject: "agent", TenantID: "acme"}, g.withdrawn}
	log := slog.New(slog.DiscardHandler)
	g.register = channel.New(channel.Options{
		Authorizer: g.decides, Callers: caller, Facts: keepsNothing{}, Workers: keepsNothing{},
		Recorder: endings{g.ended}, Limits: limits, Log: log,
	})
	g.proxy = New(Options{
		Authorizer: g.decides, Register: g.register, Identifier: caller, Dialer: loopback{}, Settings: settings,
		Tracer: noop.NewTracerProvider().Tracer(""), Log: log,
		RestAfter: 2 * time.Millisecond, // so that pumps rest in every test, at any moment
	})
	server := NewServer(ServerOptions{Handler: g.proxy, MaxHeaderBytes: 64 << 10, HeaderTimeout: 5 * time.Second, Log: log})
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.address = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) })
	wg.Go(func() { _ = g.register.Run(ctx) })
	t.Cleanup(func() {
		g.register.Drain(ctx, 0)
		cancel()
		_ = server.Close()
		wg.Wait()
	})
	return g
}

// listen accepts on loopback and gives each connection to serve.
func listen(t testing.TB, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

// switches reads an upgrade request from c and answers it with a 101.
func switches(t testing.TB, c net.Conn) (*http.Request, *bufio.Reader) {
	br := bufio.NewReader(c)
	r, err := http.ReadRequest(br)
	if err != nil {
		return nil, br // the gateway hung up
	}
	answer := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + r.Header.Get("Upgrade") + "\r\n"
	if key := r.Header.Get("Sec-Websocket-Key"); key != "" {
		answer += "Sec-WebSocket-Accept: " + websocketAccept(key) + "\r\n"
	}
	if _, err := io.WriteString(c, answer+"\r\n"); err != nil {
		t.Errorf("worker: write the 101: %v", err)
	}
	return r, br
}

const (
	testKey       = "dGhlIHNhbXBsZSBub25jZQ=="
	websocketHead = "GET /v1/leases/lease-1/duplex HTTP/1.1\r\nHost: gateway\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + testKey + "\r\n\r\n"
	rawHead = "GET /v1/leases/lease-1/duplex HTTP/1.1\r\nHost: gateway\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n"
)

// dialRaw connects to the gateway and writes what is given in one segment.
func dialRaw(t testing.TB, address, first string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, first); err != nil {
		t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

// open connects and reads the 101.
func open(t testing.TB, address, first string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, br := dialRaw(t, address, first)
	answer, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != http.StatusSwitchingProtocols {
		body, _ := io.ReadAll(answer.Body)
		t.Fatalf("the handshake was answered %d %s", answer.StatusCode, body)
	}
	return c, br
}

// wireFrame builds one frame; a client's is masked with a zero key, so that its
// payload stands as it is.
func wireFrame(opcode byte, masked bool, payload []byte) []byte {
	b := []byte{0x80 | opcode}
	mask := byte(0)
	if masked {
		mask = 0x80
	}
	switch n := len(payload); {
	case n < 126:
		b = append(b, mask|byte(n))
	case n < 1<<16:
		b = append(b, mask|126, byte(n>>8), byte(n))
	default:
		b = append(b, mask|127, 0, 0, 0, 0, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	if masked {
		b = append(b, 0, 0, 0, 0)
	}
	return append(b, payload...)
}

// readFrame reads one frame of a server.
func readFrame(br *bufio.Reader) (opcode byte, payload []byte, err error) {
	var head [14]byte
	if _, err := io.ReadFull(br, head[:2]); err != nil {
		return 0, nil, err
	}
	extra := 0
	switch head[1] & 0x7f {
	case 126:
		extra = 2
	case 127:
		extra = 8
	}
	if head[1]&0x80 != 0 {
		extra += 4
	}
	if _, err := io.ReadFull(br, head[2:2+extra]); err != nil {
		return 0, nil, err
	}
	h, size := parseFrameHeader(head[:2+extra])
	payload = make([]byte, h.length)
	_, err = io.ReadFull(br, payload)
	if h.masked {
		key := head[size-4 : size]
		for i := range payload {
			payload[i] ^= key[i%4]
		}
	}
	return h.opcode, payload, err
}

func readClose(t testing.TB, br *bufio.Reader) (code int, reason string) {
	t.Helper()
	for {
		opcode, payload, err := readFrame(br)
		if err != nil {
			t.Fatalf("the connection ended without a close frame: %v", err)
		}
		if opcode == opClose && len(payload) >= 2 {
			return int(payload[0])<<8 | int(payload[1]), string(payload[2:])
		}
	}
}

func (g *gateway) summary(t testing.TB) channel.Summary {
	t.Helper()
	select {
	case s := <-g.ended:
		return s
	case <-time.After(10 * time.Second):
		t.Fatal("no channel's end was recorded")
		return channel.Summary{}
	}
}

func wantStatus(t testing.TB, br *bufio.Reader, status int, code string) {
	t.Helper()
	answer, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(answer.Body)
	if answer.StatusCode != status || !strings.Contains(string(body), fmt.Sprintf("%q", code)) {
		t.Fatalf("answered %d %s, want %d %s", answer.StatusCode, body, status, code)
	}
}
