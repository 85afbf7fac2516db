package worker_test

import (
	"encoding/json"
	"io"
	"net/http"
	"sluice/internal/worker"
	"testing"
	"time"
)

// What a worker calls its answer is its own affair: a stream is what goes on.
func TestAutoKnowsAStreamByWhatItDoes(t *testing.T) {
	var pretty []byte
	if indented, err := json.MarshalIndent(json.RawMessage(good), "", "  "); err == nil {
		pretty = append(indented, '\n')
	}
	for name, row := range map[string]struct {
		contentType string
		stays       bool // open behind its first document
		document    string
		state       worker.State
	}{
		"a stream of its name":        {"application/x-ndjson", true, good + "\n", worker.StateUp},
		"a stream without one":        {"", true, good + "\n", worker.StateUp},
		"a stream of text":            {"text/plain; charset=utf-8", true, good + "\n", worker.StateUp},
		"a document that ends":        {"text/plain", false, good + "\n", worker.StateProbed},
		"a document without its line": {"text/plain", false, good, worker.StateProbed},
		"a document on many lines":    {"text/plain", false, string(pretty), worker.StateProbed},
		"a document of its name":      {"application/json", true, good + "\n", worker.StateProbed},
		"a document with its length":  {"length", false, good + "\n", worker.StateProbed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := serveHandler(t, func(w http.ResponseWriter, r *http.Request) {
				switch row.contentType {
				case "":
					w.Header()["Content-Type"] = nil
				case "length":
				default:
					w.Header().Set("Content-Type", row.contentType)
				}
				if r.Header.Get("Accept") != "application/x-ndjson" {
					_, _ = io.WriteString(w, good)
					return
				}
				_, _ = io.WriteString(w, row.document)
				if row.contentType != "length" { // which net/http adds to what is short and not flushed
					_ = http.NewResponseController(w).Flush()
				}
				if row.stays {
					<-r.Context().Done()
				}
			})
			r := start(t, worker.Options{Mode: worker.Auto, Grace: time.Minute})
			live := r.mustAsk(w)
			r.Retain("worker-1")
			eventually(t, "it is known what it does", func() bool { return r.status("worker-1").State == row.state })
			if again := r.mustAsk(w); again.Generation != live.Generation || live.Generation != "g1" {
				t.Errorf("answered %+v, then %+v", live, again)
			}
			if r.changed() != 0 {
				t.Errorf("reported %d", r.changed())
			}
		})
	}
}
