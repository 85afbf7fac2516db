// Package redistest runs a real redis-server for tests. A machine without one
// fails the test: what is tested is how Redis itself behaves.
package redistest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Server is one redis-server, empty at first, on a Unix socket. It ends with
// the test.
type Server struct {
	// Addr is the path of its socket.
	Addr string
	// Client is another client than the one under test.
	Client *redis.Client

	t    testing.TB
	args []string
	cmd  *exec.Cmd
}

// Start starts a server; args are further options of redis-server.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	// Not the test's own directory: the path of a socket must be short.
	dir, err := os.MkdirTemp("", "redis")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &Server{t: t, Addr: filepath.Join(dir, "s")}
	s.args = append([]string{"--port", "0", "--unixsocket", s.Addr, "--save", "", "--appendonly", "no", "--dir", dir}, args...)
	s.Client = redis.NewClient(&redis.Options{Network: "unix", Addr: s.Addr, DisableIdentity: true})
	t.Cleanup(func() { s.Client.Close() })
	s.Up()
	t.Cleanup(s.Down)
	return s
}

// Up starts the server again after Down, as empty as at first.
func (s *Server) Up() {
	s.t.Helper()
	s.cmd = exec.Command("redis-server", s.args...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("start redis-server, which this test needs: %v", err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for s.Client.Ping(context.Background()).Err() != nil {
		if time.Now().After(deadline) {
			s.t.Fatal("redis-server does not answer")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Down kills the server, if it runs.
func (s *Server) Down() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

// Freeze stops the server's process without closing anything: connections
// stand, and nothing is answered. Thaw undoes it.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw lets a frozen server go on.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}
