package channel

import (
	"math/rand/v2"
	"time"
)

// peerInterval is how often a channel's peers are asked after.
const peerInterval = 10 * time.Second

// armLocked sets the channel's one timer to the first moment at which
// something may be due: a limit, an expiry, or the back-stop recheck.
func (c *Channel) armLocked() {
	now := time.Now()
	c.rechecked = now
	d := c.untilDueLocked(now)
	if c.timer == nil {
		c.timer = time.AfterFunc(d, c.due)
		return
	}
	c.timer.Reset(d)
}

func (c *Channel) untilDueLocked(now time.Time) time.Duration {
	// Up to a tenth early, so that channels opened together are not all
	// judged again together.
	interval := c.register.limits.Load().RecheckInterval
	next := c.rechecked.Add(interval - rand.N(interval/10+1)).Sub(now)
	earlier := func(d time.Duration) { next = min(next, d) }

	if c.lost != nil {
		earlier(peerInterval)
	}
	earlier(c.request.Channel.OpenedAt.Add(c.Limits.MaxLifetime).Sub(now))
	if c.committed {
		earlier(c.Limits.IdleTimeout - c.idle(now))
	}
	if s := c.decision.View.Snapshot; s != nil && s.Lease != nil && s.Lease.ExpiresAt != nil {
		earlier(s.Lease.ExpiresAt.Sub(now))
	}
	if p := c.request.Principal; p != nil && p.ExpiresAt != nil {
		earlier(p.ExpiresAt.Sub(now))
	}
	return max(next, 0)
}

func (c *Channel) idle(now time.Time) time.Duration {
	return now.Sub(time.Unix(0, c.active.Load()))
}

// due runs on the timer's own goroutine.
func (c *Channel) due() {
	now := time.Now()
	c.mu.Lock()
	switch {
	case c.ending.Load() != nil:
		c.mu.Unlock()
	case now.Sub(c.request.Channel.OpenedAt) >= c.Limits.MaxLifetime:
		c.mu.Unlock()
		c.End(EndLifetime)
	case c.committed && c.idle(now) >= c.Limits.IdleTimeout:
		c.mu.Unlock()
		c.End(EndIdle)
	case c.expiredLocked(now) || now.Sub(c.rechecked) >= c.register.limits.Load().RecheckInterval*9/10:
		c.mu.Unlock()
		c.register.enqueue(c, now, true)
	default: // bytes moved the idle limit on, or it is time to ask after the peers
		lost := c.lost
		c.timer.Reset(c.untilDueLocked(now))
		c.mu.Unlock()
		if lost == nil {
			return
		}
		if e := lost(); e != nil {
			c.End(*e)
		}
	}
}

func (c *Channel) expiredLocked(now time.Time) bool {
	if s := c.decision.View.Snapshot; s != nil && s.Lease != nil && s.Lease.ExpiresAt != nil && !s.Lease.ExpiresAt.After(now) {
		return true
	}
	p := c.request.Principal
	return p != nil && p.ExpiresAt != nil && !p.ExpiresAt.After(now)
}
