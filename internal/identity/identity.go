package identity

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"sluice/internal/authz"
	"strings"
)

// MaxToken bounds a bearer token, in bytes; a longer one is no credential.
const MaxToken = 4 << 10

// The errors of Identify: the request says two things, or half of one, and
// which is meant must not be guessed. Their words may be shown to the caller.
var (
	ErrSeveralCredentials = errors.New("more than one credential")
	ErrCredentialAlone    = errors.New("a credential must be offered beside another subprotocol")
)

// Bearer knows bearer tokens of one kind. It is safe for concurrent use.
type Bearer interface {
	// Principal returns whom the token stands for, or nil. The token is 1 to
	// MaxToken characters of RFC 6750's token68.
	Principal(token string) *authz.Principal
	// Current is authz.Callers, for the principals that this Bearer gave out;
	// nil for any other.
	Current(p *authz.Principal) *authz.Principal
}

// Identifier finds out who calls. It is safe for concurrent use.
type Identifier struct{ bearers []Bearer }

// New returns an Identifier that asks bearers in their order. Without any,
// nobody is known.
func New(bearers ...Bearer) *Identifier { return &Identifier{bearers} }

// Identify returns whom the credential of r stands for; nil when there is
// none, and when it cannot be read or nobody knows it: to the caller all three
// are the same 401. Nothing but the Authorization header and the offered
// WebSocket subprotocols is a credential: no cookie, no query, no other header.
func (i *Identifier) Identify(r *http.Request) (*authz.Principal, error) {
	authorization := r.Header["Authorization"]
	others, credentials := splitProtocols(r.Header["Sec-Websocket-Protocol"])
	switch {
	case len(authorization)+len(credentials) > 1, len(authorization) == 1 && isSeveral(authorization[0]):
		return nil, ErrSeveralCredentials
	case len(credentials) == 1 && len(others) == 0:
		return nil, ErrCredentialAlone
	case len(credentials) == 1:
		return i.principal(tokenOfProtocol(credentials[0])), nil
	case len(authorization) == 1:
		return i.principal(tokenOfHeader(authorization[0])), nil
	}
	return nil, nil
}

// principal returns whom a token stands for; "" is none that could be read.
func (i *Identifier) principal(token string) *authz.Principal {
	if token == "" {
		return nil
	}
	for _, b := range i.bearers {
		if p := b.Principal(token); p != nil {
			return p
		}
	}
	return nil
}

// Current implements authz.Callers.
func (i *Identifier) Current(p *authz.Principal) *authz.Principal {
	if p == nil {
		return nil
	}
	for _, b := range i.bearers {
		if now := b.Current(p); now != nil {
			return now
		}
	}
	return nil
}

// Scrub returns h without credentials, for policy and log: no Authorization,
// Proxy-Authorization or Cookie, and no credential among the subprotocols. The
// map is a new one; the values that stay are shared with h.
func (*Identifier) Scrub(h http.Header) http.Header {
	out := maps.Clone(h)
	delete(out, "Authorization")
	delete(out, "Proxy-Authorization")
	delete(out, "Cookie")
	offered := out["Sec-Websocket-Protocol"]
	if !slices.ContainsFunc(offered, holdsCredential) {
		return out
	}
	delete(out, "Sec-Websocket-Protocol")
	if kept, _ := splitProtocols(offered); len(kept) > 0 {
		out["Sec-Websocket-Protocol"] = []string{strings.Join(kept, ", ")}
	}
	return out
}
