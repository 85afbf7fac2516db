package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sluice/internal/authz"
	"sluice/internal/channel"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Authorizer is the one path to a decision; *authz.Authorizer.
type Authorizer interface {
	Authorize(ctx context.Context, req *authz.Request, reserve func(*authz.Decision) authz.Reason) authz.Decision
	Admit(ctx context.Context, req *authz.Request, opened *authz.Decision) authz.Decision
	Refuse(req *authz.Request, d authz.Decision) authz.Decision
	Look(ctx context.Context, req *authz.Request) (map[authz.Capability]bool, authz.Decision)
}

// Identifier reads a request's credentials.
type Identifier interface {
	// Identify returns whom they stand for, or nil: there are none, or none
	// that is known. An error is a request that carries them in a way that
	// must not be guessed at; it is answered 400 with the error's words.
	Identify(r *http.Request) (*authz.Principal, error)
	// Scrub returns the headers without any credential.
	Scrub(h http.Header) http.Header
}

// Dialer connects to a worker: at address or, when that is empty, at the
// address of url. An error that is ErrForbidden is answered 503, a time-out
// 504, any other 502.
type Dialer interface {
	DialAddress(ctx context.Context, url, address string) (net.Conn, error)
	// DialHTTP2 connects for HTTP/2: negotiated with an https worker, spoken
	// with prior knowledge to any other.
	DialHTTP2(ctx context.Context, url, address string) (net.Conn, error)
}

// ErrForbidden is the Dialer's error for an address where no worker may be.
var ErrForbidden = errors.New("worker address is not allowed")

// Settings are what a reload of the configuration replaces.
type Settings struct {
	Routes           []Route
	AllowedHosts     []string       // with a port, or for every port; empty: any
	AllowedOrigins   []string       // exact; empty: no browser
	TrustedProxies   []netip.Prefix // whose X-Forwarded-* are believed
	OpenRate         int            // opens a second and caller, burst twice that
	HandshakeTimeout time.Duration  // for a worker's answer to an upgrade
	CloseGrace       time.Duration  // for a close frame before the socket is cut
}

// Options are what a Proxy is made of. The fields are required but for those
// that say what nil means.
type Options struct {
	Authorizer Authorizer
	Register   *channel.Register
	Identifier Identifier
	Dialer     Dialer
	Settings   Settings
	Tracer     trace.Tracer
	Log        *slog.Logger
	// WorkerToken is shown to workers as a bearer token, so that they know the
	// gateway; "" is none. Nil: none.
	WorkerToken func() (string, error)
	// Unanswered says how often in a row the other end of a connection did not
	// acknowledge what was sent again; 0 where nobody knows. Nil: nobody.
	Unanswered func(net.Conn) int
	// RestAfter is how long nothing may come from a plain socket before its pump
	// gives up its goroutine until something does, and twice that at most.
	// Zero: 5s.
	RestAfter time.Duration
	// Opened is told how long an open took, from the request read to the
	// first byte that may be forwarded.
	Opened func(time.Duration)
}

// Proxy is the data plane's handler. It is safe for concurrent use.
type Proxy struct {
	authorizer Authorizer
	register   *channel.Register
	identifier Identifier
	dialer     Dialer
	tracer     trace.Tracer
	log        *slog.Logger
	opened     func(time.Duration)
	token      func() (string, error)
	unanswered func(net.Conn) int
	restAfter  time.Duration
	propagator propagation.TextMapPropagator
	settings   atomic.Pointer[settings]
	draining   atomic.Bool
}

type settings struct {
	Settings
	matcher *matcher
	rates   *rates
}

// New returns a Proxy. It starts nothing.
func New(o Options) *Proxy {
	p := &Proxy{
		authorizer: o.Authorizer, register: o.Register, identifier: o.Identifier, dialer: o.Dialer,
		tracer: o.Tracer, log: o.Log, opened: o.Opened, propagator: propagation.TraceContext{}, restAfter: o.RestAfter,
	}
	if p.restAfter == 0 {
		p.restAfter = 5 * time.Second
	}
	if p.token = o.WorkerToken; p.token == nil {
		p.token = func() (string, error) { return "", nil }
	}
	if p.unanswered = o.Unanswered; p.unanswered == nil {
		p.unanswered = func(net.Conn) int { return 0 }
	}
	if p.opened == nil {
		p.opened = func(time.Duration) {}
	}
	p.Reload(o.Settings)
	return p
}

