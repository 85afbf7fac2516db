package proxy

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var sampleOwn = gatewayHeaders{
	LeaseID: "l1", TenantID: "t1", EnvironmentID: "e1", DriverKey: "docker", ProviderLeaseID: "pl/1", Subject: "alice",
	DecisionID: "D1", WorkerGeneration: "g1", RequestID: "R1", Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	ForwardedFor: "192.0.2.1", ForwardedHost: "gw", ForwardedProto: "https",
}

// ownSet is what sampleOwn looks like to a worker.
var ownSet = http.Header{
	"Sluice-Lease-Id": {"l1"}, "Sluice-Tenant-Id": {"t1"}, "Sluice-Environment-Id": {"e1"}, "Sluice-Driver-Key": {"docker"},
	"Sluice-Provider-Lease-Id": {"pl/1"}, "Sluice-Subject": {"alice"}, "Sluice-Decision-Id": {"D1"}, "Sluice-Worker-Generation": {"g1"},
	"X-Request-Id": {"R1"}, "Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
	"X-Forwarded-For": {"192.0.2.1"}, "X-Forwarded-Host": {"gw"}, "X-Forwarded-Proto": {"https"},
}

func withOwn(h http.Header) http.Header {
	h = h.Clone()
	if h == nil {
		h = http.Header{}
	}
	for name, values := range ownSet {
		h[name] = values
	}
	return h
}

func TestAWorkerGetsTheCallersHeadersAndTheGatewaysOwn(t *testing.T) {
	in := http.Header{
		"Accept": {"a", "b"}, "Cookie": {"c=1"}, "User-Agent": {"x"}, "Content-Type": {"text/plain"}, "X-Custom": {"1"},
		"Tracestate": {"v=1"}, "Origin": {"https://a"},
	}
	got, err := workerHeaders(in, false, handshake{}, sampleOwn)
	if err != nil || !reflect.DeepEqual(got, withOwn(in)) {
		t.Errorf("%v, %v", got, err)
	}
}

// spoofs are headers that must never reach a worker as the caller sent them.
var spoofs = []string{
	"Sluice-Lease-Id", "Sluice-Subject", "Sluice-Anything", "sluice-tenant-id", "SLUICE-TENANT-ID",
	"Sluice_Lease_Id", "sluice.subject", "Sluice_Tenant-Id", "Sluice-Head-Refused",
	"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-User", "X-Forwarded-Client-Cert", "X-Forwarded-Uri",
	"X-Forwarded-Port", "X-Forwarded-Prefix", "X_Forwarded_For", "X.Forwarded.For", "X-Forwarded_For", "x_forwarded-client.cert",
	"Forwarded", "X-Real-Ip", "X_Real_Ip", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip",
	"X-Original-Url", "X-Original-Method", "X-Original-Uri", "X-Original-Host", "X-Rewrite-Url", "X-Http-Method-Override", "X-Http-Method",
	"X-Method-Override", "X_Http_Method_Override", "X-Envoy-Original-Path", "X-Envoy-External-Address", "X-Envoy-Peer-Metadata",
	"X-Client-Cert", "X-Ssl-Client-Cert", "X-Ssl-Client-Verify", "Ssl-Client-Cert", "Client-Cert", "X-Remote-User", "Remote-User", "Proxy",
	"Authorization", "Proxy-Authorization", "Authorization_", "X-Request-Id", "X_Request_Id", "Traceparent", "Host",
	"Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Proxy-Authenticate", "Http2-Settings", "Expect",
	"Content_Length", "Transfer_Encoding", "Content.Type", "Sec_Websocket_Key", "Sec-Websocket-Protocol", "Sec-Websocket-Key",
}

