package proxy

import (
	"net"
	"sync"
	"sync/atomic"
)

// limitListener closes connections beyond max as soon as they come. Without it
// callers that nobody knows could take the descriptors that the store and open
// channels live by.
type limitListener struct {
	net.Listener
	max  int64
	open atomic.Int64
}

func (l *limitListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp, ok := c.(*net.TCPConn)
		if l.open.Add(1) <= l.max && ok {
			return &limitedConn{TCPConn: tcp, listener: l}, nil
		}
		l.open.Add(-1)
		_ = c.Close()
	}
}

// limitedConn gives its place back when it is closed.
type limitedConn struct {
	*net.TCPConn
	listener *limitListener
	once     sync.Once
}

func (c *limitedConn) Close() error {
	c.once.Do(func() { c.listener.open.Add(-1) })
	return c.TCPConn.Close()
}
