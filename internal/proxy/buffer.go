package proxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

const (
	// bufferSize is what a pump moves at once, and the largest frame it holds back
	// to keep its stream at a frame boundary: a message of 64 KiB in one frame
	// fits.
	bufferSize = 72 << 10
	// burstSize is what it moves at once while a peer sends faster than that: half
	// the system calls, and more. Only so many pumps at a time do, so that peers
	// who send much and read nothing take no more than maxBursts of them.
	burstSize = 512 << 10
	maxBursts = 32
)

var (
	buffers = sync.Pool{New: func() any { b := make([]byte, bufferSize); return &b }}
	bursts  = sync.Pool{New: func() any { b := make([]byte, burstSize); return &b }}
	inBurst atomic.Int32
)

// lazyReader reads a connection without holding a buffer while it waits: on a
// TCP socket the buffer is taken when the socket is readable, elsewhere a
// small one waits and a large one follows. What is held when it waits, a part of
// a frame, is in a buffer of bufferSize.
type lazyReader struct {
	conn    net.Conn
	raw     syscall.RawConn // nil: not a plain TCP socket
	pending []byte          // read before the pump took over
	wait    []byte          // what waits on a connection that is no plain socket
	buf     *[]byte         // nil while nothing is held
	burst   bool            // the last read of the socket filled its buffer

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
	if r.burst {
		r.grow()
	}
	r.take()
	free := (*r.buf)[r.have:]
	for {
		r.n, r.err = syscall.Read(int(fd), free)
		if !errors.Is(r.err, syscall.EINTR) {
			break
		}
	}
	r.burst = r.n == len(free)
	if errors.Is(r.err, syscall.EAGAIN) {
		r.shrink()
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

// grow moves to a buffer of burstSize, if there is one to be had.
func (r *lazyReader) grow() {
	if r.buf != nil && len(*r.buf) == burstSize {
		return
	}
	if inBurst.Add(1) > maxBursts {
		inBurst.Add(-1)
		return
	}
	r.move(bursts.Get().(*[]byte))
}

// shrink holds what is held, at most bufferSize, in no more than it needs.
func (r *lazyReader) shrink() {
	switch {
	case r.have == 0:
		r.release()
	case r.have <= bufferSize && len(*r.buf) == burstSize:
		r.move(buffers.Get().(*[]byte))
	}
}

func (r *lazyReader) move(to *[]byte) {
	if r.buf != nil {
		copy(*to, (*r.buf)[:r.have])
	}
	r.release()
	r.buf = to
}

func (r *lazyReader) release() {
	switch {
	case r.buf == nil:
	case len(*r.buf) == burstSize:
		bursts.Put(r.buf)
		inBurst.Add(-1)
	default:
		buffers.Put(r.buf)
	}
	r.buf = nil
}
