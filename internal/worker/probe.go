package worker

import (
	"context"
	"time"

	"sluice/internal/authz"
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
	overStream := l.hub.Mode == Watch || l.streaming && l.streams(now)
	if overStream || l.next != nil || l.probers > 0 || now.Sub(l.probed) < l.hub.ProbeInterval {
		return
	}
	l.joinProbe()
}

// sendProbes sends probes for as long as somebody waits for one.
func (l *link) sendProbes(ctx context.Context) {
	for sleep(ctx, l.untilProbe()) {
		q, number := l.takeProbe()
		if q == nil {
			return
		}
		live, err := l.hub.probe(ctx, l.target)
		l.probeAnswered(q, number, live, err)
	}
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	l.probers--
	if l.next != nil {
		l.next.answer(nil, errNotRunning)
		l.next = nil
	}
}

func (l *link) untilProbe() time.Duration {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	return time.Until(l.failed.Add(l.pause()))
}

// takeProbe returns the probe to send, after which nobody can join it, and
// its number; nil when there is none and the goroutine is over.
func (l *link) takeProbe() (*question, uint64) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	q := l.next
	if q == nil {
		l.probers--
		return nil, 0
	}
	l.next = nil
	l.sent++
	l.probed = time.Now()
	return q, l.sent
}

// probeAnswered takes the answer of a probe. An answer that was overtaken by
// that of a later probe serves its own requests and changes nothing else.
func (l *link) probeAnswered(q *question, number uint64, live *authz.Live, err error) {
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
	if changed {
		l.hub.OnChange(l.id)
	}
}
