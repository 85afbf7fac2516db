package proxy

import (
	"io"
	"math"
	"net"
	"sync"
)

// headBufferSize is what a guarded connection takes when it has something to
// hold; few heads are larger.
const headBufferSize = 4 << 10

var headBuffers = sync.Pool{New: func() any { return new([headBufferSize]byte) }}

// headBuffer holds bytes that were read and not given. It holds no memory
// while it is empty.
type headBuffer struct {
	base *[headBufferSize]byte // from the pool; nil: none, or outgrown
	b    []byte
	off  int // b[off:] is held
}

func (h *headBuffer) len() int      { return len(h.b) - h.off }
func (h *headBuffer) bytes() []byte { return h.b[h.off:] }

func (h *headBuffer) append(b []byte) {
	if len(b) > 0 {
		h.room(len(b), math.MaxInt)
		h.b = append(h.b, b...)
	}
}

// give moves bytes to p, and returns how many.
func (h *headBuffer) give(p []byte) int {
	n := copy(p, h.b[h.off:])
	if h.off += n; h.off == len(h.b) {
		h.release()
	}
	return n
}

// fill reads once from r, into what room there is up to limit bytes; what is
// held is shorter than that.
func (h *headBuffer) fill(r net.Conn, limit int) error {
	h.room(1, limit)
	space := h.b[len(h.b):cap(h.b)]
	n, err := r.Read(space[:min(len(space), limit-h.len())])
	h.b = h.b[:len(h.b)+n]
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// room makes room for n more bytes: at first a pooled buffer, then by moving
// what is held to the front, then by doubling, up to limit.
func (h *headBuffer) room(n, limit int) {
	if h.b == nil {
		h.base = headBuffers.Get().(*[headBufferSize]byte)
		h.b = h.base[:0]
	}
	if cap(h.b)-len(h.b) >= n {
		return
	}
	if h.len()+n <= cap(h.b) {
		h.b = h.b[:copy(h.b[:cap(h.b)], h.bytes())]
		h.off = 0
		return
	}
	grown := make([]byte, h.len(), max(min(2*cap(h.b), limit), h.len()+n))
	copy(grown, h.bytes())
	h.release()
	h.b = grown
}

func (h *headBuffer) release() {
	if h.base != nil {
		headBuffers.Put(h.base)
	}
	*h = headBuffer{}
}
