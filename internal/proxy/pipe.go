package proxy

import (
	"net"
	"sluice/internal/channel"
	"sync"
	"sync/atomic"
	"time"
)

// pipe is an open duplex channel's two connections and the two pumps between
// them. The connections are its own from start on.
//
// It ends in one of three ways. A peer finishes in order: its FIN is carried
// to the other side, and when both have finished the sockets are closed. A
// connection breaks: the other side is told. The register ends the channel:
// cut stops the direction to the worker at once and lets the direction to the
// caller finish the frame it is in, each pump writes its close frame, and
// close_grace after cut the sockets are closed whatever the peers do.
type pipe struct {
	channel *channel.Channel
	grace   time.Duration
	// unanswered says how often in a row a peer did not acknowledge what was
	// sent again.
	unanswered func(net.Conn) int
	restAfter  time.Duration
	over       func()      // told when the channel is done with; nil: nobody
	frames     *frameRules // WebSocket: follow frames, end with close frames; nil: raw bytes

	up, down   pump         // to the worker, to the caller
	forwarding atomic.Int32 // pumps that still forward
	running    atomic.Int32 // pumps that still run
	stopping   atomic.Bool  // forward nothing more
	first      atomic.Pointer[channel.Ending]

	mu       sync.Mutex
	caller   net.Conn // nil until start
	worker   net.Conn
	finished bool
}

// start takes over both connections. The bytes that were read from each
// beyond its handshake are forwarded first.
func (p *pipe) start(caller net.Conn, fromCaller []byte, worker net.Conn, fromWorker []byte) {
	p.up = pump{
		pipe: p, src: newLazyReader(caller, fromCaller), dst: worker, flow: &p.channel.ToWorker,
		finished: &channel.EndByCaller, srcLost: &channel.EndCallerLost, dstLost: &channel.EndWorker,
	}
	p.down = pump{
		pipe: p, src: newLazyReader(worker, fromWorker), dst: caller, flow: &p.channel.ToCaller,
		finished: &channel.EndByWorker, srcLost: &channel.EndWorker, dstLost: &channel.EndCallerLost,
	}
	if p.frames != nil {
		up, down := *p.frames, *p.frames
		up.Masked, down.Masked = true, false
		p.up.frames, p.down.frames = newFrameFollower(up), newFrameFollower(down)
		p.up.maskClose = true
	}
	p.forwarding.Store(2)
	p.running.Store(2)

	p.mu.Lock()
	p.caller, p.worker = caller, worker
	if p.stopping.Load() { // cut came first
		p.cutLocked()
	} else {
		p.up.watchLocked()
		p.down.watchLocked()
	}
	p.mu.Unlock()
	go p.up.run()
	go p.down.run()
}

// cut is what the register calls to end the channel.
func (p *pipe) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopping.Store(true)
	if p.caller != nil && !p.finished {
		p.cutLocked()
	}
}

// deadPeer is how many repeats without an acknowledgement mean that a peer is
// gone: with each wait twice the one before, half a minute.
const deadPeer = 7

// lost says how the channel ends when a peer is gone without a word. A slow
// peer acknowledges, and is not gone.
func (p *pipe) lost() *channel.Ending {
	p.mu.Lock()
	caller, worker := p.caller, p.worker
	p.mu.Unlock()
	switch {
	case caller == nil:
	case p.unanswered(caller) >= deadPeer:
		return &channel.EndCallerLost
	case p.unanswered(worker) >= deadPeer:
		return &channel.EndWorker
	}
	return nil
}

// cutLocked frees both pumps from whatever they wait for. What is being
// written to the caller may still be finished inside the grace, so that the
// close frame finds a frame boundary.
func (p *pipe) cutLocked() {
	now := time.Now()
	_ = p.worker.SetWriteDeadline(now)
	_ = p.caller.SetReadDeadline(now)
	_ = p.worker.SetReadDeadline(now)
	_ = p.caller.SetWriteDeadline(now.Add(p.grace))
	for _, pump := range []*pump{&p.up, &p.down} {
		if pump.parked {
			pump.parked = false
			lot.leave(pump.ticket)
			go pump.run()
		}
	}
}

// stopped is called by each pump when it forwards nothing more. The last one
// closes the sockets.
func (p *pipe) stopped(by *pump) {
	if p.forwarding.Add(-1) == 0 {
		p.channel.Silenced()
	}
	if p.stopping.Load() {
		if by == &p.up {
			time.Sleep(callersFirst)
		}
		by.farewell(p.channel.Ending(), p.until())
	}
	by.src.release()
	if p.running.Add(-1) > 0 {
		return
	}
	if first := p.first.Load(); first != nil {
		p.channel.End(*first) // does nothing when the channel was ended
	}
	p.close()
	p.channel.Done()
	if p.over != nil {
		p.over()
	}
}

func (p *pipe) close() {
	p.mu.Lock()
	p.finished = true
	p.mu.Unlock() // for TLS says good-bye to a caller who may not read
	_ = p.worker.Close()
	_ = p.caller.Close()
}

// callersFirst is how long a worker waits for its close frame. When hundreds of
// channels lose their right at once, what their callers are told must not queue
// behind what workers do about theirs.
const callersFirst = 2 * time.Millisecond

// until bounds a pump's farewell: close_grace from now, not from cut, for a
// busy machine's delay must not cost the caller its close frame. It waits for
// cut to be through with the deadlines.
func (p *pipe) until() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Add(p.grace)
}

// closeWrite carries a FIN.
func closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
