package worker_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"sluice/internal/worker"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

func newDialer(t *testing.T, o worker.DialerOptions) *worker.Dialer {
	t.Helper()
	if o.Allow == nil {
		o.Allow = []string{"127.0.0.0/8"}
	}
	d, err := worker.NewDialer(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// recorder is a listener that counts who connects and says nothing.
type recorder struct {
	net.Listener
	accepted atomic.Int32
}

func record(t *testing.T, address string) *recorder {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{Listener: l}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.accepted.Add(1)
			defer c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-ended })
	return r
}

func (r *recorder) url() string     { return "http://" + r.Addr().String() }
func (r *recorder) address() string { return r.Addr().String() }

func port(address string) string {
	_, p, _ := net.SplitHostPort(address)
	return p
}

func TestTheFinalAddressDecides(t *testing.T) {
	r2, r3 := record(t, "127.0.0.2:0"), record(t, "127.0.0.3:0")
	allowed := record(t, "127.0.0.3:0") // r3 is never to be connected to
	for name, row := range map[string]struct {
		options worker.DialerOptions
		url     string
		want    error
	}{
		"allowed address":            {worker.DialerOptions{Allow: []string{"127.0.0.2/32"}}, r2.url(), nil},
		"allowed address and port":   {worker.DialerOptions{Allow: []string{"127.0.0.2/32:" + port(r2.address())}}, r2.url(), nil},
		"forbidden address":          {worker.DialerOptions{Allow: []string{"127.0.0.2/32"}}, r3.url(), worker.ErrForbidden},
		"forbidden port":             {worker.DialerOptions{Allow: []string{"127.0.0.3/32:1"}}, r3.url(), worker.ErrForbidden},
		"nothing allowed":            {worker.DialerOptions{Allow: []string{}}, r3.url(), worker.ErrForbidden},
		"own listener":               {worker.DialerOptions{Own: []string{r3.address()}}, r3.url(), worker.ErrForbidden},
		"a found one of the store's": {worker.DialerOptions{Found: func() []string { return []string{r3.address()} }}, r3.url(), worker.ErrForbidden},
		"a found one that is odd":    {worker.DialerOptions{Found: func() []string { return []string{"x"} }}, r3.url(), worker.ErrForbidden},
		"own wildcard listener":      {worker.DialerOptions{Own: []string{":" + port(r3.address())}}, r3.url(), worker.ErrForbidden},
		"own IPv4 wildcard":          {worker.DialerOptions{Own: []string{"0.0.0.0:" + port(r3.address())}}, r3.url(), worker.ErrForbidden},
		"own IPv6 wildcard":          {worker.DialerOptions{Own: []string{"[::]:" + port(r3.address())}}, r3.url(), worker.ErrForbidden},
		"own mapped address":         {worker.DialerOptions{Own: []string{"[::ffff:127.0.0.3]:" + port(r3.address())}}, r3.url(), worker.ErrForbidden},
		"another own port":           {worker.DialerOptions{Own: []string{":1", "127.0.0.2:" + port(r2.address())}}, allowed.url(), nil},
		"malformed URL":              {worker.DialerOptions{}, r3.url() + "/path", worker.ErrForbidden},
		"unspecified address":        {worker.DialerOptions{Allow: []string{"0.0.0.0/0"}, Own: []string{"127.0.0.1:" + port(r3.address())}}, "http://0.0.0.0:" + port(r3.address()), worker.ErrForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := newDialer(t, row.options).DialContext(t.Context(), row.url)
			if conn != nil {
				defer conn.Close()
			}
			if !errors.Is(err, row.want) {
				t.Fatalf("error %v", err)
			}
		})
	}
	if r3.accepted.Load() != 0 {
		t.Error("the forbidden address was connected to")
	}
}

func TestAnAddressFromALinkIsCheckedToo(t *testing.T) {
	r := record(t, "127.0.0.3:0")
	d := newDialer(t, worker.DialerOptions{Allow: []string{"127.0.0.2/32"}})
	for _, address := range []string{r.address(), "127.0.0.3", "nonsense", "[::1]:0"} {
		if _, err := d.DialAddress(t.Context(), "http://127.0.0.2", address); err == nil {
			t.Errorf("%s was dialled", address)
		}
	}
	if r.accepted.Load() != 0 {
		t.Error("the forbidden address was connected to")
	}
}

