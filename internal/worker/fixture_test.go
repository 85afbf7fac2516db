package worker_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sluice/internal/authz"
	"sluice/internal/snapshot"
	"sluice/internal/worker"
	"sluice/internal/worker/sample"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait for something that must happen.
const patience = 10 * time.Second

func eventually(t *testing.T, what string, true func() bool) {
	t.Helper()
	for until := time.Now().Add(patience); !true(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("it did not come about that %s", what)
		}
	}
}

// rig is running links and what they said.
type rig struct {
	*worker.Links
	t       *testing.T
	mu      sync.Mutex
	changes []string
	stop    func()
}

func start(t *testing.T, o worker.Options) *rig {
	t.Helper()
	r := &rig{t: t}
	if o.Dialer == nil {
		o.Dialer = newDialer(t, worker.DialerOptions{})
	}
	if o.Decode == nil {
		o.Decode = snapshot.DecodeLive
	}
	o.OnChange = func(id string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.changes = append(r.changes, id)
	}
	var err error
	if r.Links, err = worker.New(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.stop)
	eventually(t, "the links run", r.Running)
	return r
}

func (r *rig) changed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.changes)
}

// ask returns the document that an open gets, as the authorizer does: what is
// live, or what the worker answers.
func (r *rig) ask(req *authz.Request, w *authz.Record) (*authz.Live, error) {
	if live := r.Live(req, w); live != nil {
		return live, nil
	}
	return r.Ask(r.t.Context(), req, w)
}

func (r *rig) mustAsk(w *authz.Record) *authz.Live {
	r.t.Helper()
	live, err := r.ask(open(), w)
	if err != nil {
		r.t.Fatal(err)
	}
	return live
}

func (r *rig) status(id string) worker.Status {
	for _, st := range r.Status() {
		if st.Worker == id {
			return st
		}
	}
	return worker.Status{}
}

func open() *authz.Request { return &authz.Request{Phase: authz.Open} }

func channelOf(phase authz.Phase, live *authz.Live) *authz.Request {
	return &authz.Request{Phase: phase, Channel: &authz.ChannelFacts{
		ID: "channel", WorkerID: live.ID, Generation: live.Generation,
	}}
}

func workerRecord(id, url string) *authz.Record {
	return &authz.Record{Kind: authz.KindWorker, ID: id, PluginID: "plugin-1", URL: url}
}

func document() sample.Document {
	return sample.Document{
		ID: "worker-1", PluginID: "plugin-1", Status: "running", Generation: "g1",
		SupportedMethods: sample.AllMethods,
	}
}

// served is a sample worker on a socket that can be taken away and given back.
type served struct {
	*sample.Worker
	t       *testing.T
	address string
	stop    func()
}

func serveSample(t *testing.T) *served {
	t.Helper()
	s := &served{Worker: sample.New(document()), t: t, address: "127.0.0.1:0"}
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

func (s *served) start() {
	s.t.Helper()
	server, err := sample.Listen(s.address, s.Worker)
	if err != nil {
		s.t.Fatal(err)
	}
	s.address = server.Address()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	})
}

func (s *served) record() *authz.Record { return workerRecord("worker-1", "http://"+s.address) }

// serveHandler serves h, for workers that no sample worker would be.
func serveHandler(t *testing.T, h http.HandlerFunc) *authz.Record {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return workerRecord("worker-1", server.URL)
}

// serveBytes answers every connection with raw once a request came, and keeps
// it open until the other end leaves.
func serveBytes(t *testing.T, raw string) *authz.Record {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				buffer := make([]byte, 4096)
				if _, err := c.Read(buffer); err != nil {
					return
				}
				_, _ = c.Write([]byte(raw))
				_, _ = c.Read(buffer)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	return workerRecord("worker-1", "http://"+l.Addr().String())
}
