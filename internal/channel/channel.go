package channel

import (
	"sluice/internal/authz"
	"sync"
	"sync/atomic"
	"time"
)

// Flow counts one direction of a channel. It is safe for concurrent use.
type Flow struct {
	Bytes    atomic.Int64
	Messages atomic.Int64
}

// Add counts bytes that were forwarded, and the messages that ended in them.
func (f *Flow) Add(bytes int, messages int64) {
	f.Bytes.Add(int64(bytes))
	f.Messages.Add(messages)
}

// Channel is one duplex or streaming conversation. Its owner is the data
// plane's handler; its register may end it at any moment.
type Channel struct {
	ID     string
	Limits authz.Limits // in force: the configuration's, lowered by the policy's

	// ToWorker and ToCaller count what was forwarded.
	ToWorker, ToCaller Flow

	register *Register
	tenant   string // whose place it takes; a credential may move to another tenant
	ending   atomic.Pointer[Ending]
	active   atomic.Int64 // unix nanoseconds of the last forwarded byte
	urgent   bool         // stands in the urgent line for a recheck; the queue's lock guards it
	bulk     bool         // stands in the other
	silent   atomic.Bool  // forwards nothing any more

	mu        sync.Mutex
	committed bool
	gone      bool
	cut       func()         // what End calls; nil: nothing yet
	lost      func() *Ending // says whether a peer is gone without a word; nil: nobody knows
	request   authz.Request
	decision  authz.Decision // the last one
	sweep     *sweep         // the change of everything that asks for a recheck; nil: a change of its own
	since     *time.Time     // when the first change was noticed that no recheck has been begun for; the zero time: there is none
	rechecked time.Time
	timer     *time.Timer
	asks      uint64      // rechecks asked for
	admitAsks uint64      // of them, before the admit's facts were read
	settled   uint64      // of them, before the facts of the last answer were read
	overdue   *time.Timer // ends the channel when the recheck that was asked for takes too long; nil: none was
}

// Opening names what End stops until the channel is committed: the dial, the
// handshake. stop must not block; it is called at once when the channel was
// told to end already.
func (c *Channel) Opening(stop func()) {
	c.mu.Lock()
	c.cut = stop
	ended := c.ending.Load() != nil
	c.mu.Unlock()
	if ended {
		stop()
	}
}

// Ending returns how the channel ends, or nil while it lives.
func (c *Channel) Ending() *Ending { return c.ending.Load() }

// Touch notes that bytes were forwarded.
func (c *Channel) Touch() { c.active.Store(time.Now().UnixNano()) }

// WorkerID is the worker that serves the channel.
func (c *Channel) WorkerID() string { return c.request.Channel.WorkerID }

// LastDecisionID is the id of the last decision on this channel.
func (c *Channel) LastDecisionID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.decision.ID
}

// Decided notes the open decision under its id, which it has only once it is
// recorded, and starts the clock of the channel.
func (c *Channel) Decided(d authz.Decision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending.Load() == nil {
		c.decision = d
		c.armLocked()
	}
}

// Commit turns an opening channel into an open one that cut will stop. It is
// called after the admit decision allowed and before the caller sees the
// worker's answer. It returns false, and the channel never opens, when the
// channel was told to end meanwhile: either the caller is refused, or whoever
// ends the channel calls cut. cut must not block and may be called from any
// goroutine, once.
//
// lost, which may be nil, is asked now and then whether a peer has gone without
// a word, and then says how the channel ends.
func (c *Channel) Commit(admitted authz.Decision, cut func(), lost func() *Ending) bool {
	c.mu.Lock()
	if c.ending.Load() != nil {
		c.mu.Unlock()
		return false
	}
	c.committed = true
	c.cut, c.lost = cut, lost
	c.decision = admitted
	c.Touch()
	c.armLocked()
	changed := c.asks != c.admitAsks
	c.mu.Unlock()
	if changed { // what was judged meanwhile may be newer than what was admitted
		c.register.enqueue(c, time.Now(), true)
	}
	return true
}

// Admitting is called before the facts of the admit are read, and returns the
// caller as it is known now: nil when its credential was withdrawn since the
// channel was reserved. What changes from here on has the channel judged again.
func (c *Channel) Admitting() *authz.Principal {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.admitAsks = c.asks
	caller := c.register.callers.Current(c.request.Principal)
	if caller != nil {
		c.request.Principal = caller
	}
	return caller
}

// Withdrawn notes that a committed channel did not open after all: its caller
// is refused and saw no answer of the worker's.
func (c *Channel) Withdrawn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.committed = false
}

