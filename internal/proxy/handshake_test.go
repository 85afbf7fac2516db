package proxy

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
)

const sampleKey = "dGhlIHNhbXBsZSBub25jZQ==" // RFC 6455 section 1.3

// upgradeRequest is a valid WebSocket handshake with the headers of each pair
// set instead; a nil value removes one.
func upgradeRequest(set map[string][]string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/v1/leases/l1/duplex", nil)
	r.Header = http.Header{
		"Connection":            {"Upgrade"},
		"Upgrade":               {"websocket"},
		"Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Key":     {sampleKey},
	}
	for name, values := range set {
		delete(r.Header, name)
		if values != nil {
			r.Header[name] = values
		}
	}
	return r
}

func header(name string, values ...string) map[string][]string {
	return map[string][]string{name: values}
}

func TestAHandshakeIsRecognisedWhateverItsFormAndCase(t *testing.T) {
	for _, set := range []map[string][]string{
		nil,
		header("Connection", "keep-alive, Upgrade"),
		header("Connection", "UPGRADE"),
		header("Connection", "upgrade,keep-alive"),
		header("Connection", "keep-alive \t,\t upgrade"),
		header("Connection", "keep-alive", "Upgrade"),
		header("Upgrade", "WebSocket"),
		header("Content-Length", "0"),
	} {
		h, err := handshakeOf(upgradeRequest(set))
		if err != nil || h.Kind != websocketUpgrade || h.Token != "websocket" || h.Key != sampleKey {
			t.Errorf("%v: %+v, %v", set, h, err)
		}
	}
}

func TestWhatAsksForNoUpgradeIsAPlainRequest(t *testing.T) {
	for _, set := range []map[string][]string{
		header("Connection", "notupgrade"),
		header("Connection", "keep-alive, x-upgrade"),
		header("Connection", "upgrade-insecure-requests"),
		header("Connection"),
		header("Connection", "keep-alive"),
		header("Upgrade"),
	} {
		if h, err := handshakeOf(upgradeRequest(set)); err != nil || h.Kind != notUpgrade {
			t.Errorf("%v: %+v, %v", set, h, err)
		}
	}
	for _, proto := range []struct{ major, minor int }{{1, 0}, {2, 0}} {
		r := upgradeRequest(nil)
		r.ProtoMajor, r.ProtoMinor = proto.major, proto.minor
		if h, err := handshakeOf(r); err != nil || h.Kind != notUpgrade {
			t.Errorf("HTTP/%d.%d: %+v, %v", proto.major, proto.minor, h, err)
		}
	}
}

func TestAnotherUpgradeIsNamed(t *testing.T) {
	for _, token := range []string{"h2c", "SPDY/3.1", "websocket/13", "tcp"} {
		r := upgradeRequest(header("Upgrade", token))
		r.Method = http.MethodPost
		if h, err := handshakeOf(r); err != nil || h.Kind != otherUpgrade || h.Token != token {
			t.Errorf("%s: %+v, %v", token, h, err)
		}
	}
}

