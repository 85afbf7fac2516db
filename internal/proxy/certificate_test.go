package proxy

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sluice/internal/authz"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// secured serves h over TLS with a certificate of its own and returns its
// address and who trusts it.
func secured(t testing.TB, h http.Handler) (string, *x509.CertPool) {
	t.Helper()
	cert, key, pool := certificate(t)
	log := slog.New(slog.DiscardHandler)
	config, err := TLSConfig(TLSFiles{Cert: cert, Key: key}, log)
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(ServerOptions{Handler: h, TLS: config, MaxHeaderBytes: 64 << 10, HeaderTimeout: 5 * time.Second, Log: log})
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		_ = server.Close()
		wg.Wait()
	})
	return l.Addr().String(), pool
}

func certificate(t testing.TB) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, text []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: text}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AddCert(parsed)
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", private), pool
}

func TestOverTLSBothVersionsOfHTTPAreServed(t *testing.T) {
	address, pool := secured(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	for _, want := range []string{"HTTP/2.0", "HTTP/1.1"} {
		versions := new(http.Protocols)
		versions.SetHTTP1(want == "HTTP/1.1")
		versions.SetHTTP2(want == "HTTP/2.0")
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, Protocols: versions, DisableKeepAlives: true}}
		answer, err := client.Get("https://" + address + "/")
		if err != nil {
			t.Errorf("%s: %v", want, err)
			continue
		}
		body, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if string(body) != want || answer.Proto != want {
			t.Errorf("%s: served as %s over %s", want, body, answer.Proto)
		}
	}
}

// Who negotiates HTTP/2 is not guarded as HTTP/1.1 is, and so must not be
// served as that.
func TestWhoNegotiatesHTTP2CannotSpeakHTTP1(t *testing.T) {
	address, pool := secured(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request was served") }))
	conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\nHost: x\n\n"); err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(conn) // frames of HTTP/2, and the end
}

// What is announced over TLS works there: a browser believes the announcement.
func TestAWebSocketOverHTTP2AndTLSIsAnnouncedAndWorks(t *testing.T) {
	g := startGateway(t, echoes(t))
	address, pool := secured(t, g.proxy)
	conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	h := h2Over(t, conn)
	if h.settings[http2.SettingEnableConnectProtocol] != 1 {
		t.Fatalf("settings: %v", h.settings)
	}
	headers := connectHeaders("/v1/leases/lease-1/duplex")
	headers[5] = "https"
	h.headers(1, false, headers...)
	if m := h.answer(1); m.PseudoValue("status") != "200" {
		t.Fatalf("answered %v", m.Fields)
	}
	br := bufio.NewReader(h)
	h.framer.WriteData(1, false, wireFrame(opBinary, true, []byte("hello")))
	if _, payload, err := readFrame(br); err != nil || string(payload) != "hello" {
		t.Fatalf("%q, %v", payload, err)
	}
	g.decides.set(denies(authz.CodeDuplexDenied))
	g.register.LeaseChanged("lease-1")
	if code, _ := readClose(t, br); code != 1008 {
		t.Errorf("closed with %d", code)
	}
}
