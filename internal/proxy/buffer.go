package proxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
)

// bufferSize is what a pump moves at once, and the largest frame it holds
// back to keep its stream at a frame boundary.
const bufferSize = 64 << 10

var buffers = sync.Pool{New: func() any { b := make([]byte, bufferSize); return &b }}

// lazyReader reads a connection without holding a buffer while it waits: on a
// TCP socket the buffer is taken when the socket is readable, elsewhere a
// small one waits and a large one follows.
type lazyReader struct {
	conn    net.Conn
	raw     syscall.RawConn // nil: not a plain TCP socket
	pending []byte          // read before the pump took over
	wait    []byte          // what waits on a connection that is no plain socket
	buf     *[]byte         // nil while nothing is held

	// One read of a plain TCP socket: attempt is readSocket, made once, so that a
	// waiting reader holds nothing else.
	attempt func(fd uintptr) bool
	have, n int
	err     error
}

func newLazyReader(conn net.Conn, pending []byte) *lazyReader {
	r := &lazyReader{conn: conn, pending: pending}
	if socket, ok := conn.(syscall.Conn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			r.raw, r.attempt = raw, r.readSocket
		}
	}
	return r
}

// read appends to what is held, have bytes, and returns how many came. It
// takes the buffer when there is something to put into it.
func (r *lazyReader) read(have int) (int, error) {
	switch {
	case len(r.pending) > 0:
		r.take()
		n := copy((*r.buf)[have:], r.pending)
		if r.pending = r.pending[n:]; len(r.pending) == 0 {
			r.pending = nil
		}
		return n, nil
	case r.raw != nil:
		return r.readRaw(have)
	default:
		return r.readAny(have)
	}
}

func (r *lazyReader) readRaw(have int) (int, error) {
	r.have = have
	switch err := r.raw.Read(r.attempt); {
	case err != nil:
		return 0, err
	case r.err != nil:
		return 0, &net.OpError{Op: "read", Net: "tcp", Err: r.err}
	case r.n == 0:
		return 0, io.EOF
	}
	return r.n, nil
}

// readSocket reports whether the socket had something to say; it is asked again
// when it is readable.
func (r *lazyReader) readSocket(fd uintptr) bool {
	r.take()
	for {
		r.n, r.err = syscall.Read(int(fd), (*r.buf)[r.have:])
		if !errors.Is(r.err, syscall.EINTR) {
			break
		}
	}
	if errors.Is(r.err, syscall.EAGAIN) {
		if r.have == 0 {
			r.release()
		}
		return false
	}
	return true
}

// waitSize is what waits on a connection that cannot say it is readable.
const waitSize = 1 << 10

func (r *lazyReader) readAny(have int) (int, error) {
	if r.buf != nil {
		return r.conn.Read((*r.buf)[have:])
	}
	if r.wait == nil {
		r.wait = make([]byte, waitSize)
	}
	n, err := r.conn.Read(r.wait)
	if n > 0 {
		r.take()
		copy((*r.buf)[have:], r.wait[:n])
	}
	return n, err
}

func (r *lazyReader) take() {
	if r.buf == nil {
		r.buf = buffers.Get().(*[]byte)
	}
}

func (r *lazyReader) release() {
	if r.buf != nil {
		buffers.Put(r.buf)
		r.buf = nil
	}
}
