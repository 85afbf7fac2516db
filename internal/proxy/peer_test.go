package proxy

import (
	"net/http"
	"net/netip"
	"sluice/internal/authz"
	"sluice/internal/channel"
	"strings"
	"testing"
)

// A rule rests on nothing that a caller can make up.
func TestThePolicySeesNoHeaderThatACallerCouldForge(t *testing.T) {
	forged := "Sluice-Tenant-Id: evil\r\nsluice_subject: root\r\nSluice.x: 1\r\nX_Forwarded.For: 192.0.2.9\r\nClient_IP: 192.0.2.9\r\n"
	proxys := "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\nX-Real-IP: 192.0.2.1\r\nForwarded: for=192.0.2.1\r\n"
	kept := "Sluice-Environment-Id: env-1\r\nX-Team: blue\r\nContent-Language: en\r\nSec-Fetch-Mode: cors\r\n"
	for name, trusted := range map[string][]netip.Prefix{"a caller": nil, "a trusted proxy": {netip.MustParsePrefix("127.0.0.0/8")}} {
		seen := make(chan http.Header, 1)
		g := startGateway(t, "127.0.0.1:1", func(s *Settings, _ *channel.Limits) { s.TrustedProxies = trusted })
		g.decides.set(func(r *authz.Request) authz.Decision {
			seen <- r.Headers
			return authz.Deny(authz.CodeDuplexDenied, "TEST")
		})
		dialRaw(t, g.address, strings.Replace(websocketHead, "Host:", forged+proxys+kept+"Host:", 1))
		got := <-seen
		for _, h := range strings.Split(strings.TrimSpace(forged), "\r\n") {
			if len(got[nameOf(h)]) > 0 {
				t.Errorf("from %s it sees %s: %q", name, nameOf(h), got[nameOf(h)])
			}
		}
		for _, h := range strings.Split(strings.TrimSpace(proxys), "\r\n") {
			if there := len(got[nameOf(h)]) > 0; there != (trusted != nil) {
				t.Errorf("from %s it sees %s: %v", name, nameOf(h), there)
			}
		}
		for _, h := range strings.Split(strings.TrimSpace(kept), "\r\n") {
			if len(got[nameOf(h)]) != 1 {
				t.Errorf("from %s it does not see %s", name, nameOf(h))
			}
		}
	}
}

func TestAMalformedForwardingHeaderIsRefusedBeforeAnythingIsDecided(t *testing.T) {
	g := startGateway(t, "127.0.0.1:1", func(s *Settings, _ *channel.Limits) {
		s.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	g.decides.set(func(*authz.Request) authz.Decision {
		t.Error("the policy was asked")
		return authz.Deny(authz.CodeDuplexDenied, "TEST")
	})
	for _, said := range []string{"nonsense", "192.0.2.1,,192.0.2.2", "192.0.2.1:x", strings.Repeat("192.0.2.1, ", maxForwarded) + "192.0.2.1"} {
		_, br := dialRaw(t, g.address, strings.Replace(websocketHead, "Host:", "X-Forwarded-For: "+said+"\r\nHost:", 1))
		wantStatus(t, br, 400, "BAD_REQUEST")
	}
}

func TestAnUnknownCallersRateIsOfItsIPv6Network(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1":           "192.0.2.1",
		"2001:db8:1:2:3::4":   "2001:db8:1:2::/64",
		"fe80::1%eth0":        "fe80::/64",
		"no address":          "no address",
		"2001:db8:1:2:ffff::": "2001:db8:1:2::/64",
	} {
		if got := neighbourhood(address); got != want {
			t.Errorf("%s: got %s, want %s", address, got, want)
		}
	}
}

func TestACallerHasItsRateAndABurstOfTwice(t *testing.T) {
	r := newRates(5)
	for name, caller := range map[string]callerKey{
		"a caller": {tenant: "acme", subject: "agent"}, "another": {tenant: "acme", subject: "bot"},
		"one of another tenant": {tenant: "beta", subject: "agent"}, "an address": {peer: "192.0.2.1"},
	} {
		passed := 0
		for range 100 {
			if r.allow(caller) {
				passed++
			}
		}
		if passed < 10 || passed > 20 { // a slow machine earns some more
			t.Errorf("%s opened %d at once", name, passed)
		}
	}
}

func nameOf(line string) string {
	name, _, _ := strings.Cut(line, ":")
	return http.CanonicalHeaderKey(name)
}
