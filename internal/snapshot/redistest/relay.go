package redistest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Relay is a TCP relay in front of a server, that can be made to misbehave. It
// ends with the test.
type Relay struct {
	// Address that it listens on.
	Address, Port string

	listener net.Listener
	work     sync.WaitGroup

	mu     sync.Mutex
	target string // "unix" path or host:port
	refuse bool
	held   chan struct{} // closed while bytes flow
	delay  time.Duration
	conns  map[net.Conn]struct{}
}

// StartRelay starts a relay to target: host:port, or a path of a socket.
func StartRelay(t testing.TB, target string) *Relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	r := &Relay{
		Address: l.Addr().String(), Port: port, listener: l, target: target,
		held: make(chan struct{}), conns: map[net.Conn]struct{}{},
	}
	close(r.held)
	r.work.Go(r.accept)
	t.Cleanup(func() {
		l.Close()
		r.Resume()
		r.Cut()
		r.work.Wait()
	})
	return r
}

// To sends new connections to another server; those that stand, stand.
func (r *Relay) To(target string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target = target
}

// Pause holds every byte back, in both directions, and opens nothing: as
// a server does that is frozen, or a network that swallows. Resume undoes it.
func (r *Relay) Pause() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.held:
		r.held = make(chan struct{})
	default:
	}
}

// Resume lets what was held back go on.
func (r *Relay) Resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.held:
	default:
		close(r.held)
	}
}

// Cut closes every connection.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		c.Close()
	}
}

// Refuse has new connections closed at once, until it is called with false.
func (r *Relay) Refuse(refuse bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = refuse
}

// Delay holds every piece back for d.
func (r *Relay) Delay(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = d
}

func (r *Relay) accept() {
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.work.Go(func() { r.serve(c) })
	}
}

func (r *Relay) serve(c net.Conn) {
	defer c.Close()
	r.mu.Lock()
	target, refuse := r.target, r.refuse
	r.mu.Unlock()
	if refuse {
		return
	}
	network := "tcp"
	if target[0] == '/' {
		network = "unix"
	}
	server, err := net.DialTimeout(network, target, time.Second)
	if err != nil {
		return
	}
	defer server.Close()
	if !r.keep(c, server) {
		return
	}
	defer r.forget(c, server)
	var both sync.WaitGroup
	both.Go(func() { r.copy(server, c) })
	both.Go(func() { r.copy(c, server) })
	both.Wait()
}

func (r *Relay) keep(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		r.conns[c] = struct{}{}
	}
	return !r.refuse
}

func (r *Relay) forget(conns ...net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		delete(r.conns, c)
	}
}

// copy ends both connections when one direction does.
func (r *Relay) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		r.mu.Lock()
		held, delay := r.held, r.delay
		r.mu.Unlock()
		<-held
		if delay > 0 {
			time.Sleep(delay)
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