// resolver answers every question for an A record with what addresses says
// then, and asks it for no other.
func resolver(t *testing.T, addresses func() []string) *net.Resolver {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buffer := make([]byte, 1500)
		for {
			n, from, err := pc.ReadFrom(buffer)
			if err != nil {
				return
			}
			if answer := resolve(buffer[:n], addresses); answer != nil {
				_, _ = pc.WriteTo(answer, from)
			}
		}
	}()
	t.Cleanup(func() { _ = pc.Close(); <-ended })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
}

func resolve(question []byte, addresses func() []string) []byte {
	var m dnsmessage.Message
	if m.Unpack(question) != nil || len(m.Questions) == 0 {
		return nil
	}
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	q := m.Questions[0]
	if q.Type == dnsmessage.TypeA {
		for _, a := range addresses() {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class},
				Body:   &dnsmessage.AResource{A: netip.MustParseAddr(a).As4()},
			})
		}
	}
	answer, err := m.Pack()
	if err != nil {
		return nil
	}
	return answer
}

func TestANameIsCheckedByWhatItResolvesTo(t *testing.T) {
	bad := record(t, "127.0.0.3:0")
	good := record(t, "127.0.0.2:"+port(bad.address()))
	url := "http://worker.example:" + port(bad.address())
	for name, row := range map[string]struct {
		addresses []string
		own       []string
		want      error
	}{
		"an allowed address":    {[]string{"127.0.0.2"}, nil, nil},
		"a forbidden address":   {[]string{"127.0.0.3"}, nil, worker.ErrForbidden},
		"one of each":           {[]string{"127.0.0.3", "127.0.0.2"}, nil, nil},
		"the store, by name":    {[]string{"127.0.0.2"}, []string{"store.example:" + port(bad.address())}, worker.ErrForbidden},
		"a store on other port": {[]string{"127.0.0.2"}, []string{"store.example:1"}, nil},
		"no address":            {nil, nil, worker.ErrRefused},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := newDialer(t, worker.DialerOptions{
				Allow: []string{"127.0.0.2/32"}, Own: row.own,
				Resolver: resolver(t, func() []string { return row.addresses }),
			}).DialContext(t.Context(), url)
			if !errors.Is(err, row.want) {
				t.Fatalf("error %v", err)
			}
			if conn != nil {
				_ = conn.Close()
			}
		})
	}
	if bad.accepted.Load() != 0 || good.accepted.Load() == 0 {
		t.Errorf("%d connections to the forbidden address, %d to the allowed one", bad.accepted.Load(), good.accepted.Load())
	}
}

func TestANameThatChangesItsAddressIsCheckedAgain(t *testing.T) {
	bad := record(t, "127.0.0.3:0")
	good := record(t, "127.0.0.2:"+port(bad.address()))
	var looks atomic.Int32
	d := newDialer(t, worker.DialerOptions{Allow: []string{"127.0.0.2/32"}, Resolver: resolver(t, func() []string {
		if looks.Add(1) == 1 {
			return []string{"127.0.0.2"}
		}
		return []string{"127.0.0.3"}
	})})
	url := "http://worker.example:" + port(bad.address())
	conn, err := d.DialContext(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := conn.RemoteAddr().String(); got != good.address() {
		t.Errorf("connected to %s", got)
	}
	for range 2 {
		if _, err := d.DialContext(t.Context(), url); !errors.Is(err, worker.ErrForbidden) {
			t.Errorf("once it leads elsewhere: %v", err)
		}
	}
	eventually(t, "the allowed address is connected to", func() bool { return good.accepted.Load() > 0 })
	if bad.accepted.Load() != 0 || good.accepted.Load() != 1 {
		t.Errorf("%d connections to the forbidden address, %d to the allowed one", bad.accepted.Load(), good.accepted.Load())
	}
}

func TestAStoreThatCannotBeLookedUpForbidsItsPort(t *testing.T) {
	r := record(t, "127.0.0.2:0")
	d := newDialer(t, worker.DialerOptions{
		Own: []string{"store.invalid:" + port(r.address())}, Resolver: resolver(t, func() []string { return nil }),
	})
	if _, err := d.DialContext(t.Context(), r.url()); !errors.Is(err, worker.ErrForbidden) {
		t.Errorf("error %v", err)
	}
	if r.accepted.Load() != 0 {
		t.Error("it was connected to")
	}
}

func TestARefusedConnectionAndATimeOutAreToldApart(t *testing.T) {
	gone := record(t, "127.0.0.1:0")
	_ = gone.Close()
	patient := newDialer(t, worker.DialerOptions{Timeout: patience})
	if _, err := patient.DialContext(t.Context(), gone.url()); !errors.Is(err, worker.ErrRefused) {
		t.Errorf("a closed port: %v", err)
	}

	d := newDialer(t, worker.DialerOptions{Timeout: 150 * time.Millisecond})
	_, err := d.DialContext(t.Context(), "http://"+full(t))
	var timeout net.Error
	if !errors.Is(err, worker.ErrTimeout) || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("a full port: %v", err)
	}

	silent := record(t, "127.0.0.1:0")
	began := time.Now()
	_, err = d.DialContext(t.Context(), "https://"+silent.address())
	if took := time.Since(began); !errors.Is(err, worker.ErrTimeout) || took > patience {
		t.Errorf("a handshake that nobody answers: %v after %v", err, took)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.DialContext(ctx, silent.url()); !errors.Is(err, context.Canceled) || errors.Is(err, worker.ErrRefused) {
		t.Errorf("a caller that left: %v", err)
	}
}

func TestProxyVariablesAreNotRead(t *testing.T) {
	proxy, to := record(t, "127.0.0.1:0"), record(t, "127.0.0.2:0")
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(name, proxy.url())
	}
	conn, err := newDialer(t, worker.DialerOptions{}).DialContext(t.Context(), to.url())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if conn.RemoteAddr().String() != to.address() || proxy.accepted.Load() != 0 {
		t.Errorf("connected to %s", conn.RemoteAddr())
	}
}

