package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// servedRequest is what a handler saw of one request.
type servedRequest struct {
	line, body string
	cut        bool // reading the body ended with an error
}

// guardedServer is net/http's server behind the guard. Its handler answers a
// refusal, echoes an upgrade's bytes, and tells what it saw of all else.
type guardedServer struct {
	*http.Server
	address string

	taken func() // called when an upgraded connection is done with

	mu     sync.Mutex
	served []servedRequest
	early  []string
}

func newGuardedServer() *guardedServer {
	s := &guardedServer{taken: func() {}}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	s.Server = &http.Server{
		Handler: s, Protocols: protocols, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 10 * time.Second,
		DisableGeneralOptionsHandler: true, ErrorLog: log.New(io.Discard, "", 0),
	}
	return s
}

func startGuarded(t *testing.T, o headOptions, change ...func(*http.Server)) *guardedServer {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newGuardedServer()
	s.address = l.Addr().String()
	for _, f := range change {
		f(s.Server)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(guardHeads(l, o)) }()
	t.Cleanup(func() {
		s.stop()
		<-done
		goleak.VerifyNone(t, leaks)
	})
	return s
}

// stop waits for connections that linger behind a refusal.
func (s *guardedServer) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = s.Shutdown(ctx)
	_ = s.Close()
}

func (s *guardedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if status, detail, ok := refusalOf(r); ok {
		w.Header().Set("Connection", "close")
		http.Error(w, detail, status)
		return
	}
	if r.ProtoMajor == 1 && r.Header.Get("Upgrade") != "" && strings.EqualFold(r.Header.Get("Connection"), "upgrade") {
		s.upgrade(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	s.note(servedRequest{r.Method + " " + r.RequestURI, string(body), err != nil})
	fmt.Fprintf(w, "%s %s %d", r.Method, r.RequestURI, len(body))
}

func (s *guardedServer) upgrade(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/refused" {
		s.note(servedRequest{line: r.Method + " " + r.RequestURI})
		w.Header().Set("Connection", "close")
		http.Error(w, "no", http.StatusForbidden)
		return
	}
	c, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer s.taken()
	raw, early := takeConn(c, buffered.Reader)
	s.mu.Lock()
	s.early = append(s.early, string(early))
	s.mu.Unlock()
	defer raw.Close()
	_, _ = raw.Write(early)
	_, _ = io.Copy(raw, raw)
}

func (s *guardedServer) note(r servedRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served = append(s.served, r)
}

func (s *guardedServer) seen() []servedRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]servedRequest(nil), s.served...)
}

func (s *guardedServer) dial(t *testing.T) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c.(*net.TCPConn)
}

// exchange sends raw and returns everything that comes back until the server
// closes.
func (s *guardedServer) exchange(t *testing.T, raw string) string {
	t.Helper()
	c := s.dial(t)
	if _, err := io.WriteString(c, raw); err != nil {
		t.Fatalf("sending %.60q: %v", raw, err)
	}
	answer, err := io.ReadAll(c)
	if err != nil {
		t.Fatalf("reading the answer to %.60q: %v", raw, err)
	}
	return string(answer)
}

func statuses(answer string) []string {
	var all []string
	for part := range strings.SplitSeq(answer, "HTTP/1.1 ") {
		if len(part) >= 3 && strings.Contains(part, "\r\n\r\n") {
			all = append(all, part[:3])
		}
	}
	return all
}

func TestEveryBadHeadIsAnsweredByTheHandlerAndEndsItsConnection(t *testing.T) {
	s := startGuarded(t, headOptions{})
	for _, tt := range badHeads {
		t.Run(tt.name, func(t *testing.T) {
			raw := tt.head
			if strings.HasSuffix(raw, "\n") { // what is behind a bad head is not read
				raw += "GET /behind HTTP/1.1\r\nHost: gw\r\n\r\n"
			}
			answer := s.exchange(t, raw)
			if got := statuses(answer); !reflect.DeepEqual(got, []string{fmt.Sprint(tt.status)}) {
				t.Errorf("answered %v, want %d:\n%s", got, tt.status, answer)
			}
			if !strings.Contains(answer, "Connection: close\r\n") {
				t.Errorf("the answer keeps the connection:\n%s", answer)
			}
			if seen := s.seen(); len(seen) > 0 {
				t.Fatalf("the handler saw %v", seen)
			}
		})
	}
}

