package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
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
	Log            *slog.Logger
}

// idleConnTime is how long a kept-alive connection may wait for its next
// request.
const idleConnTime = 2 * time.Minute

// Server accepts callers: every HTTP/1.1 request head passes the strict guard
// before net/http reads it; HTTP/2 is net/http's own.
type Server struct{ http *http.Server }

// NewServer returns a Server. It starts nothing.
func NewServer(o ServerOptions) *Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(o.TLS == nil)
	return &Server{&http.Server{
		Handler:                      o.Handler,
		Protocols:                    protocols,
		TLSConfig:                    o.TLS,
		ReadHeaderTimeout:            o.HeaderTimeout,
		IdleTimeout:                  idleConnTime,
		MaxHeaderBytes:               o.MaxHeaderBytes,
		DisableGeneralOptionsHandler: true, // OPTIONS * is refused like any other target
		ErrorLog:                     slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}}
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

// Serve accepts callers on l until Shutdown.
func (s *Server) Serve(l net.Listener) error {
	if s.http.TLSConfig != nil {
		l = tls.NewListener(l, s.http.TLSConfig)
	}
	l = guardHeads(l, headOptions{
		MaxBytes: s.http.MaxHeaderBytes, Timeout: s.http.ReadHeaderTimeout, PriorKnowledge: s.http.TLSConfig == nil,
	})
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the data plane: %w", err)
	}
	return nil
}

// Shutdown stops accepting and waits for plain requests; channels are the
// register's to end.
func (s *Server) Shutdown(ctx context.Context) error { return s.http.Shutdown(ctx) }

// Close ends every connection at once.
func (s *Server) Close() error { return s.http.Close() }