func TestAHandshakeThatIsNotExactlyRightIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name   string
		set    map[string][]string
		status int
	}{
		{"a malformed Connection", header("Connection", "upgrade;q=1"), 400},
		{"an empty element in Connection", header("Connection", "upgrade,,close"), 400},
		{"a gateway header in Connection", header("Connection", "Upgrade, Sluice-Lease-Id"), 400},
		{"an alias of one", header("Connection", "Upgrade, sluice_lease_id"), 400},
		{"a forwarding header in Connection", header("Connection", "Upgrade, X-Forwarded-For"), 400},
		{"Forwarded in Connection", header("Connection", "Upgrade, forwarded"), 400},
		{"the request id in Connection", header("Connection", "Upgrade", "x-request-id"), 400},
		{"Authorization in Connection", header("Connection", "Upgrade, Authorization"), 400},
		{"the key in Connection", header("Connection", "Upgrade, Sec-WebSocket-Key"), 400},
		{"two tokens in Upgrade", header("Upgrade", "websocket, h2c"), 400},
		{"two Upgrade headers", header("Upgrade", "h2c", "websocket"), 400},
		{"the same token twice", header("Upgrade", "websocket", "websocket"), 400},
		{"an empty Upgrade", header("Upgrade", ""), 400},
		{"a malformed Upgrade", header("Upgrade", "web socket"), 400},
		{"a malformed version in Upgrade", header("Upgrade", "websocket/"), 400},
		{"another version", header("Sec-Websocket-Version", "777"), 426},
		{"an old version", header("Sec-Websocket-Version", "8"), 426},
		{"an empty version", header("Sec-Websocket-Version", ""), 426},
		{"two versions in one", header("Sec-Websocket-Version", "13,8"), 426},
		{"no version", header("Sec-Websocket-Version"), 426},
		{"the version twice", header("Sec-Websocket-Version", "13", "13"), 426},
		{"a version with a zero", header("Sec-Websocket-Version", "013"), 426},
		{"no key", header("Sec-Websocket-Key"), 400},
		{"a key of 15 bytes", header("Sec-Websocket-Key", base64.StdEncoding.EncodeToString(make([]byte, 15))), 400},
		{"a key of 17 bytes", header("Sec-Websocket-Key", base64.StdEncoding.EncodeToString(make([]byte, 17))), 400},
		{"a key that is no base64", header("Sec-Websocket-Key", "not/base64/at/all/!!!!=="), 400},
		{"a key in the URL's alphabet", header("Sec-Websocket-Key", "__________________8A_A=="), 400},
		{"a key without padding", header("Sec-Websocket-Key", strings.TrimRight(sampleKey, "=")), 400},
		{"a key with bits left over", header("Sec-Websocket-Key", "dGhlIHNhbXBsZSBub25jZR=="), 400},
		{"a key with a line break inside", header("Sec-Websocket-Key", "dGhlIHNhbXBsZSBub25j\nQ=="), 400},
		{"the key twice", header("Sec-Websocket-Key", sampleKey, sampleKey), 400},
		{"an answer's header", header("Sec-Websocket-Accept", "x"), 400},
		{"an expectation", header("Expect", "100-continue"), 400},
		{"a subprotocol that is no token", header("Sec-Websocket-Protocol", "a b"), 400},
		{"an empty subprotocol", header("Sec-Websocket-Protocol", ""), 400},
		{"an empty one in the list", header("Sec-Websocket-Protocol", "a,,b"), 400},
		{"a subprotocol twice", header("Sec-Websocket-Protocol", "a, b", "a"), 400},
		{"too many subprotocols", header("Sec-Websocket-Protocol", "p"+strings.Join(strings.Split(strings.Repeat("x", 40), ""), "x,")), 400},
		{"a credential alone", header("Sec-Websocket-Protocol", "sluice.bearer.dG9rZW4"), 400},
		{"two credentials", header("Sec-Websocket-Protocol", "sluice.bearer.YQ, chat, sluice.bearer.Yg"), 400},
		{"an extension that is no token", header("Sec-Websocket-Extensions", "permessage deflate"), 400},
		{"an empty extension", header("Sec-Websocket-Extensions", ""), 400},
		{"an empty parameter", header("Sec-Websocket-Extensions", "x;"), 400},
		{"a parameter without a name", header("Sec-Websocket-Extensions", "x; =1"), 400},
		{"a parameter without its value", header("Sec-Websocket-Extensions", "x; a="), 400},
		{"an open quote", header("Sec-Websocket-Extensions", `x; a="1`), 400},
		{"a quoted value that is no token", header("Sec-Websocket-Extensions", `x; a="1 2"`), 400},
	} {
		r := upgradeRequest(tt.set)
		h, err := handshakeOf(r)
		fault, ok := errors.AsType[*wireError](err)
		if !ok || fault.Status != tt.status {
			t.Errorf("%s: %+v, %v; want %d", tt.name, h, err, tt.status)
			continue
		}
		if asked := fault.Header["Sec-Websocket-Version"]; tt.status == 426 && !reflect.DeepEqual(asked, []string{"13"}) {
			t.Errorf("%s: the answer asks for version %v", tt.name, asked)
		}
	}
}

func TestAnUpgradeIsAGetWithoutABody(t *testing.T) {
	for _, change := range []func(*http.Request){
		func(r *http.Request) { r.Method = http.MethodPost },
		func(r *http.Request) { r.Method = http.MethodHead },
		func(r *http.Request) { r.ContentLength = 5 },
		func(r *http.Request) { r.ContentLength = -1 },
		func(r *http.Request) { r.TransferEncoding = []string{"chunked"} },
		func(r *http.Request) { r.Method = http.MethodHead; r.Header.Set("Upgrade", "tcp") },
		func(r *http.Request) { r.ContentLength = 5; r.Header.Set("Upgrade", "tcp") },
	} {
		r := upgradeRequest(nil)
		change(r)
		if h, err := handshakeOf(r); err == nil {
			t.Errorf("%s with length %d: %+v", r.Method, r.ContentLength, h)
		}
	}
}

