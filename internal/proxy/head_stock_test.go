package proxy

import (
	"bufio"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The rows of the strict checks prove something only where a gateway without
// the checks gets them wrong. These tests show it of net/http's server and of
// httputil's proxy, as they come.

func TestStockNetHTTPTakesWhatTheGuardRefuses(t *testing.T) {
	rows := badHeads
	for _, tt := range badChunks {
		rows = append(rows, badHead{name: tt.name, head: chunkedHead + tt.body, stock: tt.stock})
	}
	var all sync.WaitGroup
	for _, tt := range rows { // at once: the server lingers behind some
		all.Go(func() {
			if took := stockTakes(tt.head); took != tt.stock {
				t.Errorf("%s: stock net/http takes it: %v, the table says %v", tt.name, took, tt.stock)
			}
		})
	}
	all.Wait()
}

// stockTakes reports whether net/http's own server hands raw to a handler
// with a body that ends well, or answers it with 200 by itself.
func stockTakes(raw string) bool {
	var reached, took atomic.Bool
	done := make(chan struct{})
	s := &http.Server{
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			reached.Store(true)
			took.Store(err == nil)
		}),
		ConnState: func(_ net.Conn, state http.ConnState) { closeOn(done, state) },
		ErrorLog:  log.New(io.Discard, "", 0),
	}
	conn := &scriptConn{segments: [][]byte{[]byte(raw)}}
	serveOne(s, conn, done)
	if reached.Load() {
		return took.Load()
	}
	return strings.HasPrefix(string(conn.written), "HTTP/1.1 200")
}

// stockProxy is httputil's proxy in front of a worker that answers every
// request with answer and notes what it got.
func stockProxy(t *testing.T, answer string) (address string, got func() string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	heads := make(chan string, 16)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(10 * time.Second))
			r, err := http.ReadRequest(bufio.NewReader(c))
			if err == nil {
				head, _ := httputil.DumpRequest(r, false)
				heads <- string(head)
				_, _ = io.WriteString(c, answer)
			}
			_ = c.Close()
		}
	}()
	target, _ := url.Parse("http://" + l.Addr().String())
	front := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:  func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorLog: log.New(io.Discard, "", 0),
	})
	t.Cleanup(func() { front.Close(); _ = l.Close() })
	return front.Listener.Addr().String(), func() string {
		select {
		case head := <-heads:
			return head
		case <-time.After(10 * time.Second):
			return ""
		}
	}
}

func askStock(t *testing.T, address, raw string) string {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(c, raw)
	answer := make([]byte, len("HTTP/1.1 101"))
	_, _ = io.ReadFull(c, answer)
	return string(answer)
}

func TestStockProxyOpensTunnelsThatTheHandshakeCheckRefuses(t *testing.T) {
	const version, key = "Sec-WebSocket-Version: 13\r\n", "Sec-WebSocket-Key: " + sampleKey + "\r\n"
	for name, raw := range map[string]string{
		"another version":     "GET /x HTTP/1.1\r\nHost: gw\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 777\r\n" + key + "\r\n",
		"no version":          "GET /x HTTP/1.1\r\nHost: gw\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + key + "\r\n",
		"no key":              "GET /x HTTP/1.1\r\nHost: gw\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + version + "\r\n",
		"a short key":         "GET /x HTTP/1.1\r\nHost: gw\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + version + "Sec-WebSocket-Key: AAAA\r\n\r\n",
		"a second Upgrade":    "GET /x HTTP/1.1\r\nHost: gw\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n" + version + key + "\r\n",
		"another method":      "POST /x HTTP/1.1\r\nHost: gw\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + version + key + "Content-Length: 5\r\n\r\nhello",
		"an answer unchecked": "GET /x HTTP/1.1\r\nHost: gw\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + version + key + "\r\n",
	} {
		address, _ := stockProxy(t, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		if got := askStock(t, address, raw); got != "HTTP/1.1 101" {
			t.Errorf("%s: %q", name, got)
		}
	}
	address, _ := stockProxy(t, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
	raw := "GET /x HTTP/1.1\r\nHost: gw\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n"
	if got := askStock(t, address, raw); got != "HTTP/1.1 101" {
		t.Errorf("h2c: %q", got)
	}
}

func TestStockProxyForwardsHeadersThatTheGatewayRemoves(t *testing.T) {
	address, got := stockProxy(t, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
	spoofed := []string{
		"Sluice-Subject", "X-Real-Ip", "X-Forwarded-User", "X-Forwarded-Client-Cert", "X-Original-Url", "X-Envoy-External-Address",
		"X_forwarded_for", "Authorization",
	}
	raw := "GET /x HTTP/1.1\r\nHost: gw\r\nConnection: close\r\n"
	for _, name := range spoofed {
		raw += name + ": spoof\r\n"
	}
	askStock(t, address, raw+"\r\n")
	head := got()
	for _, name := range spoofed {
		if !strings.Contains(head, name+": spoof") {
			t.Errorf("%s was removed:\n%s", name, head)
		}
	}
}
