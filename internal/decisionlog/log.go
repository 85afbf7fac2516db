package decisionlog

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sluice/internal/authz"
	"sluice/internal/channel"
	"sync/atomic"
	"time"
)

// Options are what a Log is made of.
type Options struct {
	// Out takes JSON lines; nil writes none.
	Out io.Writer
	// Queue is how many records may wait to be written; 0: 8192. What does
	// not fit is dropped and counted.
	Queue int
	// Labels stand in every record, as OPA's do.
	Labels map[string]string
	// Effective lists the capabilities that a lease has now; nil: none.
	Effective func(*authz.Snapshot, *authz.Live) []authz.Capability
}

// Log is the decision log. It is safe for concurrent use.
type Log struct {
	sink      io.Writer
	out       *bufio.Writer
	queue     chan *entry
	labels    map[string]string
	effective func(*authz.Snapshot, *authz.Live) []authz.Capability
	dropped   atomic.Int64
}

// New returns a Log. It starts nothing.
func New(o Options) *Log {
	if o.Queue <= 0 {
		o.Queue = 8192
	}
	if o.Effective == nil {
		o.Effective = func(*authz.Snapshot, *authz.Live) []authz.Capability { return nil }
	}
	l := &Log{
		sink: o.Out, queue: make(chan *entry, o.Queue), labels: o.Labels, effective: o.Effective,
	}
	if o.Out != nil {
		l.out = bufio.NewWriterSize(o.Out, 64<<10)
	}
	return l
}

// RecordDecision records an open, and what changed its answer: an admit or a
// recheck that still allows is none.
func (l *Log) RecordDecision(req *authz.Request, d *authz.Decision) {
	if req.Phase != authz.Open && d.Allow {
		return
	}
	l.add(&entry{request: *req, decision: *d})
}

// RecordEnd records a channel's end, and that of a plain request that was cut.
func (l *Log) RecordEnd(s *channel.Summary) {
	if !s.OfChannel() {
		return
	}
	last := s.Decision
	if s.Ending.Decision != nil {
		last = *s.Ending.Decision
	}
	l.add(&entry{request: s.Request, decision: last, end: s})
}

func (l *Log) add(e *entry) {
	select {
	case l.queue <- e:
	default:
		l.dropped.Add(1)
	}
}

// Dropped is the number of records that found the queue full.
func (l *Log) Dropped() int64 { return l.dropped.Load() }

// Run writes records until ctx is done, and then those that still wait.
func (l *Log) Run(ctx context.Context) error {
	for {
		select {
		case e := <-l.queue:
			l.write(e)
			if len(l.queue) == 0 {
				l.flush()
			}
		case <-ctx.Done():
			return l.drain()
		}
	}
}

// drainTime bounds how long a log that is not read holds up the shutdown.
const drainTime = time.Second

func (l *Log) drain() error {
	for deadline := time.Now().Add(drainTime); time.Now().Before(deadline); {
		select {
		case e := <-l.queue:
			l.write(e)
		default:
			l.flush()
			return nil
		}
	}
	return fmt.Errorf("writing the decision log: %d records were left", len(l.queue))
}

func (l *Log) write(e *entry) {
	ev := l.event(e)
	if l.out == nil {
		return
	}
	line, err := json.Marshal(ev)
	if err == nil {
		_, err = l.out.Write(append(line, '\n'))
	}
	if err != nil {
		l.dropped.Add(1)
	}
}

func (l *Log) flush() {
	if l.out == nil {
		return
	}
	if err := l.out.Flush(); err != nil {
		l.dropped.Add(1)
		l.out.Reset(l.sink) // a bufio.Writer keeps its error; the next record tries again
	}
}

// RecordRevocation does nothing: the delay is a metric's.
func (l *Log) RecordRevocation(time.Duration) {}
