package pdp

import (
	"math"
	"time"
)

// instants are the times of a question as policies see them: integer
// nanoseconds since the epoch, saturated where a time lies beyond what 64 bits
// hold (the years 1678 to 2262).
type instants struct {
	now       int64
	principal int64 // of no meaning when the credential does not expire
	lease     int64 // likewise
}

// readInstants saturates the three times so that an expiry is greater than now
// in integers exactly when it is after now in truth, wherever they lie.
func readInstants(now time.Time, principal, lease *time.Time) instants {
	at := instants{now: nanos(now)}
	if at.now == math.MaxInt64 && (after(principal, now) || after(lease, now)) {
		at.now-- // leaves room for what is later still
	}
	at.principal = at.expiry(principal, now)
	at.lease = at.expiry(lease, now)
	return at
}

func (at instants) expiry(t *time.Time, now time.Time) int64 {
	switch {
	case t == nil:
		return 0
	case t.After(now):
		return max(nanos(*t), at.now+1)
	default:
		return min(nanos(*t), at.now)
	}
}

func after(t *time.Time, now time.Time) bool { return t != nil && t.After(now) }

var (
	firstInstant = time.Unix(0, math.MinInt64)
	lastInstant  = time.Unix(0, math.MaxInt64)
)

func nanos(t time.Time) int64 {
	switch {
	case t.Before(firstInstant):
		return math.MinInt64
	case t.After(lastInstant):
		return math.MaxInt64
	}
	return t.UnixNano()
}
