package pdp

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"sluice/internal/authz"
	"strconv"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/util"
)

// Terms that many inputs share. They are immutable.
var (
	null       = ast.NullTerm()
	yes        = ast.BooleanTerm(true)
	no         = ast.BooleanTerm(false)
	emptyList  = ast.ArrayTerm()
	emptyMap   = ast.ObjectTerm()
	versionOne = ast.IntNumberTerm(1)
	fresh      = ast.StringTerm("fresh")
	stale      = ast.StringTerm("stale")

	phaseOpen    = ast.StringTerm(string(authz.Open))
	phaseAdmit   = ast.StringTerm(string(authz.Admit))
	phaseRecheck = ast.StringTerm(string(authz.Recheck))
)

func number(n int64) *ast.Term {
	return ast.NewTerm(ast.Number(strconv.FormatInt(n, 10)))
}

// optional is null for "", which is how Go says that a field is not set.
func optional(s string) *ast.Term {
	if s == "" {
		return null
	}
	return ast.StringTerm(s)
}

func list(items []string) *ast.Term {
	if len(items) == 0 {
		return emptyList
	}
	terms := make([]*ast.Term, len(items))
	for i, s := range items {
		terms[i] = ast.StringTerm(s)
	}
	return ast.ArrayTerm(terms...)
}

// recordTerm is the record as policies see it; it is kept with the record.
func recordTerm(r *authz.Record) (*ast.Term, error) {
	if r == nil {
		return null, nil
	}
	if kept, ok := r.Derived.Load().(*ast.Term); ok {
		return kept, nil
	}
	var doc any
	if err := util.NewJSONDecoder(bytes.NewReader(r.JSON)).Decode(&doc); err != nil {
		return nil, fmt.Errorf("reading the %s record: %w", r.Kind, err)
	}
	value, err := ast.InterfaceToValue(doc)
	if err != nil {
		return nil, fmt.Errorf("reading the %s record: %w", r.Kind, err)
	}
	term := ast.NewTerm(value)
	r.Derived.Store(term)
	return term, nil
}

var (
	keyID               = ast.StringTerm("id")
	keyPluginID         = ast.StringTerm("pluginId")
	keyStatus           = ast.StringTerm("status")
	keyGeneration       = ast.StringTerm("generation")
	keySupportedMethods = ast.StringTerm("supportedMethods")
)

// liveTerm is the live document as policies see it; it is kept with it. The
// methods, whose order says nothing, are sorted: the decision finds neighbours
// fastest.
func liveTerm(l *authz.Live) *ast.Term {
	if l == nil {
		return null
	}
	if kept, ok := l.Derived.Load().(*ast.Term); ok {
		return kept
	}
	term := ast.ObjectTerm(
		ast.Item(keyID, ast.StringTerm(l.ID)),
		ast.Item(keyPluginID, ast.StringTerm(l.PluginID)),
		ast.Item(keyStatus, ast.StringTerm(l.Status)),
		ast.Item(keyGeneration, ast.StringTerm(l.Generation)),
		ast.Item(keySupportedMethods, list(slices.Sorted(slices.Values(l.SupportedMethods)))),
	)
	l.Derived.Store(term)
	return term
}

var (
	keySubject     = ast.StringTerm("subject")
	keyTenantID    = ast.StringTerm("tenantId")
	keyMethod      = ast.StringTerm("method")
	keyRoles       = ast.StringTerm("roles")
	keyExpiresAtNS = ast.StringTerm("expires_at_ns")
	keyClaims      = ast.StringTerm("claims")
)

// keptPrincipal is a principal's term, for the expiry that it was built with.
type keptPrincipal struct {
	expires int64
	term    *ast.Term
}

// principalTerm is the caller as policies see it; it is kept with it.
func principalTerm(p *authz.Principal, expires int64) (*ast.Term, error) {
	if p == nil {
		return null, nil
	}
	if kept, ok := p.Derived.Load().(*keptPrincipal); ok && kept.expires == expires {
		return kept.term, nil
	}
	claims, err := claimsTerm(p.Claims)
	if err != nil {
		return nil, err
	}
	expiry := null
	if p.ExpiresAt != nil {
		expiry = number(expires)
	}
	term := ast.ObjectTerm(
		ast.Item(keySubject, ast.StringTerm(p.Subject)),
		ast.Item(keyTenantID, ast.StringTerm(p.TenantID)),
		ast.Item(keyMethod, ast.StringTerm(p.Method)),
		ast.Item(keyRoles, list(p.Roles)),
		ast.Item(keyExpiresAtNS, expiry),
		ast.Item(keyClaims, claims),
	)
	p.Derived.Store(&keptPrincipal{expires, term})
	return term, nil
}

func claimsTerm(claims map[string]any) (*ast.Term, error) {
	if len(claims) == 0 {
		return emptyMap, nil
	}
	value, err := ast.InterfaceToValue(claims)
	if err != nil {
		return nil, fmt.Errorf("reading the caller's claims: %w", err)
	}
	return ast.NewTerm(value), nil
}

func headersTerm(h http.Header) *ast.Term {
	if len(h) == 0 {
		return emptyMap
	}
	items := make([][2]*ast.Term, 0, len(h))
	for name, values := range h {
		items = append(items, ast.Item(ast.StringTerm(name), list(values)))
	}
	return ast.ObjectTerm(items...)
}

var (
	keyLeaseID       = ast.StringTerm("lease_id")
	keyEnvironmentID = ast.StringTerm("environment_id")
	keyPath          = ast.StringTerm("path")
	keyHost          = ast.StringTerm("host")
	keyProtocol      = ast.StringTerm("protocol")
	keyHeaders       = ast.StringTerm("headers")
	keyRemoteAddress = ast.StringTerm("remote_address")
)

// noEnvironmentNamed is all that the shipped policies see of a request that
// names no environment.
var noEnvironmentNamed = ast.ObjectTerm(ast.Item(keyEnvironmentID, null))

// requestTerm is the request as policies see it, as far as the set looks.
func (s *policySet) requestTerm(r *authz.Request) *ast.Term {
	needs := inputNeeds{}
	if s != nil {
		needs = s.needs
	}
	if needs.onlyEnvironment() {
		if r.EnvironmentID == "" {
			return noEnvironmentNamed
		}
		return ast.ObjectTerm(ast.Item(keyEnvironmentID, ast.StringTerm(r.EnvironmentID)))
	}
	items := make([][2]*ast.Term, 0, 9)
	text := func(key *ast.Term, value string) {
		if needs.requestField(string(key.Value.(ast.String))) {
			items = append(items, ast.Item(key, ast.StringTerm(value)))
		}
	}
	text(keyID, r.ID)
	text(keyLeaseID, r.LeaseID)
	text(keyMethod, r.Method)
	text(keyPath, r.Path)
	text(keyHost, r.Host)
	text(keyProtocol, r.Protocol)
	text(keyRemoteAddress, r.RemoteAddress)
	items = append(items, ast.Item(keyEnvironmentID, optional(r.EnvironmentID)))
	if needs.requestField("headers") {
		items = append(items, ast.Item(keyHeaders, headersTerm(r.Headers)))
	}
	return ast.ObjectTerm(items...)
}

var keyOpenedAtNS = ast.StringTerm("opened_at_ns")

func channelTerm(c *authz.ChannelFacts) *ast.Term {
	if c == nil {
		return null
	}
	return ast.ObjectTerm(
		ast.Item(keyID, ast.StringTerm(c.ID)),
		ast.Item(keyOpenedAtNS, number(nanos(c.OpenedAt))),
		ast.Item(keyGeneration, ast.StringTerm(c.Generation)),
	)
}