func TestAGoodRequestBeforeABadHeadIsServedFirst(t *testing.T) {
	s := startGuarded(t, headOptions{})
	answer := s.exchange(t, "GET /1 HTTP/1.1\r\nHost: gw\r\n\r\nPOST /2 HTTP/1.1\r\nHost: gw\r\nContent-Length: 2\r\n\r\nokGET /3 HTTP/1.1\nHost: gw\n\n")
	if got := statuses(answer); !reflect.DeepEqual(got, []string{"200", "200", "400"}) {
		t.Errorf("answered %v", got)
	}
	if got := s.seen(); !reflect.DeepEqual(got, []servedRequest{{"GET /1", "", false}, {"POST /2", "ok", false}}) {
		t.Errorf("served %v", got)
	}
}

func TestTheAnswerToAHeadThatIsTooLargeArrives(t *testing.T) {
	s := startGuarded(t, headOptions{MaxBytes: 8 << 10})
	for raw, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: gw\r\nX: " + strings.Repeat("x", 300<<10): "431",
		"GET /" + strings.Repeat("x", 300<<10):                             "414",
	} {
		c := s.dial(t)
		go func() { _, _ = io.WriteString(c, raw) }() // the server stops reading
		answer := make([]byte, 12)
		if _, err := io.ReadFull(c, answer); err != nil || string(answer) != "HTTP/1.1 "+want {
			t.Errorf("%q, %v", answer, err)
		}
		_ = c.Close()
	}
	good := "GET / HTTP/1.1\r\nHost: gw\r\nConnection: close\r\nX: "
	good += strings.Repeat("x", 8<<10-len(good)-4) + "\r\n\r\n" // as large as it may be
	if got := statuses(s.exchange(t, good)); !reflect.DeepEqual(got, []string{"200"}) {
		t.Errorf("a head of %d bytes: %v", len(good), got)
	}
	if got := statuses(s.exchange(t, strings.Replace(good, "X: ", "X: x", 1))); !reflect.DeepEqual(got, []string{"431"}) {
		t.Errorf("a byte more: %v", got)
	}
}

func TestAHundredRequestsShareAConnection(t *testing.T) {
	s := startGuarded(t, headOptions{})
	c := s.dial(t)
	br := bufio.NewReader(c)
	for i := range 100 {
		var raw string
		size := i * 100
		switch i % 3 {
		case 0:
			size = 0
			raw = fmt.Sprintf("GET /%d HTTP/1.1\r\nHost: gw\r\n\r\n", i)
		case 1:
			raw = fmt.Sprintf("POST /%d HTTP/1.1\r\nHost: gw\r\nContent-Length: %d\r\n\r\n%s", i, size, strings.Repeat("x", size))
		case 2:
			raw = fmt.Sprintf("POST /%d HTTP/1.1\r\nHost: gw\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", i, size, strings.Repeat("x", size))
		}
		if _, err := io.WriteString(c, raw); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		body, _ := io.ReadAll(answer.Body)
		if want := fmt.Sprintf("/%d %d", i, size); answer.StatusCode != 200 || !strings.HasSuffix(string(body), want) {
			t.Fatalf("request %d: %d %q", i, answer.StatusCode, body)
		}
	}
	if got := len(s.seen()); got != 100 {
		t.Errorf("%d requests were served", got)
	}
}

func TestAClientThatWaitsForAContinueGetsOne(t *testing.T) {
	s := startGuarded(t, headOptions{})
	c := s.dial(t)
	_, _ = io.WriteString(c, "POST /x HTTP/1.1\r\nHost: gw\r\nContent-Length: 2\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n")
	first := make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n"))
	if _, err := io.ReadFull(c, first); err != nil || string(first) != "HTTP/1.1 100 Continue\r\n\r\n" {
		t.Fatalf("%q, %v", first, err)
	}
	_, _ = io.WriteString(c, "ok")
	if rest, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(rest), "HTTP/1.1 200 OK") {
		t.Fatalf("%q, %v", rest, err)
	}
}

