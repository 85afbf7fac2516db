package worker

import (
	"context"
	"errors"
	"sluice/internal/authz"
	"time"
)

// joinStream waits for a document over the stream, and has one opened when
// none is being opened. A document that comes over a stream is of the time at
// which it comes and serves everybody. A failure is the answer of those only
// who came before the attempt began: the worker may be well by now, so the
// others wait for the next one.
func (l *link) joinStream() *question {
	if l.opening != nil {
		return l.opening
	}
	q := newQuestion()
	l.opening = q
	if l.streaming {
		l.wake()
		return q
	}
	l.startStream()
	return q
}

func (l *link) startStream() {
	l.streaming = l.hub.crew.start(func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		l.keepStream(ctx, cancel)
	})
	if !l.streaming {
		l.answerStream(nil, errNotRunning)
	}
}

// answerStream answers everybody who waits for the stream.
func (l *link) answerStream(live *authz.Live, err error) {
	for _, q := range []**question{&l.attempt, &l.opening} {
		if *q != nil {
			(*q).answer(live, err)
			*q = nil
		}
	}
}

// keepStream opens the stream, again after every end, for as long as somebody
// waits for it or channels rest on it.
func (l *link) keepStream(ctx context.Context, cancel func()) {
	l.hub.mu.Lock()
	l.end = cancel
	l.hub.mu.Unlock()
	for l.wanted(ctx) {
		l.attemptBegins()
		began := time.Now()
		err := l.hub.watch(ctx, l.target, l.streamed)
		l.streamEnded(ctx, err, time.Since(began))
	}
}

// wanted waits until the next attempt is due. It is false, and the goroutine
// is over, when nobody wants the stream any more.
func (l *link) wanted(ctx context.Context) bool {
	for {
		due, wanted := l.due(ctx)
		if !wanted {
			return false
		}
		left := time.Until(due)
		if left <= 0 {
			return true
		}
		t := time.NewTimer(left)
		select {
		case <-ctx.Done():
		case <-l.nudge:
		case <-t.C:
			t.Stop()
			return true
		}
		t.Stop()
	}
}

func (l *link) due(ctx context.Context) (time.Time, bool) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	if ctx.Err() == nil && (l.opening != nil || l.kept() && l.streams(time.Now())) {
		return l.failed.Add(l.pause()), true
	}
	l.streaming = false
	l.answerStream(nil, errNotRunning)
	return time.Time{}, false
}

// attemptBegins parts those who came before this attempt from those who come
// while it is under way.
func (l *link) attemptBegins() {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	l.attempt, l.opening = l.opening, nil
}

// streamed takes one document of the stream.
func (l *link) streamed(live *authz.Live) {
	l.hub.mu.Lock()
	first := !l.up
	changed := l.take(live, time.Now())
	l.up = true
	l.answerStream(l.doc, nil)
	l.hub.mu.Unlock()
	if first {
		l.hub.o.Log.Debug("worker link is up", "worker", l.id, "generation", live.Generation)
	}
	if changed {
		l.hub.o.OnChange(l.id)
	}
}

// revisit is how long a worker that offers no stream is asked by probes
// before it is asked for a stream again; a new generation is asked at once.
const revisit = time.Minute

// streamEnded takes the end of the stream, err being why. When it is the link
// that ended it (ctx is over), nobody needs to be told.
func (l *link) streamEnded(ctx context.Context, err error, lasted time.Duration) {
	now := time.Now()
	l.hub.mu.Lock()
	wasUp, gone := l.up, false
	l.up = false
	if wasUp && lasted >= l.hub.o.Silence/2 {
		l.failures = 0 // it was a good stream: do not hold old failures against it
	}
	if errors.Is(err, errNoStream) && l.hub.o.Mode == Auto {
		l.probeInstead(now)
		l.answerStream(nil, err)
	} else {
		gone = l.fail(err, now)
		if l.attempt != nil {
			l.attempt.answer(nil, err)
			l.attempt = nil
		}
	}
	l.hub.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if wasUp {
		l.hub.o.Log.Info("worker link is down", "worker", l.id, "error", err)
	}
	if gone {
		l.hub.o.OnChange(l.id)
	}
}

// probeInstead remembers that the worker offers no stream. That is no
// failure; where channels rest on the worker, a probe finds out at once
// whether it is still the same one.
func (l *link) probeInstead(now time.Time) {
	l.noStream, l.failures = now.Add(revisit), 0
	if !l.kept() {
		return
	}
	if l.doc != nil {
		l.mourn(now)
	}
	l.joinProbe()
}
