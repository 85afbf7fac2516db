package proxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// scriptConn is a connection on which the given segments arrive, each by a
// read of its own, and then the end.
type scriptConn struct {
	mu       sync.Mutex
	segments [][]byte
	written  []byte
}

func (c *scriptConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.segments) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.segments[0])
	if c.segments[0] = c.segments[0][n:]; len(c.segments[0]) == 0 {
		c.segments = c.segments[1:]
	}
	return n, nil
}

func (c *scriptConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written = append(c.written, p...)
	return len(p), nil
}

// rest is what was not read.
func (c *scriptConn) rest() string {
	all := ""
	for _, s := range c.segments {
		all += string(s)
	}
	return all
}

func (*scriptConn) Close() error                     { return nil }
func (*scriptConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*scriptConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*scriptConn) SetDeadline(time.Time) error      { return nil }
func (*scriptConn) SetReadDeadline(time.Time) error  { return nil }
func (*scriptConn) SetWriteDeadline(time.Time) error { return nil }

// oneConn is a listener that accepts one connection.
type oneConn struct {
	conn chan net.Conn
	done chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.done:
		return nil, errors.New("closed")
	}
}
func (l *oneConn) Close() error { return nil }
func (*oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// serveOne serves c and returns when done is closed and the server has ended.
func serveOne(s *http.Server, c net.Conn, done <-chan struct{}) {
	l := &oneConn{make(chan net.Conn, 1), make(chan struct{})}
	l.conn <- c
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Serve(l) }()
	<-done
	close(l.done)
	<-ended
}

// serveScript serves what arrives in segments and returns what the handler
// saw, the early bytes of upgrades, and the server's answers.
func serveScript(o headOptions, segments ...[]byte) (served []servedRequest, early []string, answers string) {
	s := newGuardedServer()
	done := make(chan struct{})
	s.ConnState = func(_ net.Conn, state http.ConnState) { closeOn(done, state) }
	s.taken = func() { close(done) }
	conn := &scriptConn{segments: segments}
	serveOne(s.Server, guardConn(conn, &o), done)
	return s.seen(), s.early, string(conn.written)
}

func closeOn(done chan struct{}, s http.ConnState) {
	if s == http.StateClosed {
		close(done)
	}
}

// script is a connection's worth of requests of every form.
const script = "GET /1 HTTP/1.1\r\nHost: gw\r\n\r\n" +
	"POST /2 HTTP/1.1\r\nHost: gw\r\nContent-Length: 11\r\n\r\nhello\r\n\r\nab" +
	"POST /3?a=%20 HTTP/1.1\r\nhost:\tgw:80 \r\nTransfer-Encoding: Chunked\r\nTrailer: X-Sum\r\n\r\n" +
	"5\r\nhello\r\n1;ext=\"q\";a\r\n\n\r\n00a\r\n0\r\n\r\nGET /\r\n0\r\nX-Sum: 1\r\nX-T2:\r\n\r\n" +
	"HEAD /4 HTTP/1.1\r\nHost: [::1]:8080\r\nConnection: keep-alive, notupgrade\r\nUpgrade: websocket\r\nX-Opaque: caf\xe9\r\nX-Empty:\r\n\r\n" +
	"PUT /5 HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n" +
	"POST /6 HTTP/1.1\r\nHost: gw\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nend"

var scriptServed = []servedRequest{
	{"GET /1", "", false},
	{"POST /2", "hello\r\n\r\nab", false},
	{"POST /3?a=%20", "hello\n0\r\n\r\nGET /", false},
	{"HEAD /4", "", false},
	{"PUT /5", "", false},
	{"POST /6", "end", false},
}