func TestEarlyBytesReachWhoeverTakesTheConnectionOnce(t *testing.T) {
	s := startGuarded(t, headOptions{})
	head := "GET /up HTTP/1.1\r\nHost: gw\r\nConnection: upgrade\r\nUpgrade: tcp\r\n\r\n"
	early := "\x81\x85GET /x HTTP/1.1\r\nHost: gw\r\n\r\n" + strings.Repeat("e", 10_000)
	for cut := range []int{0, 1, len(head) - 1, len(head), len(head) + 1} {
		c := s.dial(t)
		raw := "GET /before HTTP/1.1\r\nHost: gw\r\n\r\n" + head + early
		_, _ = io.WriteString(c, raw[:cut])
		_, _ = io.WriteString(c, raw[cut:])
		_, _ = io.WriteString(c, "late")
		_ = c.CloseWrite()
		answer, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200") || !strings.HasSuffix(string(answer), "GET /before 0"+early+"late") {
			t.Fatalf("cut at %d: %d bytes come back, %v", cut, len(answer), err)
		}
	}
	for _, r := range s.seen() {
		if r.line != "GET /before" {
			t.Errorf("early bytes became the request %v", r)
		}
	}
}

func TestWhatFollowsARefusedUpgradeIsNeverARequest(t *testing.T) {
	s := startGuarded(t, headOptions{})
	answer := s.exchange(t, "GET /refused HTTP/1.1\r\nHost: gw\r\nConnection: upgrade\r\nUpgrade: tcp\r\n\r\nGET /internal HTTP/1.1\r\nHost: gw\r\n\r\n")
	if got := statuses(answer); !reflect.DeepEqual(got, []string{"403"}) {
		t.Errorf("answered %v", got)
	}
	if got := s.seen(); len(got) != 1 || got[0].line != "GET /refused" {
		t.Errorf("served %v", got)
	}
}

// A handler that forgets to close must not make a request of what follows.
func TestEvenAKeptConnectionServesNothingBehindAnUpgrade(t *testing.T) {
	var served []string // by one connection, in order
	done := make(chan struct{})
	server := &http.Server{
		Handler:   http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { served = append(served, r.RequestURI) }),
		ConnState: func(_ net.Conn, s http.ConnState) { closeOn(done, s) },
	}
	conn := &scriptConn{segments: [][]byte{[]byte("GET /1 HTTP/1.1\r\nHost: gw\r\nConnection: upgrade\r\nUpgrade: tcp\r\n\r\nGET /2 HTTP/1.1\r\nHost: gw\r\n\r\n")}}
	serveOne(server, guardConn(conn, &headOptions{MaxBytes: 1 << 10, Timeout: time.Second}), done)
	if !reflect.DeepEqual(served, []string{"/1"}) {
		t.Errorf("served %v", served)
	}
}

func TestAHeadThatDoesNotEndIsCutInTime(t *testing.T) {
	const bound = 200 * time.Millisecond
	s := startGuarded(t, headOptions{Timeout: bound, PriorKnowledge: true}, func(s *http.Server) { s.ReadHeaderTimeout = bound })
	for name, prefix := range map[string]string{
		"silent": "", "a first byte": "G", "a line": "GET / HTTP/1.1\r\n", "all but the end": "GET / HTTP/1.1\r\nHost: gw\r\n\r",
		"a second head":   "GET / HTTP/1.1\r\nHost: gw\r\n\r\nGET",
		"half a preface":  "PRI * HTTP/2.0\r\n\r\n",
		"a head in drips": "GET / HTTP/1.1\r\nX: ",
	} {
		t.Run(name, func(t *testing.T) {
			c := s.dial(t)
			started := time.Now()
			_, _ = io.WriteString(c, prefix)
			if name == "a head in drips" {
				go drip(c)
			}
			answer, _ := io.ReadAll(c) // a reset is an end too
			if took := time.Since(started); took < bound/2 || took > 20*bound {
				t.Errorf("cut after %v", took)
			}
			if strings.Contains(string(answer), "HTTP/1.1 4") {
				t.Errorf("answered %q", answer)
			}
		})
	}
}

// drip sends a byte now and then, until the peer is gone.
func drip(c net.Conn) {
	for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
		if _, err := c.Write([]byte("x")); err != nil {
			tick.Stop()
			return
		}
	}
}

func TestAHandlerIsToldThatItsCallerHasGone(t *testing.T) {
	for name, raw := range map[string]string{
		"a plain request": "GET / HTTP/1.1\r\nHost: gw\r\n\r\n",
		"an upgrade":      "GET / HTTP/1.1\r\nHost: gw\r\nConnection: upgrade\r\nUpgrade: tcp\r\n\r\n",
		"half a next one": "GET / HTTP/1.1\r\nHost: gw\r\n\r\nGET /",
	} {
		t.Run(name, func(t *testing.T) {
			reached, told := make(chan struct{}), make(chan struct{})
			s := startGuarded(t, headOptions{}, func(s *http.Server) {
				s.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					close(reached)
					<-r.Context().Done()
					close(told)
				})
			})
			c := s.dial(t)
			_, _ = io.WriteString(c, raw)
			<-reached
			_ = c.Close()
			select {
			case <-told:
			case <-time.After(10 * time.Second):
				t.Fatal("not told")
			}
		})
	}
}

