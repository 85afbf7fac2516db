package proxy

import "net/http"

// errBody is what a read of a body returns whose framing is broken; the
// handler sees it from Body.Read, in most places.
var errBody = wireRefuse(http.StatusBadRequest, "the request body is malformed")

// expectBody sets what follows the head (RFC 9112 section 6.3).
func (c *headConn) expectBody(facts headFacts) {
	switch {
	case facts.chunked:
		c.state, c.chunks = stateChunked, &chunkFollower{}
	case facts.length > 0:
		c.state, c.left = stateLength, facts.length
	default:
		c.bodyEnded()
	}
}

func (c *headConn) bodyEnded() {
	c.chunks = nil
	c.state = stateHead
	if c.upgrade {
		c.state = stateHeld
	}
}

// follow takes b as what follows, and returns how many bytes of it belong to
// the body and pass.
func (c *headConn) follow(b []byte) int {
	switch c.state {
	case stateLength:
		n := int(min(int64(len(b)), c.left))
		if c.left -= int64(n); c.left == 0 {
			c.bodyEnded()
		}
		return n
	case stateChunked:
		n, done, ok := c.chunks.follow(b)
		switch {
		case !ok:
			c.state, c.err = stateOver, errBody
		case done:
			c.bodyEnded()
		}
		return n
	}
	return 0
}

// readBody reads into p directly: a body needs no buffer. Nothing is held
// when it is called.
func (c *headConn) readBody(p []byte) (int, error) {
	if c.state == stateLength && c.left < int64(len(p)) {
		p = p[:c.left]
	}
	n, err := c.Conn.Read(p)
	passes := c.follow(p[:n])
	c.keep(p[passes:n])
	if passes == n {
		return n, err
	}
	return passes, nil
}

const (
	maxChunkDigits    = 15  // of a chunk's size; 2^60 bytes are enough
	maxChunkExtension = 128 // bytes of extensions in one chunk
	maxExtensions     = 1 << 10
	maxTrailers       = 2 << 10 // bytes of all trailer fields
	maxTrailerFields  = 32
	maxTrailerName    = 64
)

type chunkPlace int

const (
	inSize chunkPlace = iota
	inExtension
	atSizeLF
	inData
	atDataCR
	atDataLF
	atTrailer // at the start of a line
	inTrailerName
	inTrailerValue
	atTrailerLF
	atFinalLF
	chunksDone
)

// chunkFollower follows a chunked body to its end (RFC 9112 section 7.1),
// whatever pieces it comes in, and refuses what is not strictly well-formed:
// sizes that are not plain hexadecimal, bare CR or LF, more extensions than
// anyone needs, trailers that could be taken for the head's own fields.
type chunkFollower struct {
	place      chunkPlace
	size       int64 // of the chunk, then what is left of it
	digits     int
	extension  int // bytes in this chunk
	extensions int // bytes in all chunks
	trailers   int // bytes
	fields     int // of the trailers
	name       [maxTrailerName]byte
	nameLen    int
}

// follow returns how many bytes of b are the body's, whether the body ended
// with them, and false when the byte behind them is wrong.
func (f *chunkFollower) follow(b []byte) (n int, done, ok bool) {
	for n < len(b) {
		if f.place == inData {
			step := min(int64(len(b)-n), f.size)
			n += int(step)
			if f.size -= step; f.size == 0 {
				f.place = atDataCR
			}
			continue
		}
		if !f.step(b[n]) {
			return n, false, false
		}
		n++
		if f.place == chunksDone {
			return n, true, true
		}
	}
	return n, false, true
}

// step takes one byte that is not data.
func (f *chunkFollower) step(c byte) bool {
	switch f.place {
	case inSize, inExtension, atSizeLF:
		return f.stepSize(c)
	case atDataCR:
		f.place = atDataLF
		return c == '\r'
	case atDataLF:
		f.place, f.size, f.digits, f.extension = inSize, 0, 0, 0
		return c == '\n'
	}
	f.trailers++
	return f.trailers <= maxTrailers && f.stepTrailer(c)
}

func (f *chunkFollower) stepSize(c byte) bool {
	switch {
	case f.place == atSizeLF:
		f.place = inData
		if f.size == 0 {
			f.place = atTrailer
		}
		return c == '\n'
	case f.place == inSize && isHex(c):
		f.size = f.size<<4 | int64(hexValue(c))
		f.digits++
		return f.digits <= maxChunkDigits
	case f.digits == 0:
		return false
	case c == '\r':
		f.place = atSizeLF
		return true
	}
	if f.place == inSize {
		f.place = inExtension
		return c == ';'
	}
	f.extension++
	f.extensions++
	return f.extension <= maxChunkExtension && f.extensions <= maxExtensions &&
		(isTokenByte(c) || c == ';' || c == '=' || c == '"')
}

func (f *chunkFollower) stepTrailer(c byte) bool {
	switch f.place {
	case atTrailer:
		if c == '\r' {
			f.place = atFinalLF
			return true
		}
		f.place, f.nameLen = inTrailerName, 0
		f.fields++
		return f.fields <= maxTrailerFields && f.stepName(c)
	case inTrailerName:
		return f.stepName(c)
	case inTrailerValue:
		if c == '\r' {
			f.place = atTrailerLF
			return true
		}
		return c >= ' ' && c != 0x7f || c == '\t'
	case atTrailerLF:
		f.place = atTrailer
		return c == '\n'
	}
	f.place = chunksDone
	return c == '\n'
}

func (f *chunkFollower) stepName(c byte) bool {
	if c == ':' {
		f.place = inTrailerValue
		return f.nameLen > 0 && mayTrail(string(f.name[:f.nameLen]))
	}
	if !isTokenByte(c) || f.nameLen == len(f.name) {
		return false
	}
	f.name[f.nameLen] = c
	f.nameLen++
	return true
}

func hexValue(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c <= 'F':
		return c - 'A' + 10
	}
	return c - 'a' + 10
}