// End tells the channel to end; the first call wins and reports true.
func (c *Channel) End(e Ending) bool {
	c.mu.Lock()
	if e.DecisionID == "" {
		e.DecisionID = c.decision.ID
	}
	if !c.ending.CompareAndSwap(nil, &e) {
		c.mu.Unlock()
		return false
	}
	for _, t := range []*time.Timer{c.timer, c.overdue} {
		if t != nil {
			t.Stop()
		}
	}
	cut := c.cut
	c.mu.Unlock()

	if cut != nil {
		cut()
	}
	return true
}

// Silenced notes that nothing is forwarded any more in either direction; the
// delay of a revocation is measured here.
func (c *Channel) Silenced() {
	if e := c.Ending(); e != nil && !c.silent.Swap(true) && !e.Since.IsZero() {
		c.register.recorder.RecordRevocation(time.Since(e.Since))
	}
}

// Done gives the channel's place back and records its end. The owner calls it
// once, when its sockets are closed; a channel nobody ended is refused.
func (c *Channel) Done() {
	c.End(EndRefused)
	c.Silenced()
	c.mu.Lock()
	if c.gone {
		c.mu.Unlock()
		return
	}
	c.gone = true
	summary := Summary{
		Channel: c.ID, Request: c.request, Ending: *c.ending.Load(), Committed: c.committed,
		At: time.Now(), Duration: time.Since(c.request.Channel.OpenedAt), Decision: c.decision,
		BytesToWorker: c.ToWorker.Bytes.Load(), BytesToCaller: c.ToCaller.Bytes.Load(),
		MessagesToWorker: c.ToWorker.Messages.Load(), MessagesToCaller: c.ToCaller.Messages.Load(),
	}
	c.mu.Unlock()
	c.register.release(c)
	c.register.recorder.RecordEnd(&summary)
}

// Summary is what is recorded when a channel has ended.
type Summary struct {
	Channel   string
	Request   authz.Request
	Decision  authz.Decision // the last one
	Ending    Ending
	Committed bool // false: refused before the caller saw an answer
	At        time.Time
	Duration  time.Duration

	BytesToWorker, BytesToCaller       int64
	MessagesToWorker, MessagesToCaller int64
}

// OfChannel is false of a plain request that caller or worker ended: it is held
// like a channel and is none, unless the gateway cuts it.
func (s *Summary) OfChannel() bool {
	switch s.Ending.Why {
	case CallerLost, CallerClosed, WorkerClosed, Refused:
		return s.Request.Kind != authz.PlainRequest
	case WorkerFailed:
		return s.Request.Kind != authz.PlainRequest || s.Ending.Decision != nil
	}
	return true
}

func (c *Channel) info() Info {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := Info{
		ID: c.ID, Kind: c.request.Kind, State: "opening", Lease: c.request.LeaseID, Tenant: c.tenant, Capability: c.request.Capability,
		Worker: c.request.Channel.WorkerID, Generation: c.request.Channel.Generation, Protocol: c.request.Protocol,
		OpenedAt: c.request.Channel.OpenedAt, ActiveAt: time.Unix(0, c.active.Load()),
		BytesToWorker: c.ToWorker.Bytes.Load(), BytesToCaller: c.ToCaller.Bytes.Load(),
	}
	if p := c.request.Principal; p != nil {
		i.Subject = p.Subject
	}
	switch {
	case c.ending.Load() != nil:
		i.State = "ending"
	case c.committed:
		i.State = "open"
	}
	return i
}

// asked is one recheck of a channel.
type asked struct {
	request authz.Request
	last    authz.Decision
	since   time.Time  // when the change was noticed
	next    *time.Time // when the first one after it was
	sweep   *sweep     // that it is part of; nil: none
	number  uint64     // of the asks so far
}

// question is the channel's request as a recheck asks it.
func (c *Channel) question(callers authz.Callers) asked {
	c.mu.Lock()
	defer c.mu.Unlock()
	req := c.request
	req.Phase = authz.Recheck
	req.Principal = callers.Current(req.Principal)
	a := asked{request: req, last: c.decision, since: *c.since, next: new(time.Time), sweep: c.sweep, number: c.asks}
	c.since, c.sweep = a.next, nil
	return a
}

// settle keeps an allowing recheck.
func (c *Channel) settle(d authz.Decision, a *asked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending.Load() != nil || a.number < c.settled {
		return // an answer on newer facts is here already
	}
	c.settled = a.number
	c.decision = d
	c.request.Principal = a.request.Principal
	switch {
	case c.overdue == nil:
	case c.asks == a.number: // nothing was asked meanwhile
		c.overdue.Stop()
		c.overdue = nil
	default:
		c.overdue.Stop()
		c.overdue = c.register.overdue(c, *a.next)
	}
	c.armLocked()
}