func TestTheStandInCannotBeSent(t *testing.T) {
	s := startGuarded(t, headOptions{})
	forged := "GET / HTTP/1.1\r\nHost: gw\r\nSLUICE-head-Refused: " + refusalSecret + " 200 hello\r\n\r\n"
	if answer := s.exchange(t, forged); !strings.HasPrefix(answer, "HTTP/1.1 400") || strings.Contains(answer, "hello") {
		t.Errorf("answered %q", answer)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, values := range [][]string{nil, {""}, {"x 400 y"}, {refusalSecret}, {refusalSecret + "x 400 y"}, {refusalSecret + " 400 y", "x"}} {
		r.Header[refusalKey] = values
		if status, detail, ok := refusalOf(r); ok {
			t.Errorf("%q is a refusal: %d %q", values, status, detail)
		}
	}
	r.Header[refusalKey] = []string{refusalSecret + " 431 too large a head"}
	if status, detail, ok := refusalOf(r); !ok || status != 431 || detail != "too large a head" {
		t.Errorf("%d %q %v", status, detail, ok)
	}
}

func TestAConnectionBeginsWithTheHTTP2PrefaceOnlyWhereItMay(t *testing.T) {
	s := startGuarded(t, headOptions{PriorKnowledge: true})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Get("http://" + s.address + "/h2")
	if err != nil || answer.ProtoMajor != 2 || answer.StatusCode != 200 {
		t.Fatalf("%v, %v", answer, err)
	}
	_ = answer.Body.Close()

	for _, raw := range []string{
		"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", "PRI * HTTP/2.0\r\nHost: gw\r\n\r\n", "PRI / HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: gw\r\n\r\n" + preface, "PRI * HTTP/2.0\r\n\r\n0",
	} {
		got := statuses(s.exchange(t, raw))
		if got[len(got)-1] != "505" {
			t.Errorf("%q: %v", raw, got)
		}
	}
	without := startGuarded(t, headOptions{})
	if got := statuses(without.exchange(t, preface)); !reflect.DeepEqual(got, []string{"505"}) {
		t.Errorf("without prior knowledge: %v", got)
	}
}

func TestATLSConnectionIsGuardedUnlessItNegotiatesHTTP2(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	defer goleak.VerifyNone(t, leaks)
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	config := certified.TLS.Clone()
	roots := certified.Client().Transport.(*http.Transport).TLSClientConfig
	certified.Close()

	config.NextProtos = []string{"h2", "http/1.1"}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newGuardedServer()
	s.TLSConfig = config
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(guardHeads(tls.NewListener(l, config), headOptions{PriorKnowledge: true}))
	}()
	defer func() { s.stop(); <-done }()

	ask := func(proto, raw string) string {
		mine := roots.Clone()
		mine.NextProtos, mine.ServerName = []string{proto}, "example.com"
		c, err := tls.Dial("tcp", l.Addr().String(), mine)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = io.WriteString(c, raw)
		answer, _ := io.ReadAll(c)
		return string(answer)
	}
	for raw, want := range map[string]string{
		"GET /x HTTP/1.1\r\nHost: gw\r\nConnection: close\r\n\r\n": "200",
		"GET /x HTTP/1.1\nHost: gw\n\n":                            "400",
		"POST / HTTP/1.1\r\nHost: gw\r\n folded: x\r\n\r\n":        "400",
		preface: "505",
		"CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: gw\r\nConnection: close\r\n\r\n": "405",
	} {
		if got := statuses(ask("http/1.1", raw)); !reflect.DeepEqual(got, []string{want}) {
			t.Errorf("%q: %v", raw, got)
		}
	}
	transport := &http.Transport{TLSClientConfig: roots.Clone(), ForceAttemptHTTP2: true}
	transport.TLSClientConfig.ServerName = "example.com"
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Get("https://" + l.Addr().String() + "/h2")
	if err != nil || answer.ProtoMajor != 2 || answer.StatusCode != 200 {
		t.Fatalf("%v, %v", answer, err)
	}
	_ = answer.Body.Close()
}

