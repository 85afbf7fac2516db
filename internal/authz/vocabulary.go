package authz

import (
	"crypto/rand"
	"net"
	"net/http"
	"time"
)

// Capability names one of the nine things a lease may be able to do. The
// table that defines them is data of the policy, not of this package.
type Capability string

// The capabilities that the gateway's own routes and words refer to.
const (
	DuplexCommandStream Capability = "duplexCommandStream"
)

// Phase says when in the life of a channel a decision is taken.
type Phase string

// The phases.
const (
	Open    Phase = "open"    // before the worker is contacted in any way
	Admit   Phase = "admit"   // the worker answered, the caller has seen nothing yet
	Recheck Phase = "recheck" // something the decision rested on moved, or the timer came round
)

// ChannelKind is the transport form of a route.
type ChannelKind string

// The kinds of channels, and the two that are judged like them and are none.
const (
	Duplex       ChannelKind = "duplex"
	Stream       ChannelKind = "stream"
	PlainRequest ChannelKind = "request"
	Look         ChannelKind = "look" // a caller's look at its capabilities
)

// Principal is an authenticated caller. It is immutable; identity hands out
// one value for a credential, so that what is derived from it can be kept in
// Derived.
type Principal struct {
	Subject   string
	TenantID  string
	Method    string // "token", "jwt", "mtls"
	Roles     []string
	ExpiresAt *time.Time // nil: the credential does not expire
	Claims    map[string]any

	Derived Slot // the policy's form of this value
}

// Request is one question: may this caller have this capability of this
// lease? It lives as long as its channel; only Phase, Principal and Channel
// change, and only under the channel's own lock.
type Request struct {
	ID            string // request id, for the worker and the log
	Phase         Phase
	Kind          ChannelKind
	LeaseID       string
	Capability    Capability
	EnvironmentID string // "": the caller named none
	Principal     *Principal

	// What a team's own rules may look at. Headers hold no credential.
	Method        string
	Path          string
	Host          string
	Protocol      string
	Headers       http.Header
	RemoteAddress string

	Channel *ChannelFacts // nil at open

	// Conn is the connection to the worker that was made for this request,
	// when the way to ask the worker was to connect to it (link: static). The
	// data plane takes it over; whoever refuses the request closes it.
	Conn net.Conn
}

// ChannelFacts is what a channel was opened under.
type ChannelFacts struct {
	ID         string
	OpenedAt   time.Time
	WorkerID   string // the worker that serves it
	Generation string // that worker's generation at open; "" is none known
	Sandbox    Sandbox
}

// Sandbox is which sandbox of the worker's a lease leads to, as the worker is
// told when a channel opens.
type Sandbox struct{ EnvironmentID, DriverKey, ProviderLeaseID string }

// SandboxOf is the sandbox that a lease leads to.
func SandboxOf(lease *Record) Sandbox {
	if lease == nil {
		return Sandbox{}
	}
	return Sandbox{lease.EnvironmentID, lease.Pin.DriverKey, lease.ProviderLeaseID}
}

// NewID returns a new id for a request, a decision or a channel: 26 characters
// of base32, 130 random bits.
func NewID() string { return rand.Text() }

// ValidID reports whether s is an id: [A-Za-z0-9][A-Za-z0-9_-]{0,127}. Ids are
// compared byte for byte and never folded.
func ValidID(s string) bool {
	if s == "" || len(s) > 128 || s[0] == '_' || s[0] == '-' {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		alnum := '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
		if !alnum && c != '_' && c != '-' {
			return false
		}
	}
	return true
}
