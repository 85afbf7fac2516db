package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sluice/internal/authz"
	"time"
)

// link is what is known of one worker at one URL.
//
//	          first document            the stream ends,
//	          or good probe             a probe fails
//	(asking) ───────────────► answering ───────────────► lost
//	    ▲                        ▲  │                     │ │
//	    │                        │  │ malformed           │ │ grace is over
//	    │                        └──┼─ document again ────┘ │ or no channels
//	    │                           ▼                       ▼
//	    └───────── Ask ──────────── no document ◄───────────┘
//
// Every field below the first block is guarded by Links.mu.
type link struct {
	hub    *Links
	owner  *inUse
	id     string
	target Target
	url    string
	end    func()        // ends the stream's goroutine; nil before it began
	nudge  chan struct{} // wakes it; one place

	used time.Time // by a request or a recheck

	doc     *authz.Live // the last document; nil: none
	heard   time.Time   // when it was last heard
	up      bool        // it came over a stream that is up
	lost    time.Time   // since when the worker is out of reach; zero: it is not
	mourned bool        // a goroutine awaits the end of the grace

	failures int       // in a row
	failed   time.Time // when the last one ended
	err      error     // the last one

	noStream time.Time // auto: only probes until then

	streaming bool      // the stream's goroutine is there
	attempt   *question // the stream that is being opened, for those who came before that began
	opening   *question // the stream, for those who came later

	next    *question // the probe that has not been sent yet
	probers int       // goroutines that send probes
	sent    uint64    // probes sent
	applied uint64    // the latest of them that was answered
	probed  time.Time // when the last one was sent
}

func newLink(s *Links, owner *inUse, worker *authz.Record, target Target) *link {
	return &link{
		hub: s, owner: owner, id: worker.ID, url: worker.URL, target: target,
		nudge: make(chan struct{}, 1),
	}
}

// current is the document that an open or an admit may rest on: one that came
// over a stream that is up.
func (l *link) current(now time.Time) *authz.Live {
	if !l.up || now.Sub(l.heard) >= l.hub.o.Silence {
		return nil
	}
	return l.doc
}

// lasting is the document that an open channel may rest on: the current one,
// the one of the last probe, or the last one while the grace lasts.
func (l *link) lasting(now time.Time) *authz.Live {
	lost := l.lost
	if l.up {
		lost = l.heard.Add(l.hub.o.Silence)
	}
	if !lost.IsZero() && now.Sub(lost) >= l.hub.o.Grace {
		return nil
	}
	return l.doc
}

// streams says whether the worker is asked for a stream now.
func (l *link) streams(now time.Time) bool {
	switch l.hub.o.Mode {
	case Watch:
		return true
	case Auto:
		return !now.Before(l.noStream)
	default:
		return false
	}
}

// join returns the question whose answer serves a request that comes now.
func (l *link) join(now time.Time) *question {
	if l.streams(now) {
		return l.joinStream()
	}
	return l.joinProbe()
}

// kept says whether the link is to be brought up again by itself: it has
// channels, and they rest on this URL.
func (l *link) kept() bool { return l.owner.held > 0 && l.owner.url == l.url }

func (l *link) idle(now time.Time) bool {
	busy := l.attempt != nil || l.opening != nil || l.next != nil || l.probers > 0
	return !busy && !l.kept() && now.Sub(l.used) >= l.hub.o.Idle
}

// wake makes the stream's goroutine look again at what is wanted of it.
func (l *link) wake() {
	select {
	case l.nudge <- struct{}{}:
	default:
	}
}

func (l *link) stop() {
	if l.end != nil {
		l.end()
	}
}

// take stores a well-formed document and says whether it is another one than
// before. The same document stays the same value, with what was derived
// from it.
func (l *link) take(live *authz.Live, now time.Time) (changed bool) {
	l.heard, l.lost, l.err = now, time.Time{}, nil
	switch {
	case l.doc == nil:
		l.doc = live
	case !sameDocument(l.doc, live):
		l.doc, changed = live, true
	case l.doc.Address != live.Address:
		l.doc = live
	}
	return changed
}

// fail notes that the worker gave no document and says whether that takes the
// last one away from open channels at once.
func (l *link) fail(err error, now time.Time) (gone bool) {
	l.failures++
	l.failed, l.err = now, err
	switch {
	case l.doc == nil:
		return false
	case errors.Is(err, errMalformed) || !l.kept():
		l.doc, l.lost = nil, time.Time{}
		return true
	default:
		l.mourn(now)
	}
	return false
}

// mourn takes the last document away when the worker stays lost for the whole
// grace.
func (l *link) mourn(now time.Time) {
	if l.lost.IsZero() {
		l.lost = now
	}
	if l.mourned {
		return
	}
	l.mourned = l.hub.crew.start(func(ctx context.Context) {
		for {
			left, gone := l.mourning(time.Now())
			if gone {
				l.hub.o.Log.Info("worker stays out of reach", "worker", l.id)
				l.hub.o.OnChange(l.id)
			}
			if left <= 0 || !sleep(ctx, min(left, graceLook)) {
				return
			}
		}
	})
}

// mourning returns how much of the grace is left, or that the document is
// gone now.
func (l *link) mourning(now time.Time) (left time.Duration, gone bool) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	if l.doc != nil && !l.lost.IsZero() {
		if left := l.lost.Add(l.hub.o.Grace).Sub(now); left > 0 {
			return left, false
		}
		l.doc, l.lost, gone = nil, time.Time{}, true
	}
	l.mourned = false
	return 0, gone
}

const (
	graceLook   = 100 * time.Millisecond // a grace that was changed counts from the next look
	firstPause  = 25 * time.Millisecond
	askedPause  = 200 * time.Millisecond // at most, between attempts that somebody waits for or that channels rest on
	unaskedRest = 5 * time.Second        // at most, between the others
)

// pause is how long after the last failure the next attempt is made, so that
// a failing worker gets a few questions a second however many ask.
func (l *link) pause() time.Duration {
	if l.failures == 0 {
		return 0
	}
	limit := askedPause
	if l.opening == nil && l.next == nil && l.doc == nil {
		limit = unaskedRest
	}
	d := min(firstPause<<min(l.failures-1, 10), limit)
	return d/2 + rand.N(d/2)
}

func sameDocument(a, b *authz.Live) bool {
	return a.ID == b.ID && a.PluginID == b.PluginID && a.Status == b.Status &&
		a.Generation == b.Generation && slices.Equal(a.SupportedMethods, b.SupportedMethods)
}

// sleep waits for d and says whether ctx still stands.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
