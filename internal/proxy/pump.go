package proxy

import (
	"errors"
	"io"
	"net"
	"os"
	"sluice/internal/channel"
	"time"
)

// pump forwards one direction of a channel. Only its own goroutine touches
// it. It holds a buffer only while bytes are in its hands, and a goroutine only
// while something comes now and then:
//
//	           nothing came for a while
//	(running) -------------------------> (parked)
//	   |  ^                                 |
//	   |  +---------------------------------+
//	   |     its source is readable, or cut
//	   v
//	(over)
type pump struct {
	pipe      *pipe
	src       *lazyReader
	dst       net.Conn
	flow      *channel.Flow
	frames    *frameFollower // nil: raw bytes
	maskClose bool           // close frames to dst are masked: dst is the worker

	// How the channel ends when src finishes, src breaks, or dst breaks.
	finished, srcLost, dstLost *channel.Ending

	have   int  // bytes held in src's buffer
	broken bool // dst stands inside something: no close frame may follow

	reads   uint64 // that brought something
	restful uint64 // reads when it was last asked whether it rests
	woken   bool   // and has not read since

	// The pipe's lock guards what is below.
	parked     bool   // it has no goroutine
	parkedOnce bool   // the parking's set knows its socket
	ticket     uint64 // of the parking, while it is parked
}

// pumpState is what comes after a step.
type pumpState uint8

const (
	pumpRunning pumpState = iota
	pumpParked            // it is somebody else's, or nobody's
	pumpOver
)

func (p *pump) run() {
	state := pumpRunning
	for state == pumpRunning {
		state = p.step()
	}
	if state == pumpOver {
		p.pipe.stopped(p)
	}
}

// step moves what one read brings.
func (p *pump) step() pumpState {
	n, err := p.src.read(p.have)
	if p.pipe.stopping.Load() {
		return pumpOver
	}
	if n == 0 && p.src.raw != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		return p.rest()
	}
	p.watchAgain()
	p.reads++
	p.have += n
	if n > 0 && !p.forward() {
		return pumpOver
	}
	switch {
	case err == nil:
		return pumpRunning
	case errors.Is(err, io.EOF):
		p.finish()
	default:
		p.pipe.channel.End(*p.srcLost)
	}
	return pumpOver
}

// rest parks the pump when nothing came since it was last asked.
func (p *pump) rest() pumpState {
	p.pipe.mu.Lock()
	defer p.pipe.mu.Unlock()
	if p.pipe.stopping.Load() {
		return pumpOver
	}
	idle := p.reads == p.restful && p.have == 0
	p.restful = p.reads
	if idle && lot.enter(p) {
		p.parked = true
		return pumpParked
	}
	p.watchLocked()
	return pumpRunning
}

// watchLocked has the pump asked after a while whether it rests.
func (p *pump) watchLocked() {
	if p.src.raw != nil && lot.works() {
		_ = p.src.conn.SetReadDeadline(time.Now().Add(p.pipe.restAfter))
	}
}

// wake gives a pump that rests its goroutine back, and time for one read, however
// late that comes.
func (p *pump) wake() {
	p.pipe.mu.Lock()
	defer p.pipe.mu.Unlock()
	if !p.parked {
		return
	}
	p.parked, p.woken = false, true
	_ = p.src.conn.SetReadDeadline(time.Time{}) // a pipe that was cut has nobody parked
	go p.run()
}

// watchAgain undoes wake's leave to take any time.
func (p *pump) watchAgain() {
	if !p.woken {
		return
	}
	p.pipe.mu.Lock()
	defer p.pipe.mu.Unlock()
	p.woken = false
	if !p.pipe.stopping.Load() {
		p.watchLocked()
	}
}

// forward writes what is held as far as it may go: all of it, or, for a
// WebSocket, whole frames and what is there of a frame too large to be held.
func (p *pump) forward() bool {
	held := (*p.src.buf)[:p.have]
	n, err := p.have, error(nil)
	if p.frames != nil {
		n, err = p.frames.whole(held, bufferSize)
		messages, _ := p.frames.counts()
		p.flow.Messages.Store(messages)
	}
	if !p.write(held[:n]) {
		return false
	}
	p.have = copy(held, held[n:])
	if p.have == 0 {
		p.src.release()
	}
	if err != nil {
		return p.unfollowable(err)
	}
	return true
}

// unfollowable ends a channel whose frames cannot be followed. What comes
// behind a close frame is nobody's: it is dropped.
func (p *pump) unfollowable(err error) bool {
	if p.frames.sawClose() {
		p.have = 0
		p.src.release()
		return true
	}
	end := channel.EndProtocol
	if fault, ok := errors.AsType[*frameError](err); ok && fault.Code == channel.EndTooLarge.Close {
		end = channel.EndTooLarge
	}
	p.pipe.channel.End(end)
	return false
}

func (p *pump) write(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	n, err := p.dst.Write(b)
	p.flow.Bytes.Add(int64(n))
	p.pipe.channel.Touch()
	if err == nil {
		return true
	}
	p.broken = true
	if !p.pipe.stopping.Load() {
		p.pipe.channel.End(*p.dstLost)
	}
	return false
}

// finish carries src's FIN to dst, after what is still held.
func (p *pump) finish() {
	if p.have > 0 {
		p.broken = true // the rest of that frame will not come
		if !p.write((*p.src.buf)[:p.have]) {
			return
		}
		p.have = 0
	}
	p.pipe.first.CompareAndSwap(nil, p.finished)
	closeWrite(p.dst)
}

// farewell writes the close frame that tells dst why, where dst stands
// between frames, and then reads src empty until it has closed too, so that
// closing the sockets does not destroy what is still on its way.
func (p *pump) farewell(e *channel.Ending, until time.Time) {
	if p.frames == nil || e == nil || e.Close == 0 || p.broken {
		return
	}
	if place := p.frames.place(); place == frameBoundary || place == frameMidMessage {
		frame, err := closeFrame(e.Close, e.Code+" "+e.DecisionID, p.maskClose)
		if err == nil {
			_ = p.dst.SetWriteDeadline(until)
			_, _ = p.dst.Write(frame)
		}
	}
	_ = p.src.conn.SetReadDeadline(until)
	for !p.frames.sawClose() {
		n, err := p.src.read(p.have)
		if err != nil {
			return
		}
		p.drop(n)
	}
}

// drop follows n more bytes without forwarding them, to see the close frame
// that answers ours.
func (p *pump) drop(n int) {
	p.have += n
	held := (*p.src.buf)[:p.have]
	passed, err := p.frames.advance(held)
	if err != nil {
		passed = p.have // only the end of the stream is of interest now
	}
	if p.have = copy(held, held[passed:]); p.have == 0 {
		p.src.release()
	}
}

// whole follows the longest prefix of b that leaves the stream between
// frames, or inside a frame that is larger than limit and so cannot be held
// back, and returns its length.
func (f *frameFollower) whole(b []byte, limit int) (int, error) {
	n := int(min(f.remaining(), int64(len(b))))
	for n < len(b) && int64(n) >= f.remaining() {
		h, size := parseFrameHeader(b[n:])
		switch {
		case size == 0: // the header is not all there
			return f.advance(b[:n])
		case h.length < 0, h.length > int64(limit-size): // refused, or passes as it comes; a sum could overflow
			return f.advance(b)
		case int64(n+size)+h.length > int64(len(b)):
			return f.advance(b[:n])
		}
		n += size + int(h.length)
	}
	return f.advance(b[:n])
}
