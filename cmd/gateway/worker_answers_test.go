package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sluice/internal/worker/sample"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// counted is a listener that does one thing to whoever comes, and counts them.
func counted(t *testing.T, serve func(net.Conn)) (address string, n *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n = new(atomic.Int64)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			n.Add(1)
			all.Go(func() {
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(2 * bound))
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		all.Wait()
	})
	return listener.Addr().String(), n
}

// What a worker's answer points to is the caller's to follow: the gateway goes
// nowhere by itself.
func TestWhatAnAnswerPointsToIsNotFollowed(t *testing.T) {
	t.Parallel()
	trap, caught := counted(t, func(net.Conn) {})
	pointers := http.Header{
		"Alt-Svc": {fmt.Sprintf(`h2="%s", h3=":443"; ma=86400`, trap)}, "Link": {fmt.Sprintf("<http://%s/style.css>; rel=preload", trap)},
		"Location": {"http://" + trap + "/elsewhere"}, "Content-Location": {"http://" + trap + "/"}, "Refresh": {"0; url=http://" + trap + "/"},
	}
	rest := sample.New(document("wrk-a", "plg-a", "g1"))
	rest.Misbehave(sample.Faults{Header: pointers})
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if code, err := strconv.Atoi(r.Header.Get("X-Answer")); err == nil {
			for name, values := range pointers {
				w.Header()[name] = values
			}
			w.WriteHeader(code)
			return
		}
		rest.ServeHTTP(w, r)
	}))
	t.Cleanup(worker.Close)
	s := newScene(t)
	s.put("worker", "wrk-a", fmt.Sprintf(`{"id": "wrk-a", "pluginId": "plg-a", "url": %q, "revision": 2}`, worker.URL))
	s.start()
	for range 2 { // what the first answer said would be used by the second
		conn, answer, err := s.connect("alice", "lease-1")
		if err != nil || answer.StatusCode != 101 {
			t.Fatalf("answered %v, %v", answer, err)
		}
		_ = conn.CloseNow()
		for _, code := range []int{200, 201, 300, 301, 302, 303, 307, 308, 401, 503} {
			answer := s.do("POST", "alice", "/v1/leases/lease-1/execute", "x", "X-Answer", strconv.Itoa(code))
			if answer.StatusCode != code || answer.Header.Get("Location") != pointers.Get("Location") {
				t.Errorf("%d became %d %v", code, answer.StatusCode, answer.Header)
			}
			upgrade := s.get("alice", "/v1/leases/lease-1/duplex", append([]string{"X-Answer", strconv.Itoa(code)}, handshakeHeaders...)...)
			if upgrade.StatusCode != code {
				t.Errorf("to an upgrade %d became %d", code, upgrade.StatusCode)
			}
		}
	}
	if n := caught.Load(); n != 0 {
		t.Errorf("%d connections were made elsewhere", n)
	}
}