func TestWhatOnlyTheGatewayMaySayIsNotTheCallers(t *testing.T) {
	for _, name := range spoofs {
		if name == "Authorization_" {
			continue // no header's alias
		}
		got, err := workerHeaders(http.Header{name: {"spoof"}}, false, handshake{}, sampleOwn)
		if err != nil || !reflect.DeepEqual(got, withOwn(nil)) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestNamingAHeaderInConnectionRemovesTheCallersAndNotTheGateways(t *testing.T) {
	in := http.Header{
		"Connection": {"close, X-Forwarded-For, X-Request-Id", "Sluice-Subject, Traceparent , X-Gone,x_gone2"},
		"X-Gone":     {"1"}, "X-Gone2": {"1"}, "X-Stays": {"1"},
	}
	got, err := workerHeaders(in, false, handshake{}, sampleOwn)
	if want := withOwn(http.Header{"X-Stays": {"1"}, "X-Gone2": {"1"}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestATrustedProxyIsBelieved(t *testing.T) {
	in := http.Header{
		"X-Forwarded-For": {"198.51.100.7, 2001:db8::1", "unknown"}, "X-Forwarded-Host": {"public.example"}, "X-Forwarded-Proto": {"https"},
		"Forwarded": {"for=198.51.100.7"}, "X-Real-Ip": {"198.51.100.7"}, "X_Forwarded_For": {"6.6.6.6"}, "X-Original-Url": {"/x"},
		"Sluice-Subject": {"root"}, "X-Forwarded-Client-Cert": {"x"},
	}
	own := sampleOwn
	own.ForwardedProto = "http"
	got, err := workerHeaders(in, true, handshake{}, own)
	want := withOwn(nil)
	want["X-Forwarded-For"] = []string{"198.51.100.7, 2001:db8::1, unknown, 192.0.2.1"}
	want["X-Forwarded-Host"], want["X-Forwarded-Proto"] = []string{"public.example"}, []string{"https"}
	want["Forwarded"], want["X-Real-Ip"] = in["Forwarded"], in["X-Real-Ip"]
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	got, err = workerHeaders(http.Header{"X-Forwarded-Host": {"a", "b"}}, true, handshake{}, sampleOwn)
	if err != nil || !reflect.DeepEqual(got, withOwn(nil)) {
		t.Errorf("two hosts: %v, %v", got, err)
	}
	for _, chain := range []string{"", "a b", "1.2.3.4,,5.6.7.8", "1.2.3.4, evil\"", strings.Repeat("1.2.3.4,", 40) + "1.2.3.4"} {
		_, err := workerHeaders(http.Header{"X-Forwarded-For": {chain}}, true, handshake{}, sampleOwn)
		if _, ok := errors.AsType[*wireError](err); !ok {
			t.Errorf("the chain %.40q: %v", chain, err)
		}
	}
}

func TestAValueThatCouldBeReadAsAnotherIsNotSent(t *testing.T) {
	for _, value := range []string{"a\r\nb", "a\x00", "caf\xc3\xa9", "a\tb", " a", "a ", "a  b", "\x7f"} {
		own := sampleOwn
		own.Subject = value
		if got, err := workerHeaders(nil, false, handshake{}, own); err == nil {
			t.Errorf("%q: %v", value, got["Sluice-Subject"])
		}
	}
	own := sampleOwn
	own.Subject, own.EnvironmentID = "build bot", ""
	got, err := workerHeaders(nil, false, handshake{}, own)
	if _, sent := got["Sluice-Environment-Id"]; err != nil || sent || got.Get("Sluice-Subject") != "build bot" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestAHandshakeGoesOnWithoutItsCredential(t *testing.T) {
	r := upgradeRequest(map[string][]string{
		"Connection":               {"keep-alive, Upgrade"},
		"Sec-Websocket-Protocol":   {"sluice.bearer.dG9rZW4, chat", "sluice.v1"},
		"Sec-Websocket-Extensions": {"permessage-deflate"},
		"Content-Length":           {"0"},
		"Authorization":            {"Bearer x"},
	})
	h, err := handshakeOf(r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := workerHeaders(r.Header, false, h, sampleOwn)
	want := withOwn(http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {sampleKey},
		"Sec-Websocket-Protocol": {"chat, sluice.v1"}, "Sec-Websocket-Extensions": {"permessage-deflate"},
	})
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	r = upgradeRequest(header("Sec-Websocket-Protocol", "sluice.bearer.dG9rZW4, chat"))
	if got, _ = workerHeaders(r.Header, false, handshake{}, sampleOwn); !reflect.DeepEqual(got, withOwn(nil)) {
		t.Errorf("as a plain request: %v", got)
	}
	r = upgradeRequest(header("Upgrade", "tcp"))
	h, _ = handshakeOf(r)
	got, _ = workerHeaders(r.Header, false, h, sampleOwn)
	if want := withOwn(http.Header{"Connection": {"Upgrade"}, "Upgrade": {"tcp"}}); !reflect.DeepEqual(got, want) {
		t.Errorf("as another upgrade: %v", got)
	}
}

func TestTheWorkersHeadersReachTheCallerWithoutItsOwnConnections(t *testing.T) {
	in := http.Header{
		"Content-Type": {"text/plain"}, "Set-Cookie": {"a=1", "b=2"}, "X-Accel-Buffering": {"no"}, "Www-Authenticate": {"Basic"}, "Content-Length": {"3"},
		"Sluice-Subject": {"x"}, "Sluice_Decision_Id": {"x"}, "Connection": {"close, X-Hop"}, "X-Hop": {"1"}, "Keep-Alive": {"x"},
		"Upgrade": {"h2c"}, "Alt-Svc": {"h3=\":443\""}, "X-Accel-Redirect": {"/internal"}, "X-Sendfile": {"/etc/passwd"}, "Proxy-Authenticate": {"Basic"},
		"Trailer": {"X"}, "Transfer-Encoding": {"chunked"}, "Te": {"trailers"},
	}
	want := http.Header{
		"Content-Type": {"text/plain"}, "Set-Cookie": {"a=1", "b=2"}, "X-Accel-Buffering": {"no"}, "Www-Authenticate": {"Basic"}, "Content-Length": {"3"},
	}
	if got := callerHeaders(in); !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
}

func TestTheGatewaySelectsItsSubprotocolWhenTheWorkerSelectsNone(t *testing.T) {
	h := handshake{Kind: websocketUpgrade, Token: "websocket", Protocols: []string{"chat", "sluice.v1"}}
	for _, tt := range []struct{ selected, want []string }{{nil, []string{"sluice.v1"}}, {[]string{"chat"}, []string{"chat"}}} {
		in := http.Header{"Connection": {"upgrade"}, "Upgrade": {"WebSocket"}, "Sec-Websocket-Accept": {"x"}, "Sluice-X": {"1"}}
		if tt.selected != nil {
			in["Sec-Websocket-Protocol"] = tt.selected
		}
		want := http.Header{
			"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Accept": {"x"}, "Sec-Websocket-Protocol": tt.want,
		}
		if got := switchingHeaders(h, in); !reflect.DeepEqual(got, want) {
			t.Errorf("%v: %v", tt.selected, got)
		}
	}
	h.Protocols = []string{"chat"}
	if got := switchingHeaders(h, http.Header{}); got["Sec-Websocket-Protocol"] != nil {
		t.Errorf("nothing offered: %v", got)
	}
}

func TestForAnyCallersHeadersTheWorkerSeesEachOwnHeaderOnceAndRight(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	names := slices.Concat(spoofs, []string{"X-A", "Cookie", "Accept"})
	for round := range 1000 {
		in := http.Header{}
		for range random.IntN(20) {
			name := names[random.IntN(len(names))]
			in[name] = append(in[name], fmt.Sprintf("spoof%d", random.IntN(100)))
		}
		for range random.IntN(5) {
			in["Connection"] = append(in["Connection"], names[random.IntN(len(names))])
		}
		got, err := workerHeaders(in, false, handshake{}, sampleOwn)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for name, values := range got {
			folded := foldName(name)
			if own, ok := ownSet[name]; ok && !reflect.DeepEqual(values, own) {
				t.Fatalf("round %d: %s is %v", round, name, values)
			} else if !ok && (isGatewayHeader(folded) || isForwardingHeader(folded)) {
				t.Fatalf("round %d: %s passed", round, name)
			}
		}
		for name := range ownSet {
			if _, ok := got[name]; !ok {
				t.Fatalf("round %d: %s is missing", round, name)
			}
		}
	}
}
