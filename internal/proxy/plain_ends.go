package proxy

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sluice/internal/channel"
	"sync"
	"sync/atomic"
)

// watchedConn tells when a worker's connection ends before it is settled that
// there is an answer, or none. Later the caller's connection may be at its next
// request.
type watchedConn struct {
	net.Conn
	mu   sync.Mutex
	lost func() // nil: it is settled, or was told
	gone bool   // before it was settled
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil {
		return n, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost != nil {
		c.gone = true
		c.lost()
		c.lost = nil
	}
	return n, err
}

// settle reports whether the connection ended before.
func (c *watchedConn) settle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = nil
	return c.gone
}

// callerBody counts what a caller sends to the worker.
type callerBody struct {
	io.ReadCloser
	channel  *channel.Channel
	messages grpcMessages
	over     atomic.Bool // read to its end
	broken   atomic.Bool // its framing is
}

func (b *callerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		ended, err := b.messages.pass(b.channel, p[:n])
		if err != nil {
			return 0, err
		}
		b.channel.ToWorker.Add(n, ended)
	}
	switch {
	case errors.Is(err, io.EOF):
		b.over.Store(true)
	case errors.Is(err, errBody):
		b.broken.Store(true)
	}
	return n, err
}

// hangUp closes a connection without a word that a peer could hold up.
func hangUp(c net.Conn) {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	_ = c.Close()
}
