package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sluice/internal/authz"
	"sluice/internal/worker/sample"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// The test binary is the gateway too, and a worker: a scene runs each as a
// process of its own, as its users do.
func TestMain(m *testing.M) {
	if os.Getenv("SLUICE_TEST_WORKER") != "" {
		os.Exit(workerMain())
	}
	if worker := os.Getenv("SLUICE_BENCH_HTTPUTIL"); worker != "" {
		os.Exit(httputilMain(worker))
	}
	if os.Getenv("SLUICE_TEST_GATEWAY") != "" {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// gatewayCommand is a command of the gateway as a process.
func gatewayCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), "SLUICE_TEST_GATEWAY=1")
	return cmd
}

// scene is a gateway process in front of a real worker, with records, tokens
// and a configuration of its own.
type scene struct {
	t      testing.TB
	dir    string
	worker *sample.Worker
	url    string // the worker's
	cmd    *exec.Cmd
	exited chan error
	killed atomic.Bool // by the test, at its end

	address, probes, admin string

	limit     string // shell commands before the gateway starts
	forget    bool   // decisions are not kept
	mu        sync.Mutex
	decisions []event
	stdout    bytes.Buffer // the decision log as it was written
	log       bytes.Buffer // standard error
}

// event is a line of the decision log, as far as tests look at it.
type event struct {
	ID     string    `json:"decision_id"`
	Path   string    `json:"path"`
	At     time.Time `json:"timestamp"`
	Result *struct {
		Allow  bool         `json:"allow"`
		Code   authz.Code   `json:"code"`
		Reason authz.Reason `json:"reason"`
	} `json:"result"`
	Custom struct {
		Sluice struct {
			Phase     string       `json:"phase"`
			ChannelID string       `json:"channel_id"`
			AgeMS     *int64       `json:"snapshot_age_ms"`
			Fault     string       `json:"fault"`
			Reason    authz.Reason `json:"reason"`
			Lease     string       `json:"lease"`
			Effective []string     `json:"effective"`
			Ended     *struct {
				Why              string `json:"why"`
				CloseCode        int    `json:"close_code"`
				Opened           bool   `json:"opened"`
				LastDecisionID   string `json:"last_decision_id"`
				DurationMS       int64  `json:"duration_ms"`
				MessagesToWorker int64  `json:"messages_to_worker"`
				MessagesToCaller int64  `json:"messages_to_caller"`
				BytesToWorker    int64  `json:"bytes_to_worker"`
				BytesToCaller    int64  `json:"bytes_to_caller"`
			} `json:"ended"`
		} `json:"sluice"`
	} `json:"custom"`
}

// newScene writes the records of a lease that is granted everything, for alice
// of acme, and starts a worker. The gateway starts with start.
func newScene(t testing.TB) *scene {
	t.Helper()
	s := &scene{t: t, dir: t.TempDir()}
	s.worker = sample.New(sample.Document{
		ID: "wrk-a", PluginID: "plg-a", Status: "running", Generation: "g1", SupportedMethods: sample.AllMethods,
	})
	s.url = serveWorker(t, s.worker)
	s.token("alice", "acme", "")
	s.token("bob", "globex", "")
	s.put("control", "", `{"duplexEnabled": true, "suspendedTenants": [], "revision": 1}`)
	s.put("plugin", "plg-a", `{"id": "plg-a", "status": "ready", "revision": 1, "environmentDrivers": [{"driverKey": "box", "kind": "sandbox_provider", "sandboxCapabilities": {
		"duplexCommandStream": true, "incrementalSessionOutput": true, "concurrentSyncOperations": true, "runnerWebSocketIngress": true}}]}`)
	s.put("worker", "wrk-a", fmt.Sprintf(`{"id": "wrk-a", "pluginId": "plg-a", "url": %q, "revision": 1}`, s.url))
	s.lease("lease-1", nil)
	s.lease("lease-2", nil)
	return s
}

// serveWorker runs a worker until the test ends and returns its URL.
func serveWorker(t testing.TB, w *sample.Worker) string {
	t.Helper()
	server, err := sample.Listen("127.0.0.1:0", w)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return server.URL()
}

// fields are a record's fields that a test sets; a nil value removes one.
type fields map[string]any

