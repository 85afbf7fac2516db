package channel

import (
	"sluice/internal/authz"
	"time"
)

// Why is the cause of a channel's end: a closed set, a label of
// sluice_channel_ends_total.
type Why string

// The causes.
const (
	Revoked      Why = "revoked"       // the decision is a denial now
	Undecided    Why = "undecided"     // no decision could be reached
	WorkerFailed Why = "worker_failed" // the worker's document, process or connection is gone
	CallerLost   Why = "caller_lost"   // the caller's connection broke
	CallerClosed Why = "caller_closed" // the caller ended first, in order
	WorkerClosed Why = "worker_closed" // the worker ended first, in order
	Refused      Why = "refused"       // never opened
	Idle         Why = "idle"
	Lifetime     Why = "lifetime"
	TooLarge     Why = "too_large"
	Protocol     Why = "protocol_error"
	Drain        Why = "drain"
	Operator     Why = "operator"
)

// Whys are all of them.
var Whys = []Why{
	Revoked, Undecided, WorkerFailed, CallerLost, CallerClosed, WorkerClosed, Refused, Idle, Lifetime, TooLarge, Protocol, Drain, Operator,
}

// Ending is why and how a channel ends. Code and DecisionID make up the close
// reason that the caller sees.
type Ending struct {
	Why        Why
	Code       string          // a decision's code, or a word such as IDLE_TIMEOUT
	Close      int             // WebSocket close code; 0: the peers ended it themselves
	DecisionID string          // the last decision's id
	Decision   *authz.Decision // the denial, when a recheck was the cause
	Since      time.Time       // when the change was noticed; zero when there was none
}

// Denied is the ending by a recheck's denial.
func Denied(d authz.Decision, since time.Time) Ending {
	why := Revoked
	switch d.Code {
	case authz.CodeWorkerUnavailable:
		why = WorkerFailed
	case authz.CodeUnavailable, "":
		why = Undecided
	}
	code := d.Code
	if code == "" || d.Allow {
		code = authz.CodeUnavailable
	}
	return Ending{
		Why: why, Code: string(code), Close: code.Outward().Close,
		DecisionID: d.ID, Decision: &d, Since: since,
	}
}

// The endings that are no decision.
var (
	EndIdle       = Ending{Why: Idle, Code: "IDLE_TIMEOUT", Close: 1001}
	EndLifetime   = Ending{Why: Lifetime, Code: "MAX_LIFETIME", Close: 1001}
	EndDrain      = Ending{Why: Drain, Code: "SHUTTING_DOWN", Close: 1001}
	EndTooLarge   = Ending{Why: TooLarge, Code: "MESSAGE_TOO_LARGE", Close: 1009}
	EndProtocol   = Ending{Why: Protocol, Code: "PROTOCOL_ERROR", Close: 1002}
	EndWorker     = Ending{Why: WorkerFailed, Code: "WORKER_BAD_GATEWAY", Close: 1014}
	EndOperator   = Ending{Why: Operator, Code: "CLOSED_BY_OPERATOR", Close: 1008}
	EndByCaller   = Ending{Why: CallerClosed}
	EndByWorker   = Ending{Why: WorkerClosed}
	EndCallerLost = Ending{Why: CallerLost}
	EndRefused    = Ending{Why: Refused}
)