func TestTheOfferIsReadWithoutTheCredential(t *testing.T) {
	for _, tt := range []struct {
		offered    []string
		protocols  []string
		extensions []string
	}{
		{[]string{"chat, sluice.bearer.dG9rZW4"}, []string{"chat"}, nil},
		{[]string{"sluice.bearer.dG9rZW4", "sluice.v1"}, []string{"sluice.v1"}, nil},
		{[]string{"Sluice.Bearer.dG9rZW4", "b", "a"}, []string{"b", "a"}, nil},
		{[]string{"chat,CHAT"}, []string{"chat", "CHAT"}, nil},
		{nil, nil, []string{"permessage-deflate", "x"}},
	} {
		set := header("Sec-Websocket-Protocol", tt.offered...)
		if tt.extensions != nil {
			set["Sec-Websocket-Extensions"] = []string{"permessage-deflate; client_max_window_bits; a=1", `X; b="2" ;c`}
		}
		h, err := handshakeOf(upgradeRequest(set))
		if err != nil || !reflect.DeepEqual(h.Protocols, tt.protocols) || !reflect.DeepEqual(h.Extensions, tt.extensions) {
			t.Errorf("%v: %+v, %v", tt.offered, h, err)
		}
	}
}

// FuzzHandshake holds what passes as a WebSocket handshake against a reading
// of the raw values that shares no code with it, and against another
// implementation, which must take it for one too.
func FuzzHandshake(f *testing.F) {
	f.Add("keep-alive, Upgrade", "websocket", "13", sampleKey, "chat", "x; a=1", "", int64(0))
	f.Add("notupgrade", "websocket", "13", sampleKey, "", "", "", int64(0))
	f.Add("upgrade", "websocket, h2c", "13,8", "AAAA", "a,sluice.bearer.x", "x;", "second", int64(5))
	f.Fuzz(func(t *testing.T, connection, upgrade, version, key, protocol, extension, second string, length int64) {
		r := upgradeRequest(map[string][]string{
			"Connection": {connection}, "Upgrade": {upgrade}, "Sec-Websocket-Version": {version}, "Sec-Websocket-Key": {key},
		})
		r.ContentLength = length
		if protocol != "" {
			r.Header["Sec-Websocket-Protocol"] = []string{protocol}
		}
		if extension != "" {
			r.Header["Sec-Websocket-Extensions"] = []string{extension}
		}
		if second != "" {
			r.Header["Upgrade"] = append(r.Header["Upgrade"], second)
		}
		h, err := handshakeOf(r)
		if err != nil {
			if status, _ := wireStatus(err); status != 400 && status != 426 {
				t.Fatalf("%v", err)
			}
			return
		}
		asked := regexp.MustCompile(`(?i)(^|,)[ \t]*upgrade[ \t]*(,|$)`).MatchString(connection)
		if asked != (h.Kind != notUpgrade) {
			t.Fatalf("Connection %q is read as kind %d", connection, h.Kind)
		}
		if h.Kind != websocketUpgrade {
			return
		}
		raw, err := base64.StdEncoding.DecodeString(key)
		if err != nil || len(raw) != 16 || base64.StdEncoding.EncodeToString(raw) != key {
			t.Fatalf("key %q passed", key)
		}
		if !strings.EqualFold(upgrade, "websocket") || second != "" || version != "13" || length != 0 {
			t.Fatalf("%q %q %q %d passed", upgrade, second, version, length)
		}
		for _, p := range h.Protocols {
			if strings.HasPrefix(strings.ToLower(p), "sluice.bearer.") {
				t.Fatalf("the credential in %q is still offered", protocol)
			}
		}
		// It has nothing to hijack here, which is the last thing it looks at.
		_, err = (&websocket.Upgrader{}).Upgrade(httptest.NewRecorder(), r, nil)
		if err == nil || !strings.Contains(err.Error(), "Hijacker") {
			t.Fatalf("another implementation refuses it: %v", err)
		}
	})
}