func (s *scene) leaseText(id string, change fields) string {
	s.t.Helper()
	lease := fields{
		"id": id, "tenantId": "acme", "status": "active", "provider": "box", "providerLeaseId": "sbx-" + id, "configResolution": "ok",
		"leasePolicy":  "reuse_by_environment",
		"pin":          fields{"driver": "sandbox", "pluginId": "plg-a", "driverKey": "box", "workerId": "wrk-a"},
		"capabilities": fields{"duplexCommandStream": true, "incrementalSessionOutput": true, "concurrentSyncOperations": true, "runnerWebSocketIngress": true},
		"metadata":     fields{"sandboxProviderPlugin": true},
		"revision":     1,
	}
	for name, value := range change {
		if lease[name] = value; value == nil {
			delete(lease, name)
		}
	}
	text, err := json.Marshal(lease)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

func (s *scene) lease(id string, change fields) {
	s.t.Helper()
	s.put("lease", id, s.leaseText(id, change))
}

// put writes a record into the file store, by rename.
func (s *scene) put(kind, id, text string) {
	s.t.Helper()
	name := kind + "." + id + ".json"
	if kind == "control" {
		name = "control.json"
	}
	s.write(filepath.Join("records", name), text)
}

func (s *scene) write(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		s.t.Fatal(err)
	}
}

// token adds name's token, which is "token-of-<name>", to the tokens file.
func (s *scene) token(name, tenant, expires string) {
	s.t.Helper()
	sum := sha256.Sum256([]byte("token-of-" + name))
	entry := fmt.Sprintf("- {name: %q, tenantId: %q, sha256: %s", name, tenant, hex.EncodeToString(sum[:]))
	if expires != "" {
		entry += fmt.Sprintf(", expiresAt: %q", expires)
	}
	before, _ := os.ReadFile(filepath.Join(s.dir, "tokens.yaml"))
	s.write("tokens.yaml", string(before)+entry+"}\n")
}

// start starts the gateway with further lines of configuration and waits until
// it is ready.
func (s *scene) start(config ...string) *scene {
	s.t.Helper()
	s.run(config...)
	s.eventually("the gateway is ready", func() bool {
		answer, err := http.Get("http://" + s.probes + "/readyz")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == 200
	})
	return s
}

// run starts the gateway and returns when it listens.
func (s *scene) run(config ...string) {
	s.t.Helper()
	s.configure(config...)
	s.cmd = gatewayCommand(context.Background(), "serve", "-c", filepath.Join(s.dir, "gateway.yaml"))
	if s.limit != "" {
		s.cmd.Args = append([]string{"sh", "-c", s.limit + `exec "$0" "$@"`, s.cmd.Path}, s.cmd.Args[1:]...)
		s.cmd.Path = "/bin/sh"
	}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.exited = make(chan error, 1)
	serving := make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() { s.readDecisions(stdout) })
	readers.Go(func() { s.readLog(stderr, serving) })
	cmd, exited := s.cmd, s.exited
	go func() {
		readers.Wait()
		exited <- cmd.Wait()
		close(exited)
	}()
	s.t.Cleanup(func() {
		s.killed.Store(true)
		_ = cmd.Process.Kill()
		<-exited
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, disaster := range []string{"DATA RACE", "panic: ", "fatal error: "} {
			if strings.Contains(s.log.String(), disaster) {
				s.t.Errorf("the gateway's log holds a %s", disaster)
			}
		}
		if s.t.Failed() {
			s.t.Logf("the gateway's log:\n%s", s.log.Bytes())
		}
	})
	select {
	case <-serving:
	case <-time.After(30 * time.Second):
		s.t.Fatal("the gateway does not serve")
	}
}

// configure writes the configuration. A line given replaces the scene's own
// section of the same name.
func (s *scene) configure(config ...string) {
	lines := []string{
		`listen: {address: "127.0.0.1:0"}`, `probes: {address: "127.0.0.1:0"}`, `admin: {address: "127.0.0.1:0", token_file: admin.token}`,
		`store: {file: {dir: records}}`, `identity: {tokens_file: tokens.yaml}`,
		`channels: {drain_delay: 100ms, drain_timeout: 5s, revocation_bound: 5s}`,
		// The machine of a test may be busy, and is not what is tested.
		`evaluation: {timeout: 10s}`,
	}
	text := ""
	for _, line := range lines {
		section, _, _ := strings.Cut(line, ":")
		if !slicesContainsPrefix(config, section+":") {
			text += line + "\n"
		}
	}
	s.write("admin.token", "token-of-the-operator")
	s.write("gateway.yaml", text+strings.Join(config, "\n")+"\n")
}

