package sample

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Server puts a Worker on a socket.
type Server struct {
	listener net.Listener
	http     *http.Server
	serving  serving
}

// Listen takes the socket at address, "127.0.0.1:0" being any free port.
// Connections wait until Run accepts them.
func Listen(address string, w *Worker) (*Server, error) {
	listener, err := net.Listen("tcp", address) //nolint:noctx // nothing to wait for
	if err != nil {
		return nil, fmt.Errorf("listen for the sample worker: %w", err)
	}
	s := &Server{listener: listener}
	s.http = &http.Server{
		Handler:           s.serving.while(w),
		ReadHeaderTimeout: 5 * time.Second,
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				w.count(func(c *Counts) { c.Connections++ })
			}
		},
	}
	return s, nil
}

// Address is the host:port of the socket.
func (s *Server) Address() string { return s.listener.Addr().String() }

// URL is the worker's URL, as its record has it.
func (s *Server) URL() string { return "http://" + s.Address() }

// Run serves until ctx ends, then ends every connection, WebSockets too, and
// returns when their handlers have.
func (s *Server) Run(ctx context.Context) error {
	ended, end := context.WithCancel(ctx)
	defer end()
	s.http.BaseContext = func(net.Listener) context.Context { return ended }
	stop := context.AfterFunc(ctx, func() { _ = s.http.Close() })
	defer stop()
	err := s.http.Serve(s.listener)
	end()
	s.serving.wait()
	if ctx.Err() != nil && errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve the sample worker: %w", err)
}

// Close gives up a socket that was never run.
func (s *Server) Close() error { return s.listener.Close() }

// serving counts the handlers that are at work, so that their end can be
// awaited: http.Server forgets a connection that was taken over.
type serving struct {
	mu   sync.Mutex
	over bool
	work sync.WaitGroup
}

func (s *serving) while(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if s.begin() {
			defer s.work.Done()
			next.ServeHTTP(rw, r)
		}
	})
}

func (s *serving) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	s.work.Add(1)
	return true
}

func (s *serving) wait() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.work.Wait()
}
