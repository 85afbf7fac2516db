package authz

import (
	"net/http"
	"time"
)

// Code is the outward answer: what the caller is told.
type Code string

// The codes of a decision.
const (
	CodeAllow             Code = "ALLOW"
	CodeDuplexDenied      Code = "DUPLEX_CHANNEL_CAPABILITY_DENIED"
	CodeDuplexUnsupported Code = "DUPLEX_CHANNEL_UNSUPPORTED"
	CodeCapabilityDenied  Code = "SANDBOX_CAPABILITY_DENIED"
	CodeUnauthenticated   Code = "UNAUTHENTICATED"
	CodeCredentialExpired Code = "CREDENTIAL_EXPIRED"
	CodeRouteBusy         Code = "DUPLEX_CHANNEL_ROUTE_BUSY"
	CodeWorkerUnavailable Code = "WORKER_UNAVAILABLE"
	CodeUnavailable       Code = "AUTHORIZATION_UNAVAILABLE"
)

// Reason is the inward answer: what the log and the operator are told, and a
// refused caller never.
type Reason string

// The reasons that are reached in Go. The gates' other reasons are the
// policy's own words.
const (
	ReasonAllow             Reason = "ALLOW"
	ReasonUnauthenticated   Reason = "UNAUTHENTICATED"
	ReasonCredentialExpired Reason = "CREDENTIAL_EXPIRED"
	ReasonSnapshotStale     Reason = "SNAPSHOT_STALE"
	ReasonSnapshotMissing   Reason = "SNAPSHOT_MISSING"
	ReasonRecordMalformed   Reason = "RECORD_MALFORMED"
	ReasonTenantMismatch    Reason = "TENANT_MISMATCH"
	ReasonLeaseExpired      Reason = "LEASE_EXPIRED"
	ReasonLeaseNotActive    Reason = "LEASE_NOT_ACTIVE"
	ReasonWorkerUnavailable Reason = "WORKER_UNAVAILABLE"
	ReasonWorkerChanged     Reason = "WORKER_CHANGED"

	// The worker's address is not one that workers may have. CodeWorkerUnavailable.
	ReasonWorkerForbidden Reason = "WORKER_ADDRESS_FORBIDDEN"

	// Could not decide (decision.md section 6). All are CodeUnavailable.
	ReasonUndefined         Reason = "DECISION_UNDEFINED"
	ReasonEvaluationError   Reason = "EVALUATION_ERROR"
	ReasonEvaluationTimeout Reason = "EVALUATION_TIMEOUT"
	ReasonEvaluationBusy    Reason = "EVALUATION_BUSY" // the evaluators' queue was full
	ReasonRecheckOverdue    Reason = "RECHECK_OVERDUE" // not judged again inside the bound
	ReasonPolicyNotLoaded   Reason = "POLICY_NOT_LOADED"
	ReasonMalformed         Reason = "DECISION_MALFORMED"

	// Limits. All are CodeRouteBusy.
	ReasonCallerRate     Reason = "OPEN_RATE_PER_CALLER"
	ReasonLeaseChannels  Reason = "MAX_PER_LEASE"
	ReasonTenantChannels Reason = "MAX_PER_TENANT"
	ReasonOpenChannels   Reason = "MAX_OPEN"
)

// Decision is the answer to a Request. The zero Decision denies.
type Decision struct {
	ID        string
	Allow     bool
	Code      Code
	Reason    Reason
	Reasons   []string
	Status    int
	Retryable bool
	Message   string
	Limits    Limits
	// Fault is why no answer could be reached, for the operator's log alone.
	Fault string

	// What it rested on.
	View      View
	Live      *Live
	principal *Principal
	At        time.Time
	// Policy is the revision of the policy set that answered; "" when none did.
	Policy string
	// Evaluated is how long the policy took, without waiting; zero when it
	// was not asked.
	Evaluated time.Duration
}

// Limits are a channel's limits as the policy lowered them; zero is no word.
type Limits struct {
	IdleTimeout     time.Duration
	MaxLifetime     time.Duration
	MaxMessageBytes int64
}

// Outward is how a code is spoken to a caller.
type Outward struct {
	Status    int // HTTP
	GRPC      int
	Close     int // WebSocket
	Retryable bool
	Message   string
}

var outward = map[Code]Outward{
	CodeDuplexDenied:      {http.StatusForbidden, 7, 1008, false, "Sandbox lease does not grant the duplex command stream capability."},
	CodeDuplexUnsupported: {http.StatusForbidden, 7, 1008, false, "Sandbox driver does not support duplex channels for this lease."},
	CodeCapabilityDenied:  {http.StatusForbidden, 7, 1008, false, "Sandbox lease does not grant the requested capability."},
	CodeUnauthenticated:   {http.StatusUnauthorized, 16, 1008, false, "Authentication is required."},
	CodeCredentialExpired: {http.StatusUnauthorized, 16, 1008, false, "The credential has expired."},
	CodeRouteBusy:         {http.StatusServiceUnavailable, 8, 1013, true, "Too many open channels."},
	CodeWorkerUnavailable: {http.StatusServiceUnavailable, 14, 1014, true, "The sandbox worker is not available."},
	CodeUnavailable:       {http.StatusServiceUnavailable, 14, 1011, true, "The request could not be authorized right now."},
}

// Outward returns how c is spoken; what is no code of a denial is spoken as
// CodeUnavailable, so that the zero Decision is a refusal too.
func (c Code) Outward() Outward {
	if o, ok := outward[c]; ok {
		return o
	}
	return outward[CodeUnavailable]
}

// CapabilityCode is the *capability* column of the gates' table.
func CapabilityCode(c Capability) Code {
	if c == DuplexCommandStream {
		return CodeDuplexDenied
	}
	return CodeCapabilityDenied
}

// Deny returns a denial with the fixed words of code.
func Deny(code Code, reason Reason) Decision {
	o := code.Outward()
	return Decision{
		Code: code, Reason: reason, Reasons: []string{string(reason)},
		Status: o.Status, Retryable: o.Retryable, Message: o.Message,
	}
}

// Unavailable returns a denial because no answer could be reached.
func Unavailable(reason Reason) Decision { return Deny(CodeUnavailable, reason) }

// Busy returns a denial by a limit: 429 for a lease's, a tenant's or a
// caller's own, 503 for the gateway's.
func Busy(reason Reason) Decision {
	d := Deny(CodeRouteBusy, reason)
	if reason != ReasonOpenChannels {
		d.Status = http.StatusTooManyRequests
	}
	return d
}
