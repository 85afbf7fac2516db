package main

import (
	"slices"
	"strings"
	"testing"
)

// What is taken from a request before it goes on is not there for a rule either:
// a caller whom nobody vouches for could say anything by it.
func TestAPolicySeesNoHeaderThatIsRemoved(t *testing.T) {
	t.Parallel()
	removed := []string{"Sluice-Subject", "Sluice_Tenant_Id", "X-Forwarded-For", "X-Forwarded-User", "X_Forwarded_Host", "Forwarded", "X-Real-Ip", "X-Original-Url"}
	s := newScene(t)
	s.write("rules/team.rego", `package sluice.custom

deny contains name if {
	some name in ["`+strings.Join(removed, `", "`)+`"]
	some sent, _ in input.request.headers
	lower(sent) == lower(name)
}
`)
	s.start(`policies: {path: rules}`)
	for _, name := range removed {
		answer := s.get("alice", "/v1/leases/lease-1/duplex", slices.Concat([]string{name, "root"}, handshakeHeaders)...)
		if answer.StatusCode != 101 {
			t.Errorf("%s: answered %d, so the rule saw it", name, answer.StatusCode)
		}
	}
}

// The query of another address that a request names is logged as little as its
// own.
func TestNoHeadersQueryIsLogged(t *testing.T) {
	t.Parallel()
	s := newScene(t).start()
	headers := []string{"Referer", "X-Original-Url", "X-Rewrite-Url", "X-Forwarded-Uri", "X-Callback"}
	for _, name := range headers {
		s.get("alice", "/v1/leases/lease-1/duplex", slices.Concat([]string{name, "https://page.test/a?access_token=canary-of-" + name}, handshakeHeaders)...)
	}
	s.term()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range headers {
		if strings.Contains(s.stdout.String(), "canary-of-"+name) {
			t.Errorf("the query of %s is in the decision log", name)
		}
	}
}

// An address of the store that holds a password is refused without it being
// shown.
func TestAStoresAddressWithAPasswordIsRefusedWithoutIt(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.configure(`store: {type: redis, redis: {addresses: ["redis://user:canary-of-the-store@127.0.0.1:6379"]}}`)
	for _, command := range []string{"check", "serve"} {
		got := runWith(t, "", command, "-c", s.dir+"/gateway.yaml")
		if got.code == 0 || !strings.Contains(got.stderr, "store.redis.addresses") {
			t.Errorf("%s: exit %d: %s", command, got.code, got.stderr)
		}
		if strings.Contains(got.stdout+got.stderr, "canary") {
			t.Errorf("%s shows the password: %s", command, got.stderr)
		}
	}
}