// A worker in trouble is asked once, for each decision; no other worker is.
func TestAWorkerInTroubleIsNotAskedTwiceNorAnother(t *testing.T) {
	t.Parallel()
	head := func(c net.Conn) *http.Request {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return nil
		}
		_, _ = io.Copy(io.Discard, r.Body)
		return r
	}
	reset := func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }
	troubles := map[string]struct {
		serve  func(net.Conn)
		status int
	}{
		"resets":      {func(c net.Conn) { head(c); reset(c) }, 502},
		"hangs-up":    {func(c net.Conn) { head(c) }, 502},
		"babbles":     {func(c net.Conn) { head(c); _, _ = io.WriteString(c, "what?\r\n\r\n") }, 502},
		"is-silent":   {func(c net.Conn) { head(c); _, _ = io.Copy(io.Discard, c) }, 504},
		"half-a-head": {func(c net.Conn) { head(c); _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX-"); reset(c) }, 502},
	}
	s := newScene(t)
	static, seen := "", map[string]*atomic.Int64{}
	for name, trouble := range troubles {
		address, n := counted(t, trouble.serve)
		seen[name] = n
		static += fmt.Sprintf(`{id: %s, pluginId: plg-a, url: "http://%s", methods: [environmentExecute, duplexChannelOpen, duplexChannelWrite, duplexChannelStop, duplexChannelClose]}, `, name, address)
		s.lease("lease-"+name, fields{"pin": pinned(name, "plg-a")})
	}
	s.start(fmt.Sprintf(`workers: {link: static, handshake_timeout: 1s, static: [%s{id: wrk-a, pluginId: plg-a, url: %q, methods: [environmentExecute]}]}`, static, s.url))
	for name, trouble := range troubles {
		asked := int64(0)
		for _, route := range []string{"duplex", "execute"} {
			path := "/v1/leases/lease-" + name + "/" + route
			if route == "execute" && trouble.status == 504 {
				continue // a command may take its time
			}
			var answer *http.Response
			if route == "duplex" {
				answer = s.get("alice", path, handshakeHeaders...)
			} else {
				answer = s.do("POST", "alice", path, "once and no more")
			}
			if p := readProblem(t, answer); answer.StatusCode != trouble.status || !p.Retryable {
				t.Errorf("%s, %s: answered %d %+v", name, route, answer.StatusCode, p)
			}
			if asked++; seen[name].Load() != asked {
				t.Errorf("%s, %s: asked %d times, not %d", name, route, seen[name].Load(), asked)
			}
		}
	}
	if counts := s.worker.Counts(); counts.Connections != 0 {
		t.Errorf("another worker was contacted: %+v", counts)
	}
}

// A body that is too large, or that nobody asked for, is refused before the
// worker hears of it, and costs the gateway nothing.
func TestALargeBodyOfWhoeverMayNotSendItCostsNothing(t *testing.T) {
	t.Parallel()
	const large = 4 << 20
	s := newScene(t)
	s.lease("lease-globex", fields{"tenantId": "globex"})
	s.start()
	memory := func() float64 {
		n, err := strconv.ParseFloat(s.metric("process_resident_memory_bytes"), 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before, counts := memory(), s.worker.Counts()
	body := "a=" + strings.Repeat("b", large)
	for name, row := range map[string]struct {
		head   string
		status []int
	}{
		"nobody's form":             {"POST /v1/leases/lease-1/execute HTTP/1.1\r\nHost: g\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n", []int{401, 413}},
		"a form into a foreign one": {"POST /v1/leases/lease-globex/execute HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer token-of-alice\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n", []int{403, 413}},
		"a form to a handshake":     {"GET /v1/leases/lease-1/duplex HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer token-of-alice\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nContent-Length: %d\r\n\r\n", []int{400, 413}},
		"a form to nowhere":         {"POST /nowhere HTTP/1.1\r\nHost: g\r\nContent-Length: %d\r\n\r\n", []int{404, 413}},
	} {
		for range 8 {
			conn, err := net.Dial("tcp", s.address)
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.SetDeadline(time.Now().Add(2 * bound))
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				_, _ = fmt.Fprintf(conn, row.head, len(body))
				_, _ = io.WriteString(conn, body)
			}()
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			} else if !slices.Contains(row.status, answer.StatusCode) || !answer.Close {
				t.Errorf("%s: answered %d %v", name, answer.StatusCode, answer.Header)
			}
			_ = conn.Close()
			<-sent
		}
	}
	if grown := memory() - before; grown > 64<<20 {
		t.Errorf("the gateway grew by %.0f bytes", grown)
	}
	if after := s.worker.Counts(); after != counts {
		t.Errorf("the worker was touched: %+v, before %+v", after, counts)
	}
}

// late is a gRPC worker that says when a call, and its first message, came.
type late struct {
	testpb.UnimplementedTestServiceServer
	came chan time.Time
	said chan time.Time
}

func (l *late) FullDuplexCall(stream testpb.TestService_FullDuplexCallServer) error {
	l.came <- time.Now()
	in, err := stream.Recv()
	if err != nil {
		return err
	}
	l.said <- time.Now()
	return stream.Send(&testpb.StreamingOutputCallResponse{Payload: in.Payload})
}

// A call is judged by its head: whether the caller has sent a message, and still
// may, the worker hears nothing before the allow and nothing at all without it;
// and who may not know of a lease hears the same of one that is not there.
func TestACallIsJudgedBeforeItsMessages(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var connections atomic.Int64
	service := &late{came: make(chan time.Time, 10), said: make(chan time.Time, 10)}
	worker := grpc.NewServer()
	testpb.RegisterTestServiceServer(worker, service)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = worker.Serve(countedListener{listener, &connections})
	}()
	t.Cleanup(func() {
		worker.Stop()
		<-served
	})
	s := newScene(t)
	s.lease("lease-foreign", fields{"tenantId": "globex"})
	s.lease("lease-denied", fields{"capabilities": fields{}})
	s.put("lease", "lease-malformed", "{")
	s.start(lifeRoutes, fmt.Sprintf(`workers: {link: static, static: [{id: wrk-a, pluginId: plg-a, url: "http://%s", methods: [environmentExecute, duplexChannelOpen, duplexChannelWrite, duplexChannelStop, duplexChannelClose]}]}`, listener.Addr()))
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	call := func(lease string) (string, ending, metadata.MD) {
		t.Helper()
		ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer token-of-alice", "x-lease", lease), bound)
		defer cancel()
		stream, err := testpb.NewTestServiceClient(conn).FullDuplexCall(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&testpb.StreamingOutputCallRequest{Payload: &testpb.Payload{Body: []byte("early")}})
		out, err := stream.Recv() // the sending side stays open
		if err == nil {
			return string(out.Payload.Body), ending{}, nil
		}
		header, _ := stream.Header()
		md := metadata.Join(header, stream.Trailer())
		return "", callEnding(err), md
	}
	var seen []string
	for _, lease := range []string{"lease-missing", "lease-malformed", "lease-foreign", "lease-denied"} {
		_, e, md := call(lease)
		if e.status != 7 || e.code != duplexDenied || e.decision == "" {
			t.Errorf("%s: ended with %+v", lease, e)
		}
		reason := s.decision(e.decision).Result.Reason
		delete(md, "date")
		delete(md, "grpc-status-details-bin") // which holds the decision's id, and was looked at above
		seen = append(seen, fmt.Sprint(md, status.Convert(e.err).Message()))
		t.Logf("%s was refused for %s", lease, reason)
	}
	if len(slices.Compact(seen)) != 1 {
		t.Errorf("the answers differ:\n%s", strings.Join(seen, "\n"))
	}
	if n := connections.Load(); n != 0 {
		t.Errorf("for the refused the worker was contacted %d times", n)
	}
	word, e, _ := call("lease-1")
	if word != "early" {
		t.Fatalf("heard %q, %+v", word, e)
	}
	allowed := s.recorded(func(e event) bool {
		return e.Result != nil && e.Result.Allow && e.Custom.Sluice.Lease == "lease-1" && e.Custom.Sluice.Phase == "open"
	}).At
	if came, said := <-service.came, <-service.said; came.Before(allowed) || said.Before(came) {
		t.Errorf("allowed at %v, the call came at %v, its message at %v", allowed, came, said)
	}
}

// countedListener counts connections.
type countedListener struct {
	net.Listener
	n *atomic.Int64
}

func (l countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.n.Add(1)
	}
	return c, err
}
