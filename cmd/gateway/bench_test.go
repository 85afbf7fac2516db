package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sluice/internal/authz"
	"sluice/internal/channel"
	"sluice/internal/proxy"
	"sluice/internal/worker"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// benchGateway is a gateway in this process, and the address of the same data
// plane with a constant decision in place of the policy's, facts' and link's.
// Only a test can build that: no build of the product skips the decision.
type benchGateway struct {
	*gateway
	address, constant string
}

func startBench(b *testing.B, config ...string) *benchGateway {
	b.Helper()
	s := newScene(b)
	s.configure(append(config, wideLimits, `telemetry: {log: {decisions: true}}`)...)
	cfg, err := Load(filepath.Join(s.dir, "gateway.yaml"), nil)
	if err != nil {
		b.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	g, err := newGateway(b.Context(), cfg, io.Discard, log)
	if err != nil {
		b.Fatal(err)
	}
	g.load = func() (*Config, error) { return cfg, nil }
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = g.run(ctx, ctx) })
	bench := &benchGateway{gateway: g, address: g.data.Addr().String()}
	bench.constant = serveConstant(b, g)
	b.Cleanup(func() {
		cancel()
		running.Wait()
	})
	for g.facts.Ready() != nil {
		time.Sleep(time.Millisecond)
	}
	return bench
}

// constant gives everyone the answer that the first one got of the gateway's
// own authorizer: the channels and their records are the same.
type constant struct {
	first    authorizer
	once     sync.Once
	decision authz.Decision
	records  recorders
}

// authorizer is what is asked once.
type authorizer interface {
	Authorize(ctx context.Context, req *authz.Request, reserve func(*authz.Decision) authz.Reason) authz.Decision
}

func (c *constant) Authorize(ctx context.Context, req *authz.Request, reserve func(*authz.Decision) authz.Reason) authz.Decision {
	c.once.Do(func() { c.decision = c.first.Authorize(ctx, req, nil) })
	d := c.decision
	if reserve != nil {
		if reason := reserve(&d); reason != "" {
			return authz.Busy(reason)
		}
	}
	d.ID, d.At = authz.NewID(), time.Now()
	c.records.RecordDecision(req, &d)
	return d
}

func (c *constant) Admit(ctx context.Context, req *authz.Request, _ *authz.Decision) authz.Decision {
	return c.Authorize(ctx, req, nil)
}

func (c *constant) Recheck(ctx context.Context, req *authz.Request, _ *authz.Decision) authz.Decision {
	return c.Authorize(ctx, req, nil)
}

func (c *constant) Kin(context.Context, *authz.Request) (authz.Kinship, bool) {
	return authz.Kinship{}, false
}

func (c *constant) Repeat(_ *authz.Request, d authz.Decision) authz.Decision { return d }

func (c *constant) Refuse(_ *authz.Request, d authz.Decision) authz.Decision { return d }

func (c *constant) Look(context.Context, *authz.Request) (map[authz.Capability]bool, authz.Decision) {
	return nil, authz.Decision{}
}

func serveConstant(b *testing.B, g *gateway) string {
	b.Helper()
	c := &constant{first: g.authorizer, records: recorders{g.metrics, g.decisions}}
	register := channel.New(channel.Options{
		Authorizer: c, Callers: g.identity, Facts: g.facts, Workers: g.links, Recorder: c.records, Limits: channelLimits(g.config), Log: g.log,
	})
	p := proxy.New(proxy.Options{
		Authorizer: c, Register: register, Identifier: g.identity, Dialer: workerDialer{g.dialer, g.dialer}, Settings: proxySettings(g.config),
		Tracer: g.tracer, Log: g.log, Opened: g.metrics.Opened, WorkerToken: g.links.Token, Unanswered: worker.Unanswered,
	})
	l, err := proxy.Listen(b.Context(), "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := proxy.NewServer(proxy.ServerOptions{
		Handler: p, MaxHeaderBytes: 64 << 10, HeaderTimeout: 5 * time.Second, MaxConnections: maxConnections(), Log: g.log,
	})
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l)
	}()
	b.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	return l.Addr().String()
}

var openHead = "GET /v1/leases/lease-1/duplex HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer token-of-alice\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

// openRaw opens a channel as cheaply as a client can.
func openRaw(address, head string) (net.Conn, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, head); err != nil {
		return nil, err
	}
	answer, err := http.ReadResponse(bufio.NewReaderSize(c, 512), nil)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusSwitchingProtocols {
		body, _ := io.ReadAll(answer.Body)
		return nil, fmt.Errorf("answered %d %s", answer.StatusCode, body)
	}
	return c, nil
}

