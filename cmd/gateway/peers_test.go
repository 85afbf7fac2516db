//go:build soak

package main

import (
	"bufio"
	"crypto/sha1" //nolint:gosec // RFC 6455 section 4.2.2 names it
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// deaf makes the kernel drop all that comes for a connection, as if the machine
// at this end were gone.
func deaf(t *testing.T, c net.Conn) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	_ = raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), syscall.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop[0]})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A peer that is gone without a word is found, whether something is on its way
// to it or not, and the other end is told. It takes half a minute, which is why
// this is not among the usual tests.
func TestAPeerThatIsGoneWithoutAWordIsFound(t *testing.T) {
	accepted := make(chan net.Conn, 1)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			r, err := http.ReadRequest(bufio.NewReader(c))
			if err != nil {
				_ = c.Close() // a connection that was only tried
				continue
			}
			sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // as above
			fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\n", base64.StdEncoding.EncodeToString(sum[:]))
			accepted <- c
		}
	}()
	s := newScene(t)
	for _, lease := range []string{"busy-caller", "busy-worker", "idle-caller", "idle-worker"} {
		s.lease(lease, nil)
	}
	s.start(fmt.Sprintf(`workers: {link: static, static: [{id: wrk-a, pluginId: plg-a, url: "http://%s", methods: [duplexChannelOpen, duplexChannelWrite, duplexChannelStop, duplexChannelClose]}]}`, listener.Addr()))

	type end struct{ caller, worker net.Conn }
	open := func(lease string) end {
		c, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_, _ = io.WriteString(c, "GET /v1/leases/"+lease+"/duplex HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer token-of-alice\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || answer.StatusCode != 101 {
			t.Fatal(answer, err)
		}
		w := <-accepted
		t.Cleanup(func() { _ = w.Close() })
		return end{c, w}
	}
	speak := func(c net.Conn, frame string) {
		for {
			if _, err := io.WriteString(c, frame); err != nil {
				return
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
	for lease, row := range map[string]struct {
		gone func(end) net.Conn
		says func(end)
		why  string
	}{
		"busy-caller": {func(e end) net.Conn { return e.caller }, func(e end) { speak(e.worker, "\x81\x02hi") }, "caller_lost"},
		"busy-worker": {func(e end) net.Conn { return e.worker }, func(e end) { speak(e.caller, "\x81\x82\x00\x00\x00\x00hi") }, "worker_failed"},
		"idle-caller": {func(e end) net.Conn { return e.caller }, func(end) {}, "caller_lost"},
		"idle-worker": {func(e end) net.Conn { return e.worker }, func(end) {}, "worker_failed"},
	} {
		e := open(lease)
		t.Run(strings.ReplaceAll(lease, "-", " "), func(t *testing.T) {
			t.Parallel()
			gone := row.gone(e)
			left := e.caller
			if gone == e.caller {
				left = e.worker
			}
			deaf(t, gone)
			since := time.Now()
			go row.says(e)
			_ = left.SetReadDeadline(time.Now().Add(90 * time.Second))
			if _, err := io.Copy(io.Discard, left); err != nil && !strings.Contains(err.Error(), "reset") {
				t.Errorf("the other end: %v", err)
			}
			t.Logf("found after %v", time.Since(since).Round(time.Second))
			s.eventually("the end is recorded", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				for _, r := range s.decisions {
					if r.Custom.Sluice.Lease == lease && r.Custom.Sluice.Ended != nil {
						if why := r.Custom.Sluice.Ended.Why; why != row.why {
							t.Errorf("recorded %s", why)
						}
						return true
					}
				}
				return false
			})
		})
	}
}
