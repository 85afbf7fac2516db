package proxy

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"sluice/internal/authz"
	"sluice/internal/channel"
	"strings"
	"testing"
	"time"
)

// goroutines counts those that stand in a function.
func goroutines(function string) int {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return strings.Count(string(stacks), function)
}

func comesAbout(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for until := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("it did not come about that %s", what)
		}
	}
}

func resting() int {
	lot.mu.Lock()
	defer lot.mu.Unlock()
	return len(lot.resting)
}

// A channel at rest has no goroutine, and does all that a channel does.
func TestChannelsAtRestHoldNoGoroutineAndTalkOn(t *testing.T) {
	const many = 50
	worker := listen(t, func(c net.Conn) {
		if r, br := switches(t, c); r != nil {
			_, _ = io.Copy(c, br)
		}
	})
	g := startGateway(t, worker)
	var callers []net.Conn
	for range many {
		c, _ := open(t, g.address, rawHead)
		callers = append(callers, c)
	}
	for round := range 3 {
		comesAbout(t, "all rest", func() bool { return resting() == 2*many && goroutines("proxy.(*pump).run") == 0 })
		said := bytes.Repeat([]byte{byte('a' + round)}, 1000*(round+1)*(round+1))
		for _, c := range callers {
			if _, err := c.Write(said); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range callers {
			heard := make([]byte, len(said))
			if _, err := io.ReadFull(c, heard); err != nil || !bytes.Equal(heard, said) {
				t.Fatalf("round %d: %v", round, err)
			}
		}
	}
	comesAbout(t, "all rest", func() bool { return resting() == 2*many })
	_ = callers[0].(*net.TCPConn).CloseWrite() // a peer's end is noticed too
	if s := g.summary(t); s.Ending.Why != channel.EndByCaller.Why && s.Ending.Why != channel.EndByWorker.Why {
		t.Errorf("recorded %+v", s.Ending)
	}
	g.decides.set(denies(authz.CodeDuplexDenied))
	g.register.LeaseChanged("lease-1")
	for range many - 1 {
		if s := g.summary(t); s.Ending.Why != channel.Revoked {
			t.Errorf("recorded %+v", s.Ending)
		}
	}
	comesAbout(t, "the parking is empty", func() bool { return resting() == 0 && goroutines("proxy.(*parking).wait") == 0 })
}

// A connection that is no plain socket never parks: a deadline that it did not
// ask for ends it.
func TestWhatIsNoPlainSocketDoesNotPark(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	_ = near.SetReadDeadline(time.Unix(1, 0))
	g := startGateway(t, "127.0.0.1:1")
	ch, _ := g.register.Reserve(&authz.Request{LeaseID: "lease-1", Principal: &authz.Principal{TenantID: "acme"}}, ptr(allows("127.0.0.1:1")(nil)))
	p := &pipe{channel: ch, restAfter: time.Millisecond, unanswered: func(net.Conn) int { return 0 }}
	other, away := net.Pipe()
	defer away.Close()
	if !ch.Commit(authz.Decision{Allow: true}, p.cut, nil) {
		t.Fatal("it ended already")
	}
	p.start(near, nil, other, nil)
	if s := g.summary(t); s.Ending.Why != channel.EndCallerLost.Why {
		t.Errorf("recorded %+v", s.Ending)
	}
}

// However late a woken pump comes to read, it reads.
func TestAWokenPumpReadsHoweverLate(t *testing.T) {
	worker := listen(t, func(c net.Conn) {
		if r, br := switches(t, c); r != nil {
			_, _ = io.Copy(c, br)
		}
	})
	g := startGateway(t, worker)
	g.proxy.restAfter = time.Nanosecond
	c, _ := open(t, g.address, rawHead)
	for range 20 {
		comesAbout(t, "it rests", func() bool { return resting() > 0 })
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
	}
}

func ptr[T any](v T) *T { return &v }
