package sample_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sluice/internal/worker/sample"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func document() sample.Document {
	return sample.Document{
		ID: "worker-1", PluginID: "plugin-1", Status: "running", Generation: "g1",
		SupportedMethods: sample.AllMethods,
	}
}

// serve runs a worker for the length of the test.
func serve(t *testing.T) (*sample.Worker, *sample.Server) {
	t.Helper()
	w := sample.New(document())
	s, err := sample.Listen("127.0.0.1:0", w)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return w, s
}

var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func get(t *testing.T, url string, header ...string) *http.Response {
	t.Helper()
	return do(t, http.MethodGet, url, "", header...)
}

func do(t *testing.T, method, url, body string, header ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

func text(t *testing.T, r *http.Response) string {
	t.Helper()
	all, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(all)
}

func TestTheDocumentIsServedOnceAsJSON(t *testing.T) {
	w, s := serve(t)
	var got sample.Document
	if err := json.Unmarshal([]byte(text(t, get(t, s.URL()+"/v1/worker"))), &got); err != nil {
		t.Fatal(err)
	}
	if got.Generation != "g1" || w.Counts().Probes != 1 || w.Counts().Connections != 1 {
		t.Errorf("got %+v, counted %+v", got, w.Counts())
	}
}

func TestTheStreamWritesEveryChangeAndEndsWhenDropped(t *testing.T) {
	w, s := serve(t)
	response := get(t, s.URL()+"/v1/worker", "Accept", "application/x-ndjson")
	lines := bufio.NewScanner(response.Body)
	next := func() (d sample.Document) {
		if !lines.Scan() {
			t.Fatal("the stream has ended")
		}
		if err := json.Unmarshal(lines.Bytes(), &d); err != nil {
			t.Fatal(err)
		}
		return d
	}
	if d := next(); d.Status != "running" {
		t.Errorf("first line says %q", d.Status)
	}
	w.Update(func(d *sample.Document) { d.Status = "stopping" })
	if d := next(); d.Status != "stopping" {
		t.Errorf("line after the change says %q", d.Status)
	}
	w.DropStreams()
	if lines.Scan() {
		t.Errorf("another line after the drop: %s", lines.Bytes())
	}
}

func TestEchoReturnsMessagesAndSelectsItsSubprotocol(t *testing.T) {
	w, s := serve(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, s.URL()+"/v1/leases/lease-1/duplex", &websocket.DialOptions{
		HTTPClient: client, Subprotocols: []string{"other", sample.Subprotocol},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	conn.SetReadLimit(-1)
	for _, message := range []string{"hello", strings.Repeat("x", 1<<20)} {
		if err := conn.Write(ctx, websocket.MessageText, []byte(message)); err != nil {
			t.Fatal(err)
		}
		if _, back, err := conn.Read(ctx); err != nil || string(back) != message {
			t.Fatalf("%d bytes came back, error %v", len(back), err)
		}
	}
	if conn.Subprotocol() != sample.Subprotocol {
		t.Errorf("selected %q", conn.Subprotocol())
	}
	if c := w.Counts(); c.Upgrades != 1 || c.Requests != 1 {
		t.Errorf("counted %+v", c)
	}
}

func TestARequestForAnotherGenerationGets409(t *testing.T) {
	_, s := serve(t)
	for meant, want := range map[string]int{"g1": 200, "g0": 409, "static": 200, "": 200} {
		header := []string{}
		if meant != "" {
			header = []string{sample.GenerationHeader, meant}
		}
		response := do(t, http.MethodPost, s.URL()+"/v1/leases/lease-1/execute", "ls", header...)
		if response.StatusCode != want {
			t.Errorf("meant for %q: status %d", meant, response.StatusCode)
		}
	}
}

func TestExecuteEchoesAndSyncKeepsWhatItGot(t *testing.T) {
	w, s := serve(t)
	lease := s.URL() + "/v1/leases/lease-1"
	if got := text(t, do(t, http.MethodPost, lease+"/execute", "echo hi", "X-Request-Id", "r1")); got != "echo hi" {
		t.Errorf("execute answered %q", got)
	}
	if got := do(t, http.MethodPut, lease+"/sync/in", "a file").StatusCode; got != http.StatusNoContent {
		t.Errorf("sync/in answered %d", got)
	}
	if got := text(t, get(t, lease+"/sync/out")); got != "a file" {
		t.Errorf("sync/out answered %q", got)
	}
	if h := w.Heads(); len(h) != 3 || h[0].Header.Get("X-Request-Id") != "r1" || h[2].Path != "/v1/leases/lease-1/sync/out" {
		t.Errorf("recorded %+v", h)
	}
}

func TestOutputSendsItsHeadAtOnceAndThenTicks(t *testing.T) {
	_, s := serve(t)
	began := time.Now()
	response := get(t, s.URL()+"/v1/leases/lease-1/output")
	if took := time.Since(began); took > 900*time.Millisecond {
		t.Errorf("the head took %v", took)
	}
	line, err := bufio.NewReader(response.Body).ReadString('\n')
	if err != nil || line != "event: tick\n" {
		t.Errorf("first line %q, error %v", line, err)
	}
}

const handshake = "GET /v1/leases/l/duplex HTTP/1.1\r\nHost: worker\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

// shake sends a handshake and returns the answer.
func shake(t *testing.T, s *sample.Server) (*http.Response, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(conn, handshake); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	return response, reader
}

func TestFaultsOfTheHandshake(t *testing.T) {
	for name, row := range map[string]struct {
		faults sample.Faults
		status int
		want   func(*http.Response, *bufio.Reader) bool
	}{
		"none": {sample.Faults{}, 101, func(r *http.Response, _ *bufio.Reader) bool {
			return r.Header.Get("Sec-WebSocket-Accept") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
		}},
		"refusal": {sample.Faults{Refuse: 406, RefuseBody: "no"}, 406, func(r *http.Response, _ *bufio.Reader) bool {
			b, _ := io.ReadAll(r.Body)
			return string(b) == "no"
		}},
		"wrong accept": {sample.Faults{WrongAccept: true}, 101, func(r *http.Response, _ *bufio.Reader) bool {
			return r.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
		}},
		"unoffered subprotocol": {sample.Faults{Subprotocol: "evil"}, 101, func(r *http.Response, _ *bufio.Reader) bool {
			return r.Header.Get("Sec-WebSocket-Protocol") == "evil"
		}},
		"early bytes": {sample.Faults{Early: []byte("now")}, 101, func(_ *http.Response, b *bufio.Reader) bool {
			early := make([]byte, 3)
			_, err := io.ReadFull(b, early)
			return err == nil && string(early) == "now"
		}},
		"delay": {sample.Faults{Delay: 50 * time.Millisecond}, 101, func(*http.Response, *bufio.Reader) bool { return true }},
	} {
		t.Run(name, func(t *testing.T) {
			w, s := serve(t)
			w.Misbehave(row.faults)
			response, rest := shake(t, s)
			if response.StatusCode != row.status || !row.want(response, rest) {
				t.Errorf("answer %+v", response)
			}
		})
	}
}

func TestASilentWorkerAnswersNothingUntilItStops(t *testing.T) {
	w, s := serve(t)
	w.Misbehave(sample.Faults{Silent: true})
	conn, err := net.Dial("tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, handshake); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("read %d bytes, error %v", n, err)
	}
}

func TestFaultsOfTheDocument(t *testing.T) {
	w, s := serve(t)
	w.Misbehave(sample.Faults{LinkStatus: 500})
	if got := get(t, s.URL()+"/v1/worker").StatusCode; got != 500 {
		t.Errorf("status %d", got)
	}
	w.Misbehave(sample.Faults{NoStream: true})
	response := get(t, s.URL()+"/v1/worker", "Accept", "application/x-ndjson")
	if got := response.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("content type %q", got)
	}
}
