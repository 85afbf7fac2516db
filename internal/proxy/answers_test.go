package proxy

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"sluice/internal/authz"
	"sluice/internal/channel"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

func TestAllowedHostsAreNamesWithOrWithoutAPort(t *testing.T) {
	allowed := []string{"gw.example", "other.example:8443", "[::1]", "192.0.2.1"}
	for host, want := range map[string]bool{
		"gw.example": true, "GW.Example": true, "gw.example:8080": true, "other.example:8443": true, "OTHER.example:8443": true,
		"[::1]": true, "[::1]:8080": true, "192.0.2.1:1": true,
		"": false, "example": false, "gw.example.": false, "x.gw.example": false, "gw.example.evil": false, "other.example": false,
		"other.example:8444": false, "[::2]": false, "::1": false, ":8080": false, "evil:gw.example": false,
	} {
		if got := hostAllowed(allowed, host); got != want {
			t.Errorf("%q: got %v", host, got)
		}
	}
	if !hostAllowed(nil, "any") {
		t.Error("no list is no limit")
	}
}

func TestAnotherHostIs421(t *testing.T) {
	worker := listen(t, func(net.Conn) { t.Error("the worker was contacted") })
	g := startGateway(t, worker, func(s *Settings, _ *channel.Limits) { s.AllowedHosts = []string{"served"} })
	_, br := dialRaw(t, g.address, websocketHead)
	wantStatus(t, br, 421, "MISDIRECTED_REQUEST")
}

// gRPC callers get gRPC's answer, however early a call is refused.
func TestACallThatIsRefusedEarlyIsAnsweredAsGRPC(t *testing.T) {
	worker := listen(t, func(net.Conn) { t.Error("the worker was contacted") })
	g := startGateway(t, worker, func(s *Settings, _ *channel.Limits) { s.AllowedHosts = []string{"gateway"} })
	h := dialH2(t, g.address)
	id := uint32(1)
	for name, row := range map[string]struct{ host, path, status string }{
		"a path that is not canonical": {"gateway", "/v1//leases/lease-1/duplex", "3"},
		"an id that is none":           {"gateway", "/v1/leases/-/duplex", "3"},
		"no such path":                 {"gateway", "/v1/nothing", "12"},
		"another host":                 {"evil", "/v1/leases/lease-1/duplex", "12"},
	} {
		h.headers(id, true, ":method", "POST", ":scheme", "http", ":authority", row.host, ":path", row.path,
			"content-type", "application/grpc", "te", "trailers")
		m := h.answer(id)
		got := map[string]string{}
		for _, f := range m.Fields {
			got[f.Name] = f.Value
		}
		if got[":status"] != "200" || got["content-type"] != "application/grpc" || got["grpc-status"] != row.status {
			t.Errorf("%s: answered %v", name, m.Fields)
		}
		id += 2
	}
}

// The Connection header of a 426 names Upgrade, whoever closes.
func TestAnUpgradeThatIsRequiredIsNamed(t *testing.T) {
	worker := listen(t, func(net.Conn) { t.Error("the worker was contacted") })
	g := startGateway(t, worker)
	for name, head := range map[string]string{
		"no handshake":                   "GET /v1/leases/lease-1/duplex HTTP/1.1\r\nHost: gateway\r\n\r\n",
		"no handshake, and it is closed": "GET /v1/leases/lease-1/duplex HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n",
		"another version":                strings.Replace(websocketHead, "Version: 13", "Version: 12", 1),
	} {
		_, br := dialRaw(t, g.address, head)
		answer := "" // as it is: ReadResponse takes what it understood out
		for !strings.HasSuffix(answer, "\r\n\r\n") {
			line, err := br.ReadString('\n')
			if err != nil {
				t.Fatalf("%s: answered %q, %v", name, answer, err)
			}
			answer += line
		}
		if !strings.HasPrefix(answer, "HTTP/1.1 426 ") || !strings.Contains(answer, "\r\nUpgrade: websocket\r\n") ||
			!strings.Contains(answer, "\r\nConnection: Upgrade\r\n") {
			t.Errorf("%s: answered %s", name, answer)
		}
	}
}

