package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// ServerOptions configures the data plane's listener.
type ServerOptions struct {
	Handler http.Handler
	// TLS is nil for plain HTTP/1.1 and h2c.
	TLS *tls.Config
	// MaxHeaderBytes bounds a request's head; HeaderTimeout the time to
	// receive it and the TLS handshake. Both are required: without them a
	// caller holds a connection for nothing.
	MaxHeaderBytes int
	HeaderTimeout  time.Duration
	// MaxConnections is how many callers' connections there may be; 0: no
	// limit. It belongs below half of the descriptors that the process may
	// have: a channel takes a second one for its worker.
	MaxConnections int
	Log            *slog.Logger
}

// idleConnTime is how long a kept-alive connection may wait for its next
// request.
const idleConnTime = 30 * time.Second

// Server accepts callers: every HTTP/1.1 request head passes the strict guard
// before net/http reads it; HTTP/2 is net/http's own.
type Server struct {
	http *http.Server // until Drain
	late *http.Server // takes those who come while it drains, so that they are refused in words
	tls  *tls.Config  // nil: plain
	max  int64

	mu       sync.Mutex
	listener *keptListener
	closed   bool
}

// NewServer returns a Server. It starts nothing.
func NewServer(o ServerOptions) *Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(o.TLS == nil)
	serve := func() *http.Server { return httpServer(o, protocols) }
	return &Server{http: serve(), late: serve(), tls: o.TLS, max: int64(o.MaxConnections)}
}

func httpServer(o ServerOptions, protocols *http.Protocols) *http.Server {
	return &http.Server{
		Handler:                      o.Handler,
		Protocols:                    protocols,
		TLSConfig:                    o.TLS,
		ReadHeaderTimeout:            o.HeaderTimeout,
		IdleTimeout:                  idleConnTime,
		MaxHeaderBytes:               o.MaxHeaderBytes,
		DisableGeneralOptionsHandler: true, // OPTIONS * is refused like any other target
		ErrorLog:                     slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
}

// Listen opens the data plane's address with keep-alive probes, so that a
// caller that is gone without a word is noticed within half a minute.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	config := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3,
	}}
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("open the data plane's listener: %w", err)
	}
	return l, nil
}

// Serve accepts callers on l until Close, while it drains too.
func (s *Server) Serve(l net.Listener) error {
	kept := &keptListener{Listener: l}
	s.mu.Lock()
	s.listener = kept
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return l.Close()
	}
	for _, server := range []*http.Server{s.http, s.late} {
		if err := server.Serve(s.guarded(kept)); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, errHandedOver) {
			return fmt.Errorf("serve the data plane: %w", err)
		}
		if !s.reopen() {
			break
		}
	}
	return nil
}

func (s *Server) guarded(l net.Listener) net.Listener {
	if s.max > 0 {
		l = &limitListener{Listener: l, max: s.max}
	}
	if s.tls != nil {
		l = tls.NewListener(l, s.tls)
	}
	return guardHeads(l, headOptions{
		MaxBytes: s.http.MaxHeaderBytes, Timeout: s.http.ReadHeaderTimeout, PriorKnowledge: s.tls == nil,
	})
}

// reopen lets the late server accept, unless the end has come.
func (s *Server) reopen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	return s.listener.wake() == nil
}

// Drain has HTTP/2 connections hear GOAWAY and idle ones closed, and returns
// when nothing is under way on those that were there, or ctx is done.
// Channels are the register's to end. Callers who come now are still answered:
// net/http hangs up on a request that it reads just when it begins to shut down,
// so connections are given to the late server some time before.
func (s *Server) Drain(ctx context.Context) error {
	s.handOver()
	select {
	case <-ctx.Done():
	case <-time.After(handOverTime):
	}
	return s.http.Shutdown(ctx)
}

// handOverTime is how long a caller who came last has to send its request.
const handOverTime = 250 * time.Millisecond

func (s *Server) handOver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		s.listener.handedOver.Store(true)
		_ = s.listener.Close()
	}
}

// Close ends every connection at once.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	kept := s.listener
	s.mu.Unlock()
	err := errors.Join(s.http.Close(), s.late.Close())
	if kept != nil {
		err = errors.Join(err, ignoreClosed(kept.Listener.Close()))
	}
	return err
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// keptListener is not closed by the server that gives it up: the next one
// goes on with it.
type keptListener struct {
	net.Listener
	handedOver atomic.Bool // to the next one
}

var errHandedOver = errors.New("the listener is another server's now")

func (k *keptListener) Accept() (net.Conn, error) {
	c, err := k.Listener.Accept()
	if err != nil && k.handedOver.Load() {
		return nil, errHandedOver // which ends Serve at once
	}
	return c, err
}

// Close ends an Accept that waits.
func (k *keptListener) Close() error { return k.setDeadline(time.Unix(1, 0)) }

func (k *keptListener) wake() error {
	k.handedOver.Store(false)
	return k.setDeadline(time.Time{})
}

func (k *keptListener) setDeadline(t time.Time) error {
	d, ok := k.Listener.(interface{ SetDeadline(time.Time) error })
	if !ok {
		return errors.ErrUnsupported
	}
	return d.SetDeadline(t)
}
