package sample

import (
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
)

// GenerationHeader names the generation that a request was meant for, and
// the one that answers it.
const GenerationHeader = "Sluice-Worker-Generation"

// Worker is a sandbox worker. It is safe for concurrent use, also of the
// calls that change it while it serves.
type Worker struct {
	state  *state
	faults atomic.Pointer[Faults]
	drop   *signal
	mux    *http.ServeMux
	files  *files

	mu     sync.Mutex
	counts Counts
	heads  []Head // the last maxHeads
}

// Counts says what a Worker was asked.
type Counts struct {
	Connections int // accepted by the Server
	Streams     int // of the live document
	Probes      int // of the live document
	Requests    int // of a lease, upgrades too
	Upgrades    int // that were answered with 101
}

// Head is the head of a request as the worker saw it.
type Head struct {
	Method, Path, Query, Host, Protocol string
	Header                              http.Header
}

const maxHeads = 64

// New returns a worker whose live document is doc.
func New(doc Document) *Worker {
	w := &Worker{state: newState(doc), drop: newSignal(), mux: http.NewServeMux(), files: newFiles()}
	w.faults.Store(&Faults{})
	w.mux.HandleFunc("GET /v1/worker", w.serveDocument)
	lease := func(pattern string, serve http.HandlerFunc) {
		w.mux.HandleFunc(pattern, w.ofThisGeneration(serve))
	}
	lease("/v1/leases/{lease}/duplex", w.serveEcho)
	lease("/v1/leases/{lease}/runner", w.serveEcho)
	lease("POST /v1/leases/{lease}/execute", w.serveExecute)
	lease("GET /v1/leases/{lease}/output", w.serveOutput)
	lease("POST /v1/leases/{lease}/sync/in", w.serveSyncIn)
	lease("PUT /v1/leases/{lease}/sync/in", w.serveSyncIn)
	lease("GET /v1/leases/{lease}/sync/out", w.serveSyncOut)
	return w
}

// ServeHTTP implements http.Handler.
func (w *Worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) { w.mux.ServeHTTP(rw, r) }

// ofThisGeneration refuses what was meant for another process than this one:
// the gateway decided on what that one was able to do. The word "static"
// comes from a gateway that does not know the generation.
func (w *Worker) ofThisGeneration(serve http.HandlerFunc) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		w.record(r)
		doc, _ := w.state.get()
		meant := r.Header.Get(GenerationHeader)
		if meant != "" && meant != "static" {
			rw.Header().Set(GenerationHeader, doc.Generation)
			if meant != doc.Generation {
				http.Error(rw, "another process of this worker", http.StatusConflict)
				return
			}
		}
		serve(rw, r)
	}
}

func (w *Worker) record(r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts.Requests++
	w.heads = append(w.heads, Head{
		Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Host: r.Host,
		Protocol: r.Proto, Header: r.Header.Clone(),
	})
	if len(w.heads) > maxHeads {
		w.heads = w.heads[1:]
	}
}

func (w *Worker) count(change func(*Counts)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.counts)
}

// Document returns the live document.
func (w *Worker) Document() Document {
	doc, _ := w.state.get()
	return doc
}

// Update changes the live document; streams write it at once.
func (w *Worker) Update(change func(*Document)) { w.state.update(change) }

// DropStreams ends the streams of the live document that are open.
func (w *Worker) DropStreams() { w.drop.fire() }

// Counts returns what the worker was asked so far.
func (w *Worker) Counts() Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts
}

// Heads returns the heads of the last requests of a lease, the newest last.
func (w *Worker) Heads() []Head {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.heads)
}

// signal tells all who wait, once for each fire.
type signal struct {
	mu sync.Mutex
	c  chan struct{}
}

func newSignal() *signal { return &signal{c: make(chan struct{})} }

func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.c
}

func (s *signal) fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.c)
	s.c = make(chan struct{})
}
