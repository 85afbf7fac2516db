package proxy

import (
	"sync"

	"golang.org/x/time/rate"
)

// callerKey is a caller: tenant and subject, or a peer's address while it is
// not authenticated.
type callerKey struct{ tenant, subject, peer string }

// rates holds each caller to its rate of opens. Callers who have not opened
// anything for the time of a full burst are forgotten.
type rates struct {
	mu      sync.Mutex
	limit   rate.Limit // opens a second
	burst   int
	callers map[callerKey]*rate.Limiter
	sweepAt int
}

const leastSweep = 1024

func newRates(perSecond int) *rates {
	return &rates{
		limit: rate.Limit(perSecond), burst: 2 * perSecond,
		callers: map[callerKey]*rate.Limiter{}, sweepAt: leastSweep,
	}
}

func (r *rates) allow(k callerKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.callers[k]
	if l == nil {
		r.sweepLocked()
		l = rate.NewLimiter(r.limit, r.burst)
		r.callers[k] = l
	}
	return l.Allow()
}

// sweepLocked forgets callers with a full burst: a new limiter is the same.
func (r *rates) sweepLocked() {
	if len(r.callers) < r.sweepAt {
		return
	}
	for k, l := range r.callers {
		if l.Tokens() >= float64(r.burst) {
			delete(r.callers, k)
		}
	}
	r.sweepAt = max(leastSweep, 2*len(r.callers))
}