func slicesContainsPrefix(list []string, prefix string) bool {
	for _, s := range list {
		if strings.HasPrefix(s, prefix) {
			return true
		}
	}
	return false
}

func (s *scene) readDecisions(r io.Reader) {
	lines := bufio.NewReaderSize(r, 1<<20)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil && s.killed.Load() {
			return // the test's own kill may have come inside a line
		}
		if err == io.EOF && len(line) == 0 {
			return
		}
		var e event
		if err = errors.Join(err, json.Unmarshal(line, &e)); err != nil {
			s.t.Errorf("standard output holds no JSON line: %q: %v", line, err)
			_, _ = io.Copy(io.Discard, r)
			return
		}
		if s.forget {
			continue
		}
		s.mu.Lock()
		s.stdout.Write(line)
		s.decisions = append(s.decisions, e)
		s.mu.Unlock()
	}
}

func (s *scene) readLog(r io.Reader, serving chan struct{}) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var entry struct{ Msg, Address, Probes, Admin string }
		_ = json.Unmarshal(lines.Bytes(), &entry)
		s.mu.Lock()
		s.log.Write(append(lines.Bytes(), '\n'))
		if entry.Msg == "serving" {
			s.address, s.probes, s.admin = entry.Address, entry.Probes, entry.Admin
			close(serving)
		}
		s.mu.Unlock()
	}
}

// logged waits for words in the gateway's log.
func (s *scene) logged(words string) {
	s.t.Helper()
	s.eventually("the log says "+words, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return strings.Contains(s.log.String(), words)
	})
}

func (s *scene) eventually(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("it never came about that %s", what)
		}
	}
}

// decision waits for the record of a decision.
func (s *scene) decision(id string) event {
	return s.recorded(func(e event) bool { return e.ID == id })
}

// ended waits for the record of the end of a lease's channel.
func (s *scene) ended(lease string) event {
	return s.recorded(func(e event) bool { return e.Custom.Sluice.Ended != nil && e.Custom.Sluice.Lease == lease })
}

