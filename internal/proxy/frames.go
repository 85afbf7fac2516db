package proxy

import (
	"encoding/binary"
	"math"
)

// maxFrameHeader is the longest header of a WebSocket frame, in bytes.
const maxFrameHeader = 14

// framePlace says where in a direction's stream of frames its last forwarded
// byte stands.
type framePlace int

const (
	frameBoundary   framePlace = iota // between messages
	frameMidMessage                   // between fragments of a message; a control frame may stand here
	frameMidPayload                   // inside a frame: nothing may be inserted
	frameAfterClose                   // behind a close frame: nothing may follow
)

// frameError says why a direction's frames cannot be followed any more, and
// the close code that tells so.
type frameError struct {
	Code   int // 1002 or 1009
	Detail string
}

func (e *frameError) Error() string { return e.Detail }

// frameRules are what one direction's frames are held against.
type frameRules struct {
	// Masked: frames of this direction are masked (the caller's), or must not
	// be (the worker's).
	Masked bool
	// Extensions: an extension was negotiated, so reserved bits may be set.
	Extensions bool
	// MaxMessage bounds the payload bytes of one message; zero is no limit.
	MaxMessage int64
}

// frameFollower follows the frame boundaries of one direction of a WebSocket
// (RFC 6455 section 5), so that a close frame can be put between frames and
// never inside one. It neither copies nor changes payloads, allocates nothing
// but its errors, and is not safe for concurrent use.
//
// It checks framing as far as the boundaries, the message count and the
// message limit depend on it; all else is between the two ends. Extensions
// that change payloads count with the bytes they put on the wire.
type frameFollower struct {
	rules    frameRules
	left     int64 // payload bytes of the current frame still to come
	size     int64 // payload bytes announced of the current message
	messages int64
	payload  int64 // payload bytes of data frames that passed
	open     bool  // a message is begun and its last fragment not reached
	data     bool  // the current frame is a data frame
	final    bool  // the current frame ends its message
	closing  bool  // the current frame is a close frame
	closed   bool  // a whole close frame has passed
	failed   *frameError
}

// newFrameFollower returns a follower at the start of a stream.
func newFrameFollower(rules frameRules) *frameFollower { return &frameFollower{rules: rules} }

// advance follows b and returns how many of its first bytes may be forwarded.
// That is all of them but an incomplete frame header at the end (fewer than
// maxFrameHeader bytes): the caller keeps those and hands them in again with
// what follows them. On an error, a *frameError, the n bytes before the
// offending frame may still be forwarded, and every later call fails.
func (f *frameFollower) advance(b []byte) (n int, err error) {
	for f.failed == nil {
		if f.left > 0 {
			step := int(min(f.left, int64(len(b)-n)))
			n += step
			f.pass(int64(step))
			if f.left > 0 {
				return n, nil
			}
		}
		h, size := parseFrameHeader(b[n:])
		if f.failed = f.check(b[n:], h); f.failed != nil {
			break
		}
		if size == 0 {
			return n, nil
		}
		n += size
		f.begin(h)
	}
	return n, f.failed // never a nil *frameError here
}

// place says where the last forwarded byte stands.
func (f *frameFollower) place() framePlace {
	switch {
	case f.left > 0:
		return frameMidPayload
	case f.closed:
		return frameAfterClose
	case f.open:
		return frameMidMessage
	}
	return frameBoundary
}

// remaining is the number of bytes of the current frame that are still to be
// forwarded; 0 between frames.
func (f *frameFollower) remaining() int64 { return f.left }

// counts returns the whole messages and the bytes of their payloads that have
// passed; control frames do not count.
func (f *frameFollower) counts() (messages, payloadBytes int64) { return f.messages, f.payload }

// sawClose reports that a whole close frame has passed.
func (f *frameFollower) sawClose() bool { return f.closed }

// frameHeader is a decoded frame header. Fields that have not arrived yet are
// zero; length is -1 then, and math.MinInt64 beyond what RFC 6455 allows.
type frameHeader struct {
	opcode   byte
	fin      bool
	reserved bool
	masked   bool
	length   int64
}

const (
	opContinuation = 0x0
	opBinary       = 0x2
	opClose        = 0x8
	opPong         = 0xA
)

func (h frameHeader) control() bool { return h.opcode >= opClose }

// parseFrameHeader decodes the header at the start of b as far as it is
// there, and returns its size when it is whole, else 0.
func parseFrameHeader(b []byte) (h frameHeader, size int) {
	h.length = -1
	if len(b) < 2 {
		return h, 0
	}
	h.opcode, h.fin, h.reserved = b[0]&0x0f, b[0]&0x80 != 0, b[0]&0x70 != 0
	h.masked = b[1]&0x80 != 0
	size = 2
	switch short := b[1] & 0x7f; {
	case short < 126:
		h.length = int64(short)
	case short == 126:
		if size = 4; len(b) >= size {
			h.length = int64(binary.BigEndian.Uint16(b[2:]))
		}
	default:
		if size = 10; len(b) >= size {
			h.length = frameLength(binary.BigEndian.Uint64(b[2:]))
		}
	}
	if h.masked {
		size += 4
	}
	if len(b) < size {
		return h, 0
	}
	return h, size
}

func frameLength(n uint64) int64 {
	if n > math.MaxInt64 {
		return math.MinInt64
	}
	return int64(n)
}

// check judges what is known of the header at the start of b.
func (f *frameFollower) check(b []byte, h frameHeader) *frameError {
	if len(b) < 2 {
		return nil
	}
	switch {
	case f.closed:
		return frameFault("a frame behind a close frame")
	case h.opcode > opBinary && h.opcode < opClose || h.opcode > opPong:
		return frameFault("a reserved opcode")
	case h.reserved && !f.rules.Extensions:
		return frameFault("a reserved bit without an extension")
	case h.masked != f.rules.Masked:
		return frameFault("a frame masked in the wrong direction")
	case h.control() && (!h.fin || b[1]&0x7f > 125):
		return frameFault("a control frame that is fragmented or too long")
	case !h.control() && (h.opcode == opContinuation) != f.open:
		return frameFault("a fragment out of order")
	case h.length == math.MinInt64:
		return frameFault("a frame longer than the protocol allows")
	}
	return f.checkSize(h)
}

func (f *frameFollower) checkSize(h frameHeader) *frameError {
	if h.control() || h.length < 0 {
		return nil
	}
	limit := f.rules.MaxMessage
	if limit <= 0 {
		limit = math.MaxInt64
	}
	if begun := f.begunSize(h); h.length > limit-begun {
		return &frameError{Code: 1009, Detail: "a message longer than the limit"}
	}
	return nil
}

// begunSize is what the message that h belongs to has announced before h.
func (f *frameFollower) begunSize(h frameHeader) int64 {
	if h.opcode == opContinuation {
		return f.size
	}
	return 0
}

// begin enters the frame of h, whose header has been forwarded.
func (f *frameFollower) begin(h frameHeader) {
	f.left = h.length
	f.data, f.closing = !h.control(), h.opcode == opClose
	f.final = f.data && h.fin
	if f.data {
		f.size = f.begunSize(h) + h.length
		f.open = true
	}
	f.pass(0)
}

// pass takes n payload bytes of the current frame, and leaves the frame with
// its last one.
func (f *frameFollower) pass(n int64) {
	f.left -= n
	if f.data {
		f.payload += n
	}
	if f.left > 0 {
		return
	}
	if f.final {
		f.messages++
		f.open = false
	}
	f.closed = f.closed || f.closing
}

func frameFault(detail string) *frameError { return &frameError{Code: 1002, Detail: detail} }