func TestAConnectionThatWaitsHoldsNoBuffer(t *testing.T) {
	o := &headOptions{MaxBytes: 64 << 10, Timeout: time.Second}
	for name, raw := range map[string]string{
		"behind a request":  "GET / HTTP/1.1\r\nHost: gw\r\n\r\n",
		"inside a body":     "POST / HTTP/1.1\r\nHost: gw\r\nContent-Length: 10\r\n\r\nhalf",
		"inside a chunk":    "POST / HTTP/1.1\r\nHost: gw\r\nTransfer-Encoding: chunked\r\n\r\na\r\nhalf",
		"behind an upgrade": "GET / HTTP/1.1\r\nHost: gw\r\nConnection: upgrade\r\nUpgrade: tcp\r\n\r\n",
		"inside HTTP/2":     preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00",
	} {
		for _, first := range []int{1, 14, len(raw)} { // as net/http reads at different times
			conn := &scriptConn{segments: [][]byte{[]byte(raw)}}
			guarded := guardConn(conn, &headOptions{MaxBytes: o.MaxBytes, Timeout: o.Timeout, PriorKnowledge: true}).(*headConn)
			got := ""
			for _, size := range []int{first, 1, 4096, 4096} {
				p := make([]byte, size)
				n, _ := guarded.Read(p)
				got += string(p[:n])
			}
			if got != raw || guarded.held.b != nil || guarded.held.base != nil {
				t.Errorf("%s, first read of %d: %q was given, %d bytes are held", name, first, got, cap(guarded.held.b))
			}
		}
	}
}

func TestAReadThatTimesOutLosesNothing(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	guarded := guardConn(server, &headOptions{MaxBytes: 1 << 10, Timeout: time.Minute})
	defer guarded.Close()
	raw := "GET / HTTP/1.1\r\nHost: gw\r\n\r\n"
	p := make([]byte, 4096)
	for i := range len(raw) {
		sent := make(chan error, 1)
		go func() { _, err := client.Write([]byte{raw[i]}); sent <- err }()
		if i == len(raw)-1 {
			break
		}
		for { // the byte is taken, and then the deadline passes
			_ = guarded.SetReadDeadline(time.Now().Add(time.Millisecond))
			n, err := guarded.Read(p[:1+i%2*100])
			if n != 0 || !os.IsTimeout(err) {
				t.Fatalf("byte %d: %d, %v", i, n, err)
			}
			select {
			case err = <-sent:
			default:
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	_ = guarded.SetReadDeadline(time.Time{})
	if n, err := guarded.Read(p); string(p[:n]) != raw || err != nil {
		t.Fatalf("%q, %v", p[:n], err)
	}
}

func TestAReadThatHoldsBytesEndsWithItsDeadlineOrItsConnection(t *testing.T) {
	raw := "GET / HTTP/1.1\r\nHost: gw\r\nConnection: upgrade\r\nUpgrade: tcp\r\n\r\nearly"
	held := func() (net.Conn, chan error) {
		guarded := guardConn(&scriptConn{segments: [][]byte{[]byte(raw)}}, &headOptions{MaxBytes: 1 << 10, Timeout: time.Second})
		p := make([]byte, 4096)
		if n, err := guarded.Read(p); string(p[:n]) != strings.TrimSuffix(raw, "early") || err != nil {
			t.Fatalf("%q, %v", p[:n], err)
		}
		ended := make(chan error, 1)
		go func() { _, err := guarded.Read(p[:1]); ended <- err }()
		return guarded, ended
	}
	guarded, ended := held()
	_ = guarded.SetReadDeadline(time.Now().Add(time.Hour))
	_ = guarded.SetReadDeadline(time.Unix(1, 0))
	if err := <-ended; !os.IsTimeout(err) {
		t.Errorf("with a deadline that has passed: %v", err)
	}
	if _, early := takeConn(guarded, nil); string(early) != "early" {
		t.Errorf("%q is left", early)
	}
	guarded, ended = held()
	_ = guarded.Close()
	if err := <-ended; err == nil {
		t.Error("a closed connection was read")
	}
}

func TestShutdownDoesNotWaitForAHeadThatIsNotWhole(t *testing.T) {
	s := startGuarded(t, headOptions{})
	c := s.dial(t)
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: gw\r\n\r\n")
	_, _ = http.ReadResponse(bufio.NewReader(c), nil)
	_, _ = io.WriteString(c, "GET /half")
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}