func TestAWorkersOwnAnswerToAnUpgradeIsPassedAsItIs(t *testing.T) {
	worker := listen(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 4096))
		_, _ = io.WriteString(c, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 6\r\nX-Own: 1\r\n\r\n<html>")
	})
	g := startGateway(t, worker)
	_, br := dialRaw(t, g.address, websocketHead)
	answer, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	if answer.StatusCode != 401 || string(body) != "<html>" || err != nil || answer.Header.Get("X-Own") != "1" {
		t.Errorf("answered %+v %q, %v", answer, body, err)
	}
	if made := answer.Header["Content-Type"]; made != nil {
		t.Errorf("a content type was made up: %q", made)
	}
}

// Nothing is recorded in these tests, so what the caller says of its trace is
// what the worker hears, the sampling flag too.
func TestACallersTraceGoesOnThroughAGatewayThatRecordsNone(t *testing.T) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	heard := make(chan string, 1)
	worker := listen(t, func(c net.Conn) {
		r, _ := switches(t, c)
		heard <- r.Header.Get("Traceparent")
	})
	g := startGateway(t, worker)
	g.proxy.tracer = sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())).Tracer("")
	open(t, g.address, strings.Replace(websocketHead, "Upgrade: websocket", "Upgrade: websocket\r\nTraceparent: "+trace, 1))
	if got := <-heard; got != trace {
		t.Errorf("the worker heard %q", got)
	}
}

// Who calls from behind trusted proxies is told by them, and by nobody else.
func TestTheCallersAddressIsTheLastThatNoTrustedProxyVouchesFor(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")}
	for name, row := range map[string]struct {
		trusted []netip.Prefix
		said    []string
		want    string
	}{
		"nobody is trusted":          {nil, []string{"192.0.2.1"}, "127.0.0.1"},
		"nothing is said":            {trusted, nil, "127.0.0.1"},
		"a caller":                   {trusted, []string{"192.0.2.1"}, "192.0.2.1"},
		"a caller that says another": {trusted, []string{"198.51.100.7, 192.0.2.1"}, "192.0.2.1"},
		"over two proxies":           {trusted, []string{"198.51.100.7, 192.0.2.1, 10.0.0.9"}, "192.0.2.1"},
		"in two headers":             {trusted, []string{"198.51.100.7, 192.0.2.1", "10.0.0.9"}, "192.0.2.1"},
		"only proxies":               {trusted, []string{"10.0.0.8, 10.0.0.9"}, "10.0.0.8"},
		"an IPv4 address in IPv6":    {trusted, []string{"::ffff:192.0.2.1"}, "192.0.2.1"},
		"an IPv6 address":            {trusted, []string{"2001:db8::1"}, "2001:db8::1"},
		"with its port":              {trusted, []string{"[2001:db8::1]:443"}, "2001:db8::1"},
		"what is no address":         {trusted, []string{"192.0.2.1, unknown"}, "127.0.0.1"},
	} {
		asked := make(chan string, 1)
		g := startGateway(t, "127.0.0.1:1", func(s *Settings, _ *channel.Limits) { s.TrustedProxies = row.trusted })
		g.decides.set(func(r *authz.Request) authz.Decision {
			asked <- r.RemoteAddress
			return authz.Deny(authz.CodeDuplexDenied, "TEST")
		})
		head := websocketHead
		for _, said := range row.said {
			head = strings.Replace(head, "Host:", "X-Forwarded-For: "+said+"\r\nHost:", 1)
		}
		if len(row.said) == 2 { // Replace put the second before the first
			head = strings.Replace(head, "X-Forwarded-For: "+row.said[1]+"\r\nX-Forwarded-For: "+row.said[0], "X-Forwarded-For: "+row.said[0]+"\r\nX-Forwarded-For: "+row.said[1], 1)
		}
		dialRaw(t, g.address, head)
		if got := <-asked; got != row.want {
			t.Errorf("%s: got %s, want %s", name, got, row.want)
		}
	}
}
