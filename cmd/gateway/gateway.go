package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sluice/internal/authz"
	"sluice/internal/channel"
	"sluice/internal/decisionlog"
	"sluice/internal/identity"
	"sluice/internal/pdp"
	"sluice/internal/proxy"
	"sluice/internal/snapshot"
	"sluice/internal/worker"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"
)

// gateway is every part of a running gateway, wired in the order in which a
// request meets them.
type gateway struct {
	config   *Config                        // as it was at the start
	channels atomic.Pointer[ChannelsConfig] // as it is now
	load     func() (*Config, error)        // reads the configuration again
	log      *slog.Logger

	tokens     *identity.Tokens
	identity   *identity.Identifier
	store      recordStore
	marks      *snapshot.MarkLog // nil: none are kept
	facts      *snapshot.Cache
	dialer     *worker.Dialer
	links      *worker.Links
	policy     *pdp.Engine
	decisions  *decisionlog.Log
	metrics    *metrics
	authorizer *authz.Authorizer
	register   *channel.Register
	proxy      *proxy.Proxy
	health     *health
	admin      *admin

	tracer      trace.Tracer
	flushTraces func(context.Context) error

	data, probes, operators net.Listener
	server                  *proxy.Server
}

// newGateway builds and wires everything and opens the listeners; it starts
// nothing.
func newGateway(ctx context.Context, cfg *Config, decisions io.Writer, log *slog.Logger) (*gateway, error) {
	g := &gateway{config: cfg, log: log}
	g.channels.Store(&cfg.Channels)
	for _, step := range []func(context.Context) error{
		g.openTelemetry, g.openListeners, g.openIdentity, g.openFacts, g.openPolicy,
		func(context.Context) error { return g.openDecisions(decisions) },
		g.openChannels, g.openServers, g.showMetrics,
	} {
		if err := step(ctx); err != nil {
			g.close()
			return nil, err
		}
	}
	return g, nil
}

func (g *gateway) openTelemetry(ctx context.Context) (err error) {
	if g.metrics, err = newMetrics(); err != nil {
		return err
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		g.log.Warn("telemetry could not be delivered", "error", err)
	}))
	g.tracer, g.flushTraces, err = newTracing(ctx, g.config.Telemetry)
	return err
}

// openIdentity: who calls.
func (g *gateway) openIdentity(context.Context) (err error) {
	if g.tokens, err = identity.OpenTokens(g.config.Identity.TokensFile); err != nil {
		return fmt.Errorf("identity.tokens_file: %w", err)
	}
	if g.config.Identity.TokensFile == "" {
		g.log.Warn("no identity.tokens_file is configured: no caller is known and everything is refused")
	}
	g.identity = identity.New(g.tokens)
	return nil
}

