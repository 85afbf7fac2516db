package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"time"
)

// headOptions are the bounds of a head guard.
type headOptions struct {
	// MaxBytes bounds a request head, in bytes; zero means 64 KiB. The
	// server's own MaxHeaderBytes must not be smaller.
	MaxBytes int
	// Timeout bounds the time from a head's first byte to its last; zero
	// means 5 s. A head that is later ends the connection without an answer.
	Timeout time.Duration
	// PriorKnowledge lets a connection without TLS begin with the HTTP/2
	// preface. What follows it is not this guard's.
	PriorKnowledge bool
}

// guardHeads returns a listener whose connections give net/http's server only
// request heads that are strictly well-formed, before that server repairs
// them: a head that two readers could take for two different requests is how
// one request is judged and another one served.
//
// l accepts plain connections or *tls.Conn; a connection that negotiates
// HTTP/2 there is passed through. The server must not read a bad head and
// cannot be told by an error, for it would answer in its own words, and an
// earlier answer may still be under way. So a bad head is replaced by a
// well-formed request that only refusalOf recognises; nothing behind it is
// read.
//
// Bodies are followed to find the next head. Behind the head of an upgrade
// (and its body, if it has one) nothing is given to the server: whoever
// hijacks the connection gets those bytes from takeConn, and when the upgrade
// is refused they can never become a request.
func guardHeads(l net.Listener, o headOptions) net.Listener {
	if o.MaxBytes <= 0 {
		o.MaxBytes = 64 << 10
	}
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	return &headListener{Listener: l, options: o}
}

type headListener struct {
	net.Listener
	options headOptions
}

func (l *headListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return guardConn(c, &l.options), nil
}

func guardConn(c net.Conn, o *headOptions) net.Conn {
	guarded := &headConn{Conn: c, options: o}
	if t, ok := c.(*tls.Conn); ok {
		secured := &headTLSConn{headConn: guarded, tls: t}
		secured.negotiated()
		return secured
	}
	guarded.prior = o.PriorKnowledge
	return guarded
}

// takeConn takes a hijacked connection from net/http and its guard. It returns
// the connection beneath and the bytes that were read from it and not
// consumed: the caller's early bytes. br is what Hijack returned, or nil. It
// works on a connection without a guard too.
func takeConn(c net.Conn, br *bufio.Reader) (net.Conn, []byte) {
	var early []byte
	if br != nil {
		early, _ = br.Peek(br.Buffered())
		early = bytes.Clone(early)
	}
	switch g := c.(type) {
	case *headConn:
		return g.detach(early)
	case *headTLSConn:
		return g.detach(early)
	}
	return c, early
}

// headTLSConn is a guarded *tls.Conn. It shows net/http what that looks for in
// one.
type headTLSConn struct {
	*headConn
	tls *tls.Conn
}

// HandshakeContext runs the handshake unless it has been run.
func (c *headTLSConn) HandshakeContext(ctx context.Context) error {
	if err := c.tls.HandshakeContext(ctx); err != nil {
		return err
	}
	c.negotiated()
	return nil
}

// ConnectionState is the TLS connection's.
func (c *headTLSConn) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }

func (c *headTLSConn) negotiated() {
	if c.tls.ConnectionState().NegotiatedProtocol == "h2" {
		c.state = statePassing
	}
}
