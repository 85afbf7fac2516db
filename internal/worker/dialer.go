package worker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// Every error of a Dialer is one of these three, or the end of the caller's
// own context.
var (
	// ErrForbidden: the URL is none, or its address is not one that workers
	// may have. Nothing was sent there.
	ErrForbidden = errors.New("not an allowed worker address")
	// ErrTimeout: the worker did not answer within the time of a step.
	ErrTimeout = errors.New("worker did not answer in time")
	// ErrRefused: there is no connection, for any other cause.
	ErrRefused = errors.New("worker could not be reached")
)

// DialerOptions configures a Dialer.
type DialerOptions struct {
	// Allow lists where workers may be, as CIDR or CIDR:port
	// (workers.allow). Empty allows nothing.
	Allow []string
	// Own lists the gateway's listeners and its store as host:port; no
	// worker is there, whatever Allow says. An empty or unspecified host
	// stands for every address of this machine. Without it a record could
	// point a caller's channel at the admin listener or the store.
	Own []string
	// Found, when set, lists more of them, as they are found while the gateway
	// runs: the masters that sentinels or a cluster name.
	Found func() []string
	// Timeout bounds each step: resolving and connecting, the TLS handshake
	// (workers.dial_timeout). Zero: 2s.
	Timeout time.Duration
	// TLS is for workers with an https URL.
	TLS TLSOptions
	// Resolver looks names up. Nil: the system's.
	Resolver *net.Resolver
}

// Dialer makes every connection to a worker. It is immutable and safe for
// concurrent use.
type Dialer struct {
	allow    []allowed
	own      []own
	found    func() []string
	timeout  time.Duration
	tls      *tls.Config
	resolver *net.Resolver
}

// NewDialer checks the options and reads the TLS files.
func NewDialer(o DialerOptions) (*Dialer, error) {
	d := &Dialer{timeout: o.Timeout, resolver: o.Resolver, found: o.Found}
	if d.timeout == 0 {
		d.timeout = 2 * time.Second
	}
	if d.resolver == nil {
		d.resolver = net.DefaultResolver
	}
	for _, entry := range o.Allow {
		a, err := parseAllowed(entry)
		if err != nil {
			return nil, err
		}
		d.allow = append(d.allow, a)
	}
	for _, address := range o.Own {
		own, err := parseOwn(address)
		if err != nil {
			return nil, err
		}
		d.own = append(d.own, own)
	}
	var err error
	d.tls, err = o.TLS.config()
	return d, err
}

// Offering returns a Dialer that offers these protocols (ALPN) to https
// workers; without it that is http/1.1.
func (d *Dialer) Offering(protocols ...string) *Dialer {
	other := *d
	other.tls = d.tls.Clone()
	other.tls.NextProtos = protocols
	return &other
}

// DialContext connects to the worker at url. For https the handshake is done
// and the name verified: the connection is a *tls.Conn.
func (d *Dialer) DialContext(ctx context.Context, url string) (net.Conn, error) {
	return d.DialAddress(ctx, url, "")
}

// DialAddress connects to the worker of url at address, an IP and port such
// as the one that its live document came from; the empty address is url's
// own. The address is checked like any other.
func (d *Dialer) DialAddress(ctx context.Context, url, address string) (net.Conn, error) {
	target, err := ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrForbidden, err)
	}
	if address == "" {
		address = target.Address()
	}
	return d.dial(ctx, target, address)
}

func (d *Dialer) dial(ctx context.Context, target Target, address string) (net.Conn, error) {
	conn, err := d.connect(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("dial worker at %s: %w", address, kindOf(ctx, err))
	}
	if !target.TLS {
		return conn, nil
	}
	secured, err := d.secure(ctx, conn, target.Name)
	if err != nil {
		return nil, fmt.Errorf("tls handshake with worker at %s: %w", address, kindOf(ctx, err))
	}
	return secured, nil
}

func (d *Dialer) connect(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{
		Timeout:  d.timeout,
		Resolver: d.resolver,
		// An idle channel whose worker is gone is noticed after 30s.
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3,
		},
		// The address here is the one that connect(2) gets: a name that
		// resolves differently from one look to the next changes nothing.
		ControlContext: func(ctx context.Context, _, address string, _ syscall.RawConn) error {
			return d.check(ctx, address)
		},
	}
	return dialer.DialContext(ctx, "tcp", address)
}

// check is nil when a worker may be at address, an IP and port.
func (d *Dialer) check(ctx context.Context, address string) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrForbidden, err)
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	if !d.allows(to) {
		return fmt.Errorf("%w: %s is not in workers.allow", ErrForbidden, to)
	}
	all, err := d.owned()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrForbidden, err)
	}
	for _, o := range all {
		covered, err := o.covers(ctx, d.resolver, to)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrForbidden, err)
		}
		if covered {
			return fmt.Errorf("%w: %s is the gateway's own or its store's", ErrForbidden, to)
		}
	}
	return nil
}

// owned is the configured addresses and the found ones.
func (d *Dialer) owned() ([]own, error) {
	if d.found == nil {
		return d.own, nil
	}
	all := d.own[:len(d.own):len(d.own)]
	for _, address := range d.found() {
		o, err := parseOwn(address)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

func (d *Dialer) allows(to netip.AddrPort) bool {
	if to.Addr().IsUnspecified() || to.Addr().IsMulticast() {
		return false
	}
	for _, a := range d.allow {
		if a.covers(to) {
			return true
		}
	}
	return false
}

// kindOf gives err its kind; the end of the caller's context stays what it is.
func kindOf(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	if errors.Is(err, ErrForbidden) || errors.Is(err, ErrTimeout) || errors.Is(err, ErrRefused) {
		return err
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("%w: %w", ErrTimeout, err)
	}
	return fmt.Errorf("%w: %w", ErrRefused, err)
}