// Reload puts s in force for requests from now on.
func (p *Proxy) Reload(s Settings) {
	next := &settings{Settings: s, matcher: newMatcher(s.Routes), rates: newRates(s.OpenRate)}
	if before := p.settings.Load(); before != nil && before.OpenRate == s.OpenRate {
		next.rates = before.rates
	}
	p.settings.Store(next)
}

// Drain refuses what would open from now on.
func (p *Proxy) Drain() { p.draining.Store(true) }

// ServeHTTP is the first story, up to the decision: each step refuses or
// hands on.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{proxy: p, settings: p.settings.Load(), w: w, r: r, started: time.Now()}
	defer x.span().End()
	if refused := x.check(); refused != nil {
		x.refuse(*refused)
		return
	}
	if refused := x.identify(); refused != nil {
		x.refuse(*refused)
		return
	}
	if x.route.look {
		x.look()
		return
	}
	x.open()
}

// check is everything that is judged by the request alone, in the contract's
// order: target, route, method, handshake.
func (x *exchange) check() *refusal {
	r, s := x.r, x.settings
	x.connect = extendedConnect(r)
	x.grpc = isGRPC(r)
	if status, detail, ok := refusalOf(r); ok {
		refused := malformed(status, detail)
		refused.close = true
		return &refused
	}
	path, _, err := checkTarget(r.RequestURI)
	if err != nil {
		return wireRefusal(err)
	}
	if err := x.checkHost(); err != nil {
		return wireRefusal(err)
	}
	if !hostAllowed(s.AllowedHosts, r.Host) {
		refused := misdirected()
		return &refused
	}
	r.URL.Path, r.URL.RawPath = path, ""
	var ok bool
	if x.route, ok = s.matcher.match(r); !ok {
		refused := notFound()
		return &refused
	}
	if refused := x.checkLease(); refused != nil {
		return refused
	}
	tunnels := x.connect != "" && x.route.Kind == authz.Duplex
	if !x.route.takes(r.Method) && !tunnels {
		refused := methodNotAllowed(x.route.allow())
		return &refused
	}
	if x.proxy.draining.Load() {
		refused := shuttingDown()
		return &refused
	}
	return x.checkUpgrade()
}

// checkHost refuses a request that names its host twice over HTTP/2: policy
// and worker must not hear of different ones.
func (x *exchange) checkHost() error {
	if hosts := x.r.Header["Host"]; len(hosts) > 1 || len(hosts) == 1 && hosts[0] != x.r.Host {
		return wireRefuse(http.StatusBadRequest, "the request names two hosts")
	}
	if x.r.Host == "" && x.r.ProtoMajor == 1 && x.r.ProtoMinor == 0 {
		return nil
	}
	return checkHost(x.r.Host)
}

// hostAllowed says whether a request for host is served: an allowed host without
// a port is served on every port. Letters are compared without their case.
func hostAllowed(allowed []string, host string) bool {
	name := withoutPort(host)
	return len(allowed) == 0 || slices.ContainsFunc(allowed, func(a string) bool {
		return strings.EqualFold(a, host) || withoutPort(a) == a && strings.EqualFold(a, name)
	})
}

func withoutPort(host string) string {
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		return host[:i]
	}
	return host
}

func (x *exchange) checkLease() *refusal {
	x.lease = x.route.lease
	if name := x.route.LeaseHeader; name != "" && x.lease == "" {
		values := x.r.Header.Values(name)
		if len(values) != 1 {
			refused := badRequest("the header that names the lease must be there once")
			return &refused
		}
		x.lease = values[0]
	}
	if !authz.ValidID(x.lease) {
		refused := badRequest("the lease id is not well-formed")
		return &refused
	}
	return nil
}

func wireRefusal(err error) *refusal {
	status, detail := wireStatus(err)
	refused := malformed(status, detail)
	refused.close = true
	return &refused
}