func TestHTTPSWorkersAreVerifiedByName(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	authority := writeCertificate(t, server.TLS.Certificates[0].Certificate[0])
	trusting := newDialer(t, worker.DialerOptions{TLS: worker.TLSOptions{CAFile: authority}})
	address := server.Listener.Addr().String()

	conn, err := trusting.DialContext(t.Context(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := conn.(*tls.Conn).ConnectionState().NegotiatedProtocol; got == "h2" {
		t.Errorf("negotiated %q", got)
	}
	h2, err := trusting.Offering("h2").DialAddress(t.Context(), "https://example.com", address)
	if err != nil {
		t.Fatal(err)
	}
	defer h2.Close()
	if got := h2.(*tls.Conn).ConnectionState().NegotiatedProtocol; got != "h2" {
		t.Errorf("negotiated %q", got)
	}
	if _, err := trusting.DialAddress(t.Context(), "https://other.example", address); !errors.Is(err, worker.ErrRefused) {
		t.Errorf("another name: %v", err)
	}
	if _, err := newDialer(t, worker.DialerOptions{}).DialContext(t.Context(), server.URL); !errors.Is(err, worker.ErrRefused) {
		t.Errorf("an unknown authority: %v", err)
	}
}

func TestTheGatewayShowsItsCertificateAndReadsItAgain(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	writePair(t, certFile, keyFile, "gateway-1")
	shown := make(chan string, 2)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		shown <- r.TLS.PeerCertificates[0].Subject.CommonName
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	defer server.Close()
	d := newDialer(t, worker.DialerOptions{TLS: worker.TLSOptions{
		CAFile: writeCertificate(t, server.TLS.Certificates[0].Certificate[0]), CertFile: certFile, KeyFile: keyFile,
	}})
	for _, name := range []string{"gateway-1", "gateway-2"} {
		writePair(t, certFile, keyFile, name)
		conn, err := d.DialContext(t.Context(), server.URL)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		if got := <-shown; got != name {
			t.Errorf("the worker saw %q, not %q", got, name)
		}
		_ = conn.Close()
	}
}

func TestOptionsOfADialerAreChecked(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for name, o := range map[string]worker.DialerOptions{
		"allow":     {Allow: []string{"127.0.0.1"}},
		"own":       {Own: []string{"127.0.0.1"}},
		"own port":  {Own: []string{"127.0.0.1:http"}},
		"own zero":  {Own: []string{"127.0.0.1:0"}},
		"authority": {TLS: worker.TLSOptions{CAFile: missing}},
		"empty CA":  {TLS: worker.TLSOptions{CAFile: "/dev/null"}},
		"key alone": {TLS: worker.TLSOptions{KeyFile: missing}},
	} {
		if _, err := worker.NewDialer(o); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
