package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sluice/internal/worker/sample"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
)

// workerProcess is a sandbox worker in a process of its own: one port with its
// live document, WebSockets that echo, an endless stream of numbers, and a
// gRPC service that echoes.
type workerProcess struct {
	t       testing.TB
	url     string
	cmd     *exec.Cmd
	mu      sync.Mutex
	orders  io.WriteCloser
	reports *bufio.Scanner
}

// order is what a worker's process is told on its standard input, one JSON a
// line. It answers every order with a report, and ends when there are no more.
type order struct {
	Do       string // update, drop, misbehave, leave, report
	Document sample.Document
	Faults   sample.Faults
}

type report struct {
	Address string
	Active  map[string]int // conversations, by lease
}

// startWorker starts a worker's process at an address, "127.0.0.1:0" being any.
func startWorker(t testing.TB, address string, doc sample.Document) *workerProcess {
	t.Helper()
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	w := &workerProcess{t: t, cmd: exec.Command(os.Args[0])}
	w.cmd.Env = append(os.Environ(), "SLUICE_TEST_WORKER="+string(text), "SLUICE_TEST_ADDRESS="+address)
	w.cmd.Stderr = os.Stderr
	if w.orders, err = w.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.reports = bufio.NewScanner(out)
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.kill() })
	w.url = "http://" + w.read().Address
	return w
}

func (w *workerProcess) read() (r report) {
	w.t.Helper()
	if !w.reports.Scan() {
		w.t.Fatalf("the worker's process does not answer: %v", w.reports.Err())
	}
	if err := json.Unmarshal(w.reports.Bytes(), &r); err != nil {
		w.t.Fatalf("the worker's process answers %q", w.reports.Bytes())
	}
	return r
}

func (w *workerProcess) tell(o order) report {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := json.NewEncoder(w.orders).Encode(o); err != nil {
		w.t.Fatal(err)
	}
	return w.read()
}

func (w *workerProcess) update(doc sample.Document) { w.tell(order{Do: "update", Document: doc}) }

// leave gives up the port and keeps the conversations, as a process does that
// another one replaces.
func (w *workerProcess) leave() { w.tell(order{Do: "leave"}) }

func (w *workerProcess) active(lease string) int { return w.tell(order{Do: "report"}).Active[lease] }

func (w *workerProcess) signal(s syscall.Signal) {
	w.t.Helper()
	if err := w.cmd.Process.Signal(s); err != nil {
		w.t.Fatal(err)
	}
}

func (w *workerProcess) kill() {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
}

// workerMain is the other side: the process.
func workerMain() int {
	var doc sample.Document
	if err := json.Unmarshal([]byte(os.Getenv("SLUICE_TEST_WORKER")), &doc); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	listener, err := net.Listen("tcp", os.Getenv("SLUICE_TEST_ADDRESS"))
	for tries := 0; errors.Is(err, syscall.EADDRINUSE) && tries < 200; tries++ { // a port that another process had may not be free at once
		time.Sleep(50 * time.Millisecond)
		listener, err = net.Listen("tcp", os.Getenv("SLUICE_TEST_ADDRESS"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	w := newServedWorker(doc, listener)
	go func() { _ = w.server.Serve(listener) }()
	w.obey(os.Stdin, os.Stdout)
	return 0
}

// servedWorker is a sample worker that speaks gRPC too and counts who is
// there.
type servedWorker struct {
	*sample.Worker
	calls    http.Handler
	server   *http.Server
	listener net.Listener

	mu     sync.Mutex
	active map[string]int // by lease
}

func newServedWorker(doc sample.Document, listener net.Listener) *servedWorker {
	calls := grpc.NewServer()
	testpb.RegisterTestServiceServer(calls, echoService{})
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	w := &servedWorker{Worker: sample.New(doc), calls: calls, listener: listener, active: map[string]int{}}
	w.server = &http.Server{Handler: w, Protocols: protocols, ReadHeaderTimeout: 10 * time.Second}
	return w
}

func (w *servedWorker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if lease := r.Header.Get("Sluice-Lease-Id"); lease != "" {
		w.count(lease, 1)
		defer w.count(lease, -1)
	}
	if wait, err := strconv.Atoi(r.Header.Get("X-Delay")); err == nil {
		time.Sleep(time.Duration(wait) * time.Microsecond)
	}
	switch {
	case r.ProtoMajor == 2:
		w.calls.ServeHTTP(rw, r)
	case strings.HasSuffix(r.URL.Path, "/output"):
		serveNumbers(rw, r)
	default:
		w.Worker.ServeHTTP(rw, r)
	}
}

func (w *servedWorker) count(lease string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.active[lease] += n
}

func (w *servedWorker) there(lease string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.active[lease] > 0
}

// idle says whether nobody is there.
func (w *servedWorker) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.active {
		if n != 0 {
			return false
		}
	}
	return true
}

func (w *servedWorker) obey(orders io.Reader, out io.Writer) {
	reports := json.NewEncoder(out)
	answer := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		_ = reports.Encode(report{Address: w.listener.Addr().String(), Active: maps.Clone(w.active)})
	}
	answer()
	for lines := json.NewDecoder(orders); ; answer() {
		var o order
		if err := lines.Decode(&o); err != nil {
			return
		}
		switch o.Do {
		case "update":
			w.Update(func(d *sample.Document) { *d = o.Document })
		case "misbehave":
			w.Misbehave(o.Faults)
		case "leave":
			_ = w.listener.Close()
			w.DropStreams()
		case "drop":
			w.DropStreams()
		}
	}
}

// serveNumbers counts in server-sent events until the caller leaves.
func serveNumbers(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(rw)
	for n := 0; r.Context().Err() == nil; n++ {
		fmt.Fprintf(rw, "data: %s\n\n", spoken(int64(n)))
		if out.Flush() != nil {
			return
		}
		time.Sleep(pace)
	}
}

// echoService answers every message of a call with itself.
type echoService struct {
	testpb.UnimplementedTestServiceServer
}

func (echoService) FullDuplexCall(stream testpb.TestService_FullDuplexCallServer) error {
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(&testpb.StreamingOutputCallResponse{Payload: in.Payload}); err != nil {
			return err
		}
	}
}
