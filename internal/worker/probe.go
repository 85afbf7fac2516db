package worker

import (
	"context"
	"sluice/internal/authz"
	"time"
)

// maxProbers bounds the probes that one worker has to answer at a time. When
// all are under way, whoever comes shares the next one.
const maxProbers = 4

// joinProbe waits for the probe that has not been sent yet, or has one sent.
// A probe that was sent before the request came is never used: its answer
// may be of a time before.
func (l *link) joinProbe() *question {
	if l.next != nil {
		return l.next
	}
	q := newQuestion()
	l.next = q
	if l.probers >= maxProbers {
		return q
	}
	if l.hub.crew.start(l.sendProbes) {
		l.probers++
	} else if l.probers == 0 {
		l.next = nil
		q.answer(nil, errNotRunning)
	}
	return q
}

// probeForRecheck starts one probe in the background, unless one is under way
// or was sent a moment ago. What it finds is reported by OnChange.
func (l *link) probeForRecheck(now time.Time) {
	overStream := l.hub.o.Mode == Watch || l.streaming && l.streams(now)
	if overStream || l.next != nil || l.probers > 0 || now.Sub(l.probed) < l.hub.o.ProbeInterval {
		return
	}
	l.joinProbe()
}

// sendProbes sends probes for as long as somebody waits for one.
func (l *link) sendProbes(ctx context.Context) {
	for {
		pause, wanted := l.untilProbe(ctx)
		if !wanted {
			return
		}
		sleep(ctx, pause)
		if q, number := l.takeProbe(ctx); q != nil {
			live, err := l.hub.probe(ctx, l.target)
			l.probeAnswered(ctx, q, number, live, err)
		}
	}
}

// untilProbe returns how long a failing worker is left alone before the next
// probe. When there is none, or ctx is over, so is the goroutine.
func (l *link) untilProbe(ctx context.Context) (pause time.Duration, wanted bool) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	if l.next != nil && ctx.Err() != nil {
		l.next.answer(nil, errNotRunning)
		l.next = nil
	}
	if l.next == nil {
		l.probers--
		return 0, false
	}
	return time.Until(l.failed.Add(l.pause())), true
}

// takeProbe returns the probe to send, after which nobody can join it, and
// its number; nil when another goroutine has taken it.
func (l *link) takeProbe(ctx context.Context) (*question, uint64) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	q := l.next
	if q == nil || ctx.Err() != nil {
		return nil, 0
	}
	l.next = nil
	l.sent++
	l.probed = time.Now()
	return q, l.sent
}

// probeAnswered takes the answer of a probe. An answer that was overtaken by
// that of a later probe serves its own requests and changes nothing else.
func (l *link) probeAnswered(ctx context.Context, q *question, number uint64, live *authz.Live, err error) {
	now := time.Now()
	l.hub.mu.Lock()
	var changed bool
	switch {
	case number < l.applied:
	case err != nil:
		l.applied = number
		changed = l.fail(err, now)
		if l.doc != nil && l.kept() && l.next == nil {
			l.next = newQuestion() // for this goroutine: the worker may come back within the grace
		}
	default:
		l.applied, l.failures = number, 0
		if changed = l.take(live, now); changed {
			l.noStream = time.Time{} // another process may offer a stream
		}
		live = l.doc
	}
	l.hub.mu.Unlock()
	q.answer(live, err)
	if changed && ctx.Err() == nil {
		l.hub.o.OnChange(l.id)
	}
}