func (s *scene) recorded(match func(event) bool) (found event) {
	s.t.Helper()
	s.eventually("the decision is in the log", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, e := range s.decisions {
			if match(e) {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

// countRecorded is how many records of now match.
func (s *scene) countRecorded(match func(event) bool) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.decisions {
		if match(e) {
			n++
		}
	}
	return n
}

// bearer is the header of a caller.
func bearer(name string) http.Header {
	return http.Header{"Authorization": {"Bearer token-of-" + name}}
}

// connect opens a duplex channel as a caller; a refusal is its answer.
func (s *scene) connect(caller, lease string) (*websocket.Conn, *http.Response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return websocket.Dial(ctx, "ws://"+s.address+"/v1/leases/"+lease+"/duplex", &websocket.DialOptions{HTTPHeader: bearer(caller)})
}

// open opens a duplex channel that must open, and echoes once. The store has
// 450 ms for a lease that is not held yet; where a busy machine takes longer, it
// is asked for again.
func (s *scene) open(caller, lease string) *websocket.Conn {
	s.t.Helper()
	conn, answer, err := s.connect(caller, lease)
	for deadline := time.Now().Add(bound); isUnavailable(answer, err) && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		conn, answer, err = s.connect(caller, lease)
	}
	if err != nil {
		body := []byte{}
		if answer != nil {
			body, _ = io.ReadAll(answer.Body)
		}
		s.t.Fatalf("the channel into %s did not open: %v %s", lease, err, body)
	}
	s.t.Cleanup(func() { _ = conn.CloseNow() })
	s.echo(conn, "hello")
	return conn
}

// isUnavailable says whether an open was refused because it could not be
// authorized just now. The answer can still be read.
func isUnavailable(answer *http.Response, err error) bool {
	if err == nil || answer == nil || answer.StatusCode != http.StatusServiceUnavailable {
		return false
	}
	body, _ := io.ReadAll(answer.Body)
	answer.Body = io.NopCloser(bytes.NewReader(body))
	return bytes.Contains(body, []byte(`"AUTHORIZATION_UNAVAILABLE"`))
}

func (s *scene) echo(conn *websocket.Conn, word string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := conn.Write(ctx, websocket.MessageText, []byte(word)); err != nil {
		s.t.Fatalf("writing into a channel: %v", err)
	}
	if _, got, err := conn.Read(ctx); err != nil || string(got) != word {
		s.t.Fatalf("wrote %q into a channel, read %q, %v", word, got, err)
	}
}

// problem is the body of a refusal.
type problem struct {
	Type, Title, Code, Detail string
	Status                    int
	DecisionID                string `json:"decision_id"`
	Retryable                 bool
}

// refused is the refusal of a duplex channel.
func (s *scene) refused(caller, lease string) (problem, *http.Response) {
	s.t.Helper()
	conn, answer, err := s.connect(caller, lease)
	if err == nil {
		_ = conn.CloseNow()
		s.t.Fatalf("the channel into %s opened", lease)
	}
	if answer == nil {
		s.t.Fatalf("the channel into %s was refused without an answer: %v", lease, err)
	}
	return readProblem(s.t, answer), answer
}

func readProblem(t testing.TB, answer *http.Response) problem {
	t.Helper()
	defer answer.Body.Close()
	var p problem
	body, _ := io.ReadAll(answer.Body)
	if err := json.Unmarshal(body, &p); err != nil || answer.Header.Get("Content-Type") != "application/problem+json" || p.Status != answer.StatusCode {
		t.Fatalf("answered %d %v %s", answer.StatusCode, answer.Header, body)
	}
	return p
}

// closed waits for the close frame of a channel that was told to end.
func closed(t testing.TB, conn *websocket.Conn) websocket.CloseError {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*bound)
	defer cancel()
	for {
		_, _, err := conn.Read(ctx)
		if err == nil {
			continue
		}
		var e websocket.CloseError
		if status := websocket.CloseStatus(err); status == -1 {
			t.Fatalf("the channel ended without a close frame: %v", err)
		}
		e, _ = asCloseError(err)
		return e
	}
}

func asCloseError(err error) (websocket.CloseError, bool) {
	for ; err != nil; err = unwrapped(err) {
		if e, ok := err.(websocket.CloseError); ok {
			return e, true
		}
	}
	return websocket.CloseError{}, false
}

func unwrapped(err error) error {
	if u, ok := err.(interface{ Unwrap() error }); ok {
		return u.Unwrap()
	}
	return nil
}

// operator asks the admin listener.
func (s *scene) operator(method, path, body string, header ...string) (int, http.Header, string) {
	s.t.Helper()
	r, err := http.NewRequest(method, "http://"+s.admin+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer token-of-the-operator")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, answer.Header, string(text)
}

// get asks the data plane.
func (s *scene) get(caller, path string, header ...string) *http.Response {
	s.t.Helper()
	return s.do(http.MethodGet, caller, path, "", header...)
}

func (s *scene) do(method, caller, path, body string, header ...string) *http.Response {
	s.t.Helper()
	r, err := http.NewRequest(method, "http://"+s.address+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if caller != "" {
		r.Header = bearer(caller)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { answer.Body.Close() })
	return answer
}

func (s *scene) metrics() string {
	s.t.Helper()
	answer, err := http.Get("http://" + s.probes + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return string(text)
}

// metric is the value of a metric's line that begins with prefix.
func (s *scene) metric(prefix string) string {
	s.t.Helper()
	return metricIn(s.metrics(), prefix)
}

func metricIn(metrics, prefix string) string {
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, prefix) {
			return strings.TrimSpace(line[strings.LastIndexByte(line, ' '):])
		}
	}
	return ""
}

// term tells the gateway to end and returns its exit code.
func (s *scene) term() int {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	select {
	case <-s.exited:
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(30 * time.Second):
		s.t.Fatal("the gateway does not end")
		return -1
	}
}

// freePort is a port of loopback that nobody listens on, and that neither the
// system nor this function gives to anybody else meanwhile: it lies below those
// that the system hands out by itself.
func freePort(t testing.TB) string {
	t.Helper()
	for range 1000 {
		port := fmt.Sprint(30000 + (os.Getpid()*97+int(portsGiven.Add(1)))%2700)
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			continue
		}
		_ = l.Close()
		return port
	}
	t.Fatal("no free port")
	return ""
}

var portsGiven atomic.Int64
