package main

import (
	"encoding/json"
	"net/http"
	"sluice/internal/snapshot"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// health answers the probes. Liveness depends on nothing; readiness on policy
// and store, never on a worker.
type health struct {
	gateway  *gateway
	draining atomic.Bool
}

// part is one line of /readyz?verbose.
type part struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	Error string `json:"error,omitempty"`
}

func (h *health) parts() []part {
	drain := part{Name: "drain", Ready: !h.draining.Load()}
	if !drain.Ready {
		drain.Error = "the gateway is draining"
	}
	return []part{
		partOf("policy", h.gateway.policy.Ready()),
		partOf("store", h.gateway.facts.Ready()),
		drain,
	}
}

func partOf(name string, err error) part {
	if err != nil {
		return part{Name: name, Error: err.Error()}
	}
	return part{Name: name, Ready: true}
}

// handler serves what is safe to show to a kubelet.
func (h *health) handler() http.Handler {
	mux := http.NewServeMux()
	h.register(mux)
	return mux
}

func (h *health) register(mux *http.ServeMux) {
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]bool{"live": true})
	})
	mux.HandleFunc("GET /readyz", h.readyz)
	mux.HandleFunc("GET /health", h.opaHealth)
	mux.Handle("GET /metrics", promhttp.HandlerFor(h.gateway.metrics.registry, promhttp.HandlerOpts{}))
}

func (h *health) readyz(w http.ResponseWriter, r *http.Request) {
	answer := map[string]any{"ready": true}
	status := http.StatusOK
	parts := h.parts()
	var waiting []string
	for _, p := range parts {
		if !p.Ready {
			waiting = append(waiting, p.Name+": "+p.Error)
		}
	}
	if len(waiting) > 0 {
		status = http.StatusServiceUnavailable
		answer["ready"] = false
		answer["not_ready"] = waiting
	}
	if r.URL.Query().Has("verbose") {
		answer["parts"] = parts
		answer["workers"] = h.gateway.links.Status()
		answer["store"] = storeStatus(h.gateway.facts.Stats(), h.gateway.store)
		answer["revision_marks"] = h.gateway.marksStatus()
		answer["policy_revision"] = h.gateway.policy.Revision()
	}
	writeJSON(w, status, answer)
}

func storeStatus(s snapshot.Stats, store recordStore) any {
	status := map[string]any{
		"up": s.Up, "resyncs": s.Resyncs, "age_ms": s.Age.Milliseconds(), "leases": s.Leases, "absent": s.Absent, "bytes": s.Bytes,
	}
	if several, ok := store.(interface {
		Servers() []snapshot.ServerStatus
	}); ok {
		servers := []map[string]any{}
		for _, server := range several.Servers() {
			servers = append(servers, map[string]any{
				"name": server.Name, "tracked": server.Tracked, "age_ms": server.Age.Milliseconds(),
			})
		}
		status["servers"] = servers
	}
	return status
}

// opaHealth answers as OPA's /health does: 500 while what is asked about is
// not well.
func (h *health) opaHealth(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	about := query.Has("bundles") || query.Has("bundle") || query.Has("plugins")
	if about && h.gateway.policy.Ready() != nil {
		writeJSON(w, http.StatusInternalServerError, map[string]string{"error": "one or more policy sources are not active"})
		return
	}
	writeJSON(w, http.StatusOK, struct{}{})
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":"the answer could not be written"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}

// writeError answers with words of ours.
func writeError(w http.ResponseWriter, status int, words ...string) {
	writeJSON(w, status, map[string]string{"error": strings.Join(words, ": ")})
}
