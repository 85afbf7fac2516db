package sample

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// maxBody bounds what the worker keeps of one request.
const maxBody = 8 << 20

// body reads the whole body, or answers 413.
func body(rw http.ResponseWriter, r *http.Request) ([]byte, bool) {
	all, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, maxBody))
	if err != nil {
		http.Error(rw, err.Error(), http.StatusRequestEntityTooLarge)
	}
	return all, err == nil
}

// serveExecute answers with the body that it got, in place of a command's
// output.
func (w *Worker) serveExecute(rw http.ResponseWriter, r *http.Request) {
	all, ok := body(rw, r)
	if !ok {
		return
	}
	if kind := r.Header.Get("Content-Type"); kind != "" {
		rw.Header().Set("Content-Type", kind)
	}
	_, _ = rw.Write(all)
}

// tick is how often serveOutput has something to say.
const tick = time.Second

// serveOutput sends server-sent events until the caller leaves. The head goes
// out at once, before there is an event.
func (w *Worker) serveOutput(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "text/event-stream")
	rw.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(rw)
	beat := time.NewTicker(tick)
	defer beat.Stop()
	for n := 0; ; n++ {
		if err := out.Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-beat.C:
			fmt.Fprintf(rw, "event: tick\ndata: %d\n\n", n)
		}
	}
}

// files holds the last upload of each lease.
type files struct {
	mu      sync.Mutex
	byLease map[string][]byte
}

func newFiles() *files { return &files{byLease: map[string][]byte{}} }

func (w *Worker) serveSyncIn(rw http.ResponseWriter, r *http.Request) {
	all, ok := body(rw, r)
	if !ok {
		return
	}
	w.files.mu.Lock()
	w.files.byLease[r.PathValue("lease")] = all
	w.files.mu.Unlock()
	rw.WriteHeader(http.StatusNoContent)
}

func (w *Worker) serveSyncOut(rw http.ResponseWriter, r *http.Request) {
	w.files.mu.Lock()
	all := w.files.byLease[r.PathValue("lease")]
	w.files.mu.Unlock()
	rw.Header().Set("Content-Type", "application/octet-stream")
	_, _ = rw.Write(all)
}
