package sample

import (
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Document is the live document: what the worker is able to do now.
type Document struct {
	ID               string   `json:"id"`
	PluginID         string   `json:"pluginId"`
	Status           string   `json:"status"`     // starting, running, stopping
	Generation       string   `json:"generation"` // a new one at every start of the process
	SupportedMethods []string `json:"supportedMethods"`
}

// AllMethods are the live methods that make every capability of the gateway's
// table possible.
var AllMethods = []string{
	"environmentResumeLease", "environmentReleaseLease", "environmentDestroyLease",
	"environmentSyncIn", "environmentSyncOut", "environmentExecute",
	"duplexChannelOpen", "duplexChannelWrite", "duplexChannelStop", "duplexChannelClose",
	"environmentRunnerIngressEndpoint",
}

// repeat is how often an unchanged document is written again. The gateway
// takes a stream for dead that is silent for 10 seconds.
const repeat = 4 * time.Second

// state is a document that can be waited on.
type state struct {
	mu      sync.Mutex
	doc     Document
	changed chan struct{} // closed at the next change
}

func newState(doc Document) *state { return &state{doc: doc, changed: make(chan struct{})} }

// get returns the document and a channel that is closed when it changes.
func (s *state) get() (Document, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	doc := s.doc
	doc.SupportedMethods = slices.Clone(doc.SupportedMethods)
	return doc, s.changed
}

func (s *state) update(change func(*Document)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.doc)
	close(s.changed)
	s.changed = make(chan struct{})
}

// serveDocument answers a gateway that wants to know what the worker can do.
func (w *Worker) serveDocument(rw http.ResponseWriter, r *http.Request) {
	faults := w.faults.Load()
	switch {
	case faults.LinkStatus != 0:
		http.Error(rw, "out of order", faults.LinkStatus)
	case r.Header.Get("Accept") == "application/x-ndjson" && !faults.NoStream:
		w.count(func(c *Counts) { c.Streams++ })
		w.streamDocument(rw, r)
	default:
		w.count(func(c *Counts) { c.Probes++ })
		doc, _ := w.state.get()
		rw.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(rw).Encode(doc)
	}
}

// streamDocument writes the document, one JSON a line, now, whenever it
// changes, and again and again so that the gateway knows the worker is there.
// The answer ends with the connection.
func (w *Worker) streamDocument(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "application/x-ndjson")
	dropped := w.drop.wait()
	tick := time.NewTicker(repeat)
	defer tick.Stop()
	for {
		doc, changed := w.state.get()
		if err := json.NewEncoder(rw).Encode(doc); err != nil {
			return
		}
		if err := http.NewResponseController(rw).Flush(); err != nil {
			return
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-dropped:
			return
		case <-r.Context().Done():
			return
		}
	}
}