// openFacts: what is known of the lease, and of its worker.
func (g *gateway) openFacts(context.Context) (err error) {
	cfg := g.config
	if g.store, err = openStore(cfg, g.log); err != nil {
		return err
	}
	g.dialer, err = worker.NewDialer(worker.DialerOptions{
		Allow: cfg.Workers.Allow, Own: g.ownAddresses(), Found: g.storeAddresses, Timeout: cfg.Workers.DialTimeout,
		TLS: worker.TLSOptions{CAFile: cfg.Workers.TLS.CAFile, CertFile: cfg.Workers.TLS.CertFile, KeyFile: cfg.Workers.TLS.KeyFile},
	})
	if err != nil {
		return fmt.Errorf("workers: %w", err)
	}
	g.links, err = worker.New(worker.Options{
		Mode: worker.Mode(cfg.Workers.Link), ProbePath: cfg.Workers.ProbePath, TokenFile: cfg.Workers.TokenFile,
		Static: staticWorkers(cfg), Dialer: g.dialer, Decode: snapshot.DecodeLive,
		OnChange: func(id string) { g.register.WorkerChanged(id) },
		Grace:    workerGrace(cfg), Log: g.log,
	})
	if err != nil {
		return fmt.Errorf("workers: %w", err)
	}
	if g.marks, err = openMarks(cfg, g.log); err != nil {
		return err
	}
	g.facts, err = snapshot.NewCache(snapshot.Options{
		Store: g.store, Marks: g.marks, MaxAge: cfg.Store.MaxAge, ExtraFields: cfg.Policies.ExtraFields, Override: g.links.Override,
		OnChange: func(leases []string) { g.register.LeaseChanged(leases...) }, Log: g.log,
	})
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// openPolicy: what decides. A set that cannot be loaded keeps the gateway from
// being ready, not from starting: it denies, says why, and takes the set that
// is repaired.
func (g *gateway) openPolicy(ctx context.Context) (err error) {
	cfg := g.config
	options := policyOptions(cfg)
	options.Log = g.log
	options.OnSwap = func() { g.register.EverythingChanged() }
	options.OnReload = g.metrics.policyReloaded
	g.policy, err = pdp.New(options)
	if err != nil {
		return fmt.Errorf("policies: %w", err)
	}
	if err := g.policy.Reload(ctx); err != nil {
		g.log.Error("policies refused: nothing is allowed until they are repaired", "error", err)
	}
	return nil
}

// openDecisions: where every decision is recorded.
func (g *gateway) openDecisions(out io.Writer) error {
	if !g.config.Telemetry.Log.Decisions {
		out = nil
	}
	g.decisions = decisionlog.New(decisionlog.Options{
		Out: out, Effective: g.policy.Effective,
		Labels: map[string]string{"app": g.config.Telemetry.ServiceName, "id": authz.NewID(), "version": buildVersion().Version},
	})
	return nil
}

// openChannels: the one path to a decision, the register and the data plane.
func (g *gateway) openChannels(context.Context) error {
	cfg := g.config
	recorded := recorders{g.metrics, g.decisions}
	g.authorizer = &authz.Authorizer{
		Facts: g.facts, Workers: g.links, Policy: g.policy, Recorder: recorded, Log: g.log,
	}
	if sendsTraces(cfg.Telemetry) {
		g.authorizer.Facts = tracedFacts{g.facts, g.tracer}
		g.authorizer.Policy = tracedPolicy{g.policy, g.tracer}
	}
	g.register = channel.New(channel.Options{
		Authorizer: g.authorizer, Callers: g.identity, Facts: g.facts, Workers: g.links, Recorder: recorded,
		Limits: channelLimits(cfg), Log: g.log,
	})
	g.proxy = proxy.New(proxy.Options{
		Authorizer: g.authorizer, Register: g.register, Identifier: g.identity, Dialer: workerDialer{g.dialer, g.dialer.Offering("h2")},
		Settings: proxySettings(cfg), Tracer: g.tracer, Log: g.log, Opened: g.metrics.Opened,
		WorkerToken: g.links.Token, Unanswered: worker.Unanswered,
	})
	g.health = &health{gateway: g}
	return nil
}

// openListeners comes early: their addresses are among those that no worker
// has.
func (g *gateway) openListeners(ctx context.Context) (err error) {
	cfg := g.config
	if g.data, err = proxy.Listen(ctx, cfg.Listen.Address); err != nil {
		return fmt.Errorf("listen.address: %w", err)
	}
	if g.probes, err = listen(ctx, "probes.address", cfg.Probes.Address); err != nil {
		return err
	}
	g.operators, err = listen(ctx, "admin.address", cfg.Admin.Address)
	return err
}

func (g *gateway) openServers(context.Context) (err error) {
	cfg := g.config
	options := proxy.ServerOptions{
		Handler: g.proxy, MaxHeaderBytes: int(cfg.Listen.MaxHeaderBytes), HeaderTimeout: cfg.Listen.HeaderTimeout,
		MaxConnections: maxConnections(), Log: g.log,
	}
	if files := cfg.Listen.TLS; files.CertFile != "" {
		options.TLS, err = proxy.TLSConfig(proxy.TLSFiles{Cert: files.CertFile, Key: files.KeyFile, ClientCA: files.ClientCAFile}, g.log)
		if err != nil {
			return fmt.Errorf("listen.tls: %w", err)
		}
	}
	g.server = proxy.NewServer(options)
	g.admin, err = newAdmin(g)
	return err
}

// maxConnections leaves each connection a descriptor for its worker, and the
// rest of the gateway some of its own.
func maxConnections() int {
	const own, least = 128, 16
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > 1<<30 {
		return 0
	}
	return max(least, (int(limit.Cur)-own)/2)
}

func listen(ctx context.Context, key, address string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return l, nil
}

func (g *gateway) close() {
	for _, l := range []net.Listener{g.data, g.probes, g.operators} {
		if l != nil {
			_ = l.Close()
		}
	}
	if c, ok := g.store.(io.Closer); ok {
		_ = c.Close()
	}
	if g.marks != nil {
		_ = g.marks.Close()
	}
}

// run serves until ctx is done and then drains, at once when cut is done.
func (g *gateway) run(ctx, cut context.Context) error {
	defer g.close()
	parts, stop := context.WithCancel(context.Background())
	defer stop()
	group, parts := errgroup.WithContext(parts)
	background := func(run func(context.Context) error) { group.Go(func() error { return run(parts) }) }
	background(g.facts.Run)
	if g.marks != nil {
		background(g.marks.Run)
	}
	background(g.links.Run)
	background(g.policy.Run)
	background(g.register.Run)
	background(g.watchTokens)
	background(g.watchConfig)
	background(trimWhenIdle)

	logged, stopLog := context.WithCancel(context.Background())
	defer stopLog()
	logDone := make(chan error, 1)
	go func() { logDone <- g.decisions.Run(logged) }()

	group.Go(func() error { return g.server.Serve(g.data) })
	probes, operators := httpServer(g.health.handler(), g.log), httpServer(g.admin.handler(), g.log)
	group.Go(func() error { return serveHTTP(probes, g.probes) })
	group.Go(func() error { return serveHTTP(operators, g.operators) })
	g.log.Info("serving", "address", g.data.Addr().String(), "probes", g.probes.Addr().String(), "admin", g.operators.Addr().String(),
		"policy", g.policy.Revision(), "store", g.config.Store.Type, "workers", g.config.Workers.Link)

	select {
	case <-ctx.Done():
		g.drain(cut)
	case <-parts.Done(): // a part failed
	}
	_ = g.server.Close()
	_ = probes.Close()
	_ = operators.Close()
	stop()
	err := group.Wait()
	stopLog()
	g.flush()
	return errors.Join(err, <-logDone)
}

// flush sends the last traces. That they do not arrive is no fault of the
// gateway's end.
func (g *gateway) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := g.flushTraces(ctx); err != nil {
		g.log.Warn("the last traces were not delivered", "error", err)
	}
}

// drain: readiness goes first, so that whoever sends callers here stops; then
// what would open is refused; then the channels end, spread over what remains.
// Plain requests have nine tenths of that; the rest is for the gateway's own end.
func (g *gateway) drain(cut context.Context) {
	limits := g.channels.Load()
	deadline, cancel := context.WithTimeout(cut, limits.DrainDelay+(limits.DrainTimeout-limits.DrainDelay)*9/10)
	defer cancel()
	g.log.Info("draining", "channels", g.register.Len())
	g.health.draining.Store(true)
	wait(deadline, limits.DrainDelay)
	g.proxy.Drain()
	var calls sync.WaitGroup
	calls.Go(func() { _ = g.server.Drain(deadline) })
	g.register.Drain(deadline, (limits.DrainTimeout-limits.DrainDelay)/2)
	calls.Wait()
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func httpServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

func serveHTTP(s *http.Server, l net.Listener) error {
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}
