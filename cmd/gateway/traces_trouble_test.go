package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Nor does a collector spoil the end: the drain is in order, whatever becomes of
// the traces.
func TestACollectorInTroubleIsNoFaultOfTheDrain(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}))
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	t.Cleanup(func() {
		close(over)
		for _, c := range []*httptest.Server{silent, failing, refusing} {
			c.Close()
		}
	})
	for name, collector := range map[string]*httptest.Server{"never answers": silent, "answers 503": failing, "answers 401": refusing, "is gone": gone} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t).start(fmt.Sprintf(`telemetry: {traces: {otlp_endpoint: %q}}`, collector.URL))
			_ = s.open("alice", "lease-1").CloseNow()
			if code := s.term(); code != 0 {
				t.Errorf("exited with %d", code)
			}
		})
	}
}

// What goes wrong with traces is a line of the log like any other.
func TestWhatIsSaidOfTracesIsInTheLogsFormat(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	s := newScene(t).start(fmt.Sprintf(`telemetry: {traces: {otlp_endpoint: %q}}`, gone.URL))
	s.open("alice", "lease-1")
	s.logged(gone.URL) // the collector cannot be reached
	s.term()
	s.mu.Lock()
	defer s.mu.Unlock()
	for line := range strings.Lines(s.log.String()) {
		var entry struct{ Time, Level, Msg string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Time == "" || entry.Level == "" || entry.Msg == "" {
			t.Errorf("the log holds %q", line)
		}
	}
}