// openStandard opens a channel as a program does: with a WebSocket client,
// until the first message has come back.
func openStandard(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "ws://"+address+"/v1/leases/lease-1/duplex", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer token-of-alice"}},
	})
	if err != nil {
		return err
	}
	defer func() { _ = c.CloseNow() }()
	if err := c.Write(ctx, websocket.MessageText, []byte("hello")); err != nil {
		return err
	}
	_, _, err = c.Read(ctx)
	return err
}

func openBare(address string) error {
	c, err := openRaw(address, openHead)
	if err != nil {
		return err
	}
	_ = c.(*net.TCPConn).SetLinger(0)
	return c.Close()
}

// opens opens and closes n channels from a few callers at once and returns how
// long that took.
func opens(b *testing.B, open func(address string) error, address string, n int) time.Duration {
	b.Helper()
	const callers = 8
	started := time.Now()
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range n / callers {
				if err := open(address); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(started)
}

// BenchmarkOpen compares opens through the gateway with opens through the same
// data plane under a constant decision, in turn: by a standard client until its
// first message is echoed, and by a bare one that hangs up after the 101.
func BenchmarkOpen(b *testing.B) {
	g := startBench(b)
	const n, turns = 200, 20
	var standard, bare, rates []float64
	compare := func(open func(string) error) (ratio, rate float64) {
		decided, constant := time.Duration(0), time.Duration(0)
		for range turns { // short ones: what else the machine does hits both alike
			decided += opens(b, open, g.address, n)
			constant += opens(b, open, g.constant, n)
		}
		return constant.Seconds() / decided.Seconds(), turns * n / decided.Seconds()
	}
	compare(openStandard)
	for b.Loop() {
		ratio, rate := compare(openStandard)
		standard, rates = append(standard, ratio), append(rates, rate)
		ratio, _ = compare(openBare)
		bare = append(bare, ratio)
	}
	b.ReportMetric(median(rates), "opens/s")
	b.ReportMetric(median(standard), "of-constant-decision(>=0.9)")
	b.ReportMetric(median(bare), "of-constant-decision-bare")
}

func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[len(list)/2]
}

// BenchmarkIdle measures what an idle channel costs a gateway process, and how
// many times that it costs a process of httputil.ReverseProxy.
func BenchmarkIdle(b *testing.B) {
	raiseFileLimit(b)
	s := newScene(b).start(`channels: {open_rate_per_caller: 100000, max_per_lease: 100000, max_per_tenant: 100000}`, `telemetry: {log: {decisions: false}}`)
	peer := startHTTPUtil(b, strings.TrimPrefix(s.url, "http://"))
	for b.Loop() {
		ours, descriptors := idle(b, s.cmd.Process.Pid, s.address)
		theirs, _ := idle(b, peer.Process.Pid, peer.address)
		b.ReportMetric(ours/1024, "KB/channel(<=12)")
		b.ReportMetric(descriptors, "fds/channel(2)")
		b.ReportMetric(theirs/ours, "x-httputil(>=5)")
	}
}

type peerProcess struct {
	*exec.Cmd
	address string
}

func startHTTPUtil(b *testing.B, worker string) peerProcess {
	b.Helper()
	peer := peerProcess{Cmd: exec.Command(os.Args[0])}
	peer.Env = append(os.Environ(), "SLUICE_BENCH_HTTPUTIL="+worker)
	in, err := peer.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := peer.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := peer.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		_ = peer.Wait()
	})
	if _, err := fmt.Fscan(out, &peer.address); err != nil {
		b.Fatal(err)
	}
	return peer
}

// idle returns the resident bytes and the descriptors that a process takes for
// each of 2,000 idle channels.
func idle(b *testing.B, pid int, address string) (bytes, fds float64) {
	b.Helper()
	const channels = 2000
	open := func() net.Conn {
		c, err := openRaw(address, openHead)
		if err != nil {
			b.Fatal(err)
		}
		return c
	}
	for range 200 { // what a running process has touched anyway is not the channels'
		open().Close()
	}
	time.Sleep(2 * time.Second)
	resident, open0 := residentOf(b, pid), descriptorsOf(b, pid)
	var conns []net.Conn
	for range channels {
		conns = append(conns, open())
	}
	time.Sleep(20 * time.Second) // an idle process gives back what opening them took
	bytes = float64(residentOf(b, pid)-resident) / channels
	fds = float64(descriptorsOf(b, pid)-open0) / channels
	for _, c := range conns {
		c.Close()
	}
	return bytes, fds
}

// residentOf is the resident memory of a process, in bytes.
func residentOf(t testing.TB, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

func descriptorsOf(t testing.TB, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func (s *scene) resident() int { return residentOf(s.t, s.cmd.Process.Pid) }

func (s *scene) descriptors() int { return descriptorsOf(s.t, s.cmd.Process.Pid) }
