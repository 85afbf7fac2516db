package proxy

import (
	"errors"
	"io"
	"net"
	"os"
	"time"
)

// headState is what a guarded connection expects next.
//
//	head ──► body ──► head …
//	  │        └────► held      (behind an upgrade)
//	  ├─────────────► held
//	  ├─────────────► passing   (HTTP/2)
//	  └─────────────► over      (refused, too late, or detached)
type headState int

const (
	stateHead    headState = iota
	stateLength            // a body of left bytes
	stateChunked           // a body that chunks follows
	stateHeld              // bytes are kept for takeConn
	statePassing           // bytes are not looked at
	stateOver              // reads end with err
)

// headConn guards one connection. Like any connection it is read by one
// goroutine at a time; deadlines and Close may be used by others.
type headConn struct {
	net.Conn
	options *headOptions

	// Of the goroutine that reads.
	state    headState
	prior    bool           // the HTTP/2 preface may come
	upgrade  bool           // the head that was passed is an upgrade
	left     int64          // stateLength: bytes of the body still to come
	chunks   *chunkFollower // stateChunked
	err      error          // stateOver
	held     headBuffer     // read and not given yet
	passable int            // of held: may be given
	scanned  int            // of held beyond passable: looked at as a head

	deadlines readDeadlines
}

// Read gives what may pass. It never gives a part of a head that is not known
// to be good as a whole.
func (c *headConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if c.passable > 0 {
			n := c.held.give(p[:min(len(p), c.passable)])
			c.passable -= n
			return n, nil
		}
		var n int
		var err error
		switch c.state {
		case stateHead:
			n, err = c.readHead(p)
		case stateLength, stateChunked:
			n, err = c.readBody(p)
		case stateHeld:
			err = c.hold(p)
		case statePassing:
			return c.Conn.Read(p)
		default:
			err = c.err
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// readHead reads until a head is whole or refused. The first bytes come into
// p, so that a connection that is idle holds no buffer; a head that came as a
// whole is given from there.
func (c *headConn) readHead(p []byte) (int, error) {
	if c.held.len() == 0 {
		n, err := c.Conn.Read(p)
		if n == 0 {
			return 0, err
		}
		passes := c.judge(p[:n])
		c.keep(p[passes:n])
		return passes, nil
	}
	if c.scanned < c.held.len() {
		if n := c.judge(c.held.bytes()); n > 0 {
			c.passable = n
		}
		return 0, nil
	}
	c.deadlines.startHead(c.Conn, c.options.Timeout)
	err := c.held.fill(c.Conn, c.options.MaxBytes)
	if err != nil && c.deadlines.headIsLate() {
		c.end(os.ErrDeadlineExceeded)
	}
	return 0, err
}

// judge looks at b, which begins with a head, and returns how many bytes of it
// pass: none while the head is not whole, and none when it is refused.
func (c *headConn) judge(b []byte) int {
	if c.prior {
		switch {
		case !isPreface(b):
			c.prior, c.scanned = false, 0
		case len(b) < len(preface):
			c.scanned = len(b)
			return 0
		default:
			c.state = statePassing
			c.deadlines.endHead(c.Conn)
			return len(b)
		}
	}
	end, fault := scanHead(b, c.scanned, c.options.MaxBytes)
	if fault == nil && end == 0 {
		c.scanned = len(b)
		return 0
	}
	c.deadlines.endHead(c.Conn)
	var facts headFacts
	if fault == nil {
		facts, fault = checkHead(b[:end])
	}
	if fault != nil {
		c.refuse(fault)
		return 0
	}
	c.scanned, c.upgrade = 0, facts.upgrade
	c.expectBody(facts)
	return end + c.follow(b[end:])
}

// refuse puts the stand-in for a bad head in the place of all that was read.
func (c *headConn) refuse(fault *wireError) {
	c.end(io.EOF)
	c.held.append(standIn(fault))
	c.passable = c.held.len()
}

// end makes every read from now on end with err.
func (c *headConn) end(err error) {
	c.held.release()
	c.passable, c.scanned = 0, 0
	c.state, c.err = stateOver, err
}

// keep holds bytes that were read and may not pass yet. Behind a refused head
// nothing is kept.
func (c *headConn) keep(b []byte) {
	if c.state != stateOver {
		c.held.append(b)
	}
}

// hold waits without giving anything, and returns when the peer is gone, the
// deadline has passed or the connection is closed. It reads no more than one
// byte, as net/http does to see that a caller has gone. A larger read asks for
// a next request: the upgrade was refused, and there is none.
func (c *headConn) hold(p []byte) error {
	if len(p) > 1 {
		return io.EOF
	}
	if c.held.len() > 0 {
		return c.deadlines.wait()
	}
	n, err := c.Conn.Read(p)
	c.held.append(p[:n])
	return err
}

func (c *headConn) detach(early []byte) (net.Conn, []byte) {
	early = append(early, c.held.bytes()...)
	c.end(net.ErrClosed)
	return c.Conn, early
}

// NetConn returns the connection beneath. Reading from it passes the guard by.
func (c *headConn) NetConn() net.Conn { return c.Conn }

// CloseWrite sends a FIN where the connection beneath can.
func (c *headConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Close closes the connection and ends a read that waits.
func (c *headConn) Close() error {
	c.deadlines.close()
	return c.Conn.Close()
}

// SetReadDeadline sets the deadline of reads; a head's own deadline may come
// earlier.
func (c *headConn) SetReadDeadline(t time.Time) error { return c.deadlines.set(c.Conn, t) }

// SetDeadline sets both deadlines.
func (c *headConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}
