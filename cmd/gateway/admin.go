package main

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path"
	"sluice/internal/authz"
	"sluice/internal/channel"
	"sluice/internal/pdp"
	"sluice/internal/snapshot"
	"strconv"
	"strings"
)

// admin is the operators' listener: records, explain, teardown, and the
// probes. Everything but the probes needs the bearer token; a page in a
// browser on the same machine can do nothing here, with or without it.
type admin struct {
	gateway *gateway
	token   string // "": the calls that need it are off
}

func newAdmin(g *gateway) (*admin, error) {
	token, err := adminToken(g.config)
	if err != nil {
		return nil, err
	}
	if token == "" {
		g.log.Warn("the admin calls are off: neither admin.token_file nor state_dir is configured")
	}
	return &admin{gateway: g, token: token}, nil
}

func (a *admin) handler() http.Handler {
	mux := http.NewServeMux()
	a.gateway.health.register(mux)
	for pattern, call := range map[string]http.HandlerFunc{
		"GET /v1/records/{kind}":         a.listRecords,
		"GET /v1/records/{kind}/{id}":    a.getRecord,
		"PUT /v1/records/{kind}/{id}":    a.putRecord,
		"DELETE /v1/records/{kind}/{id}": a.deleteRecord,
		"PUT /v1/records/control":        a.putRecord, // which is one, and needs no id
		"DELETE /v1/records/control":     a.deleteRecord,
		"GET /v1/channels":               a.listChannels,
		"DELETE /v1/channels":            a.closeChannels,
		"DELETE /v1/channels/{id}":       a.closeChannel,
		"POST /v1/explain":               a.explain,
		"GET /v1/leases/{id}/teardown":   a.teardown,
	} {
		mux.Handle(pattern, a.authorized(call))
	}
	return a.guarded(mux)
}

// guarded refuses what a browser was tricked into sending: a name that was
// rebound to this address, or a page of another origin.
func (a *admin) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header.Values("Origin")) > 0 || !a.ownHost(r.Host) {
			writeError(w, http.StatusForbidden, "the admin listener is not for browsers, and takes no foreign Host")
			return
		}
		if r.URL.Path != path.Clean(r.URL.Path) { // refused, where ServeMux would send elsewhere
			writeError(w, http.StatusNotFound, "there is no such call")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ownHost takes an address, localhost, or the configured host.
func (a *admin) ownHost(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return true
	}
	configured, _, _ := net.SplitHostPort(a.gateway.config.Admin.Address)
	return name == "localhost" || name == configured && name != ""
}

func (a *admin) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.token == "" {
			writeError(w, http.StatusForbidden, "this call is off: configure admin.token_file or state_dir")
			return
		}
		values := r.Header.Values("Authorization")
		if len(values) != 1 || subtle.ConstantTimeCompare([]byte(values[0]), []byte("Bearer "+a.token)) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			writeError(w, http.StatusUnauthorized, "the admin token is required")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// key is the record that the path names; the control record's id is
// "control".
func (a *admin) key(w http.ResponseWriter, r *http.Request) (snapshot.Key, bool) {
	k := snapshot.Key{Kind: authz.Kind(r.PathValue("kind")), ID: r.PathValue("id")}
	if k.Kind == authz.KindControl && k.ID == "control" || k == (snapshot.Key{}) {
		k = snapshot.ControlKey
	}
	if !k.Valid() {
		writeError(w, http.StatusBadRequest, "there is no record of that kind and id")
		return k, false
	}
	return k, true
}

func (a *admin) listRecords(w http.ResponseWriter, r *http.Request) {
	kind := authz.Kind(r.PathValue("kind"))
	if kind != authz.KindControl && !(snapshot.Key{Kind: kind, ID: "x"}).Valid() {
		writeError(w, http.StatusBadRequest, "there is no such kind of record")
		return
	}
	ids, err := a.gateway.store.List(r.Context(), kind)
	if err != nil {
		writeError(w, http.StatusServiceUnavailable, "the store could not be asked", err.Error())
		return
	}
	if kind == authz.KindControl && len(ids) > 0 {
		ids = []string{"control"}
	}
	writeJSON(w, http.StatusOK, map[string]any{"kind": kind, "ids": ids})
}

func (a *admin) getRecord(w http.ResponseWriter, r *http.Request) {
	k, ok := a.key(w, r)
	if !ok {
		return
	}
	stored, err := a.gateway.store.Get(r.Context(), k)
	if err != nil {
		writeEditError(w, err)
		return
	}
	if stored.Record == nil {
		writeError(w, http.StatusUnprocessableEntity, "the stored record is malformed", stored.Fault.Error())
		return
	}
	w.Header().Set("ETag", etag(stored.Record))
	writeJSON(w, http.StatusOK, json.RawMessage(stored.Text))
}

func (a *admin) putRecord(w http.ResponseWriter, r *http.Request) {
	k, ok := a.key(w, r)
	if !ok {
		return
	}
	expect, ok := expected(w, r)
	if !ok {
		return
	}
	limit := int64(snapshot.MaxText)
	if a.gateway.config.Store.Verify.KeysFile != "" {
		limit = snapshot.MaxSigned
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		writeError(w, http.StatusRequestEntityTooLarge, "a record has at most 256 KiB")
		return
	}
	record, err := a.gateway.store.Put(r.Context(), k, text, expect)
	if err != nil {
		writeEditError(w, err)
		return
	}
	a.gateway.log.Info("record put", "kind", k.Kind, "id", k.ID, "revision", record.Revision)
	w.Header().Set("ETag", etag(record))
	writeJSON(w, http.StatusOK, map[string]any{"kind": k.Kind, "id": k.ID, "revision": record.Revision})
}

func (a *admin) deleteRecord(w http.ResponseWriter, r *http.Request) {
	k, ok := a.key(w, r)
	if !ok {
		return
	}
	expect, ok := expected(w, r)
	if !ok {
		return
	}
	if err := a.gateway.store.Delete(r.Context(), k, expect); err != nil {
		writeEditError(w, err)
		return
	}
	a.gateway.log.Info("record deleted", "kind", k.Kind, "id", k.ID)
	w.WriteHeader(http.StatusNoContent)
}

func etag(r *authz.Record) string { return fmt.Sprintf("\"%d\"", r.Revision) }

// expected reads If-Match, which is one revision as GET answered it or "*" for
// any, and If-None-Match, which is "*": nothing may be there yet.
func expected(w http.ResponseWriter, r *http.Request) (snapshot.Expect, bool) {
	match, none := r.Header.Values("If-Match"), r.Header.Values("If-None-Match")
	exists, absent := snapshot.Exists, snapshot.Absent
	switch {
	case len(match)+len(none) == 0:
		return nil, true
	case len(none) == 1 && len(match) == 0 && none[0] == "*":
		return &absent, true
	case len(none) > 0 || len(match) > 1:
	case match[0] == "*":
		return &exists, true
	default:
		quoted, _ := strconv.Unquote(match[0])
		if revision, err := strconv.ParseInt(quoted, 10, 64); err == nil && revision >= 0 {
			return &revision, true
		}
	}
	writeError(w, http.StatusBadRequest, "say If-Match with one revision in quotes, as ETag gave it, or with *, or If-None-Match with *")
	return nil, false
}

// writeEditError gives an edit's fault its status.
func writeEditError(w http.ResponseWriter, err error) {
	status := http.StatusServiceUnavailable
	switch {
	case errors.Is(err, snapshot.ErrNotFound):
		status = http.StatusNotFound
	case errors.Is(err, snapshot.ErrPrecondition):
		status = http.StatusPreconditionFailed
	case errors.Is(err, snapshot.ErrOlder), errors.Is(err, snapshot.ErrConflict):
		status = http.StatusConflict
	case errors.Is(err, snapshot.ErrMalformed):
		status = http.StatusUnprocessableEntity
	}
	writeError(w, status, err.Error())
}

func (a *admin) listChannels(w http.ResponseWriter, r *http.Request) {
	f, ok := filterOf(w, r)
	if ok {
		writeJSON(w, http.StatusOK, map[string]any{"channels": a.gateway.register.List(f)})
	}
}

func (a *admin) closeChannels(w http.ResponseWriter, r *http.Request) {
	f, ok := filterOf(w, r)
	switch {
	case !ok:
	case f == channel.Filter{}:
		writeError(w, http.StatusBadRequest, "say which: lease, tenant or worker")
	default:
		a.close(w, f)
	}
}

func (a *admin) closeChannel(w http.ResponseWriter, r *http.Request) {
	f := channel.Filter{ID: r.PathValue("id")}
	if len(a.gateway.register.List(f)) == 0 {
		writeError(w, http.StatusNotFound, "there is no such channel")
		return
	}
	a.close(w, f)
}

func (a *admin) close(w http.ResponseWriter, f channel.Filter) {
	n := a.gateway.register.Close(f)
	a.gateway.log.Info("channels closed by an operator", "id", f.ID, "lease", f.Lease, "tenant", f.Tenant, "worker", f.Worker, "closed", n)
	writeJSON(w, http.StatusOK, map[string]int{"closed": n})
}

// filterOf reads the query; a word that it does not know is refused, for a
// mistyped filter must not take every channel.
func filterOf(w http.ResponseWriter, r *http.Request) (f channel.Filter, ok bool) {
	fields := map[string]*string{"lease": &f.Lease, "tenant": &f.Tenant, "worker": &f.Worker}
	for name, values := range r.URL.Query() {
		field := fields[name]
		if field == nil || len(values) != 1 || values[0] == "" {
			writeError(w, http.StatusBadRequest, "the query takes lease, tenant and worker, each once")
			return f, false
		}
		*field = values[0]
	}
	return f, true
}

// explain answers a case, or {"leaseId", "capability"} on the live store.
func (a *admin) explain(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCase))
	if err != nil {
		writeError(w, http.StatusRequestEntityTooLarge, "the case is too large")
		return
	}
	q, err := a.question(r, body)
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	writeJSON(w, http.StatusOK, a.gateway.policy.Explain(r.Context(), q))
}

// explainQuestion is a question on the live store. Without a principal it is
// asked for "operator", of the lease's tenant and without roles.
type explainQuestion struct {
	LeaseID       string           `json:"leaseId"`
	Capability    authz.Capability `json:"capability"`
	EnvironmentID string           `json:"environmentId"`
	Principal     *struct {
		Subject  string   `json:"subject"`
		TenantID string   `json:"tenantId"`
		Roles    []string `json:"roles"`
	} `json:"principal"`
}

func (a *admin) question(r *http.Request, body []byte) (*authz.Question, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, fmt.Errorf("read the question: %w", err)
	}
	if fields["request"] != nil {
		return pdp.ReadCase(body, a.gateway.config.Policies.ExtraFields)
	}
	var ask explainQuestion
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&ask); err != nil {
		return nil, fmt.Errorf("read the question: %w", err)
	}
	if !authz.ValidID(ask.LeaseID) || ask.Capability == "" {
		return nil, errors.New(`the question must be a case, or {"leaseId": ..., "capability": ...} with "environmentId" and "principal" where they matter`)
	}
	req := &authz.Request{LeaseID: ask.LeaseID, Capability: ask.Capability, EnvironmentID: ask.EnvironmentID}
	if p := ask.Principal; p != nil {
		req.Principal = &authz.Principal{Subject: p.Subject, TenantID: p.TenantID, Roles: p.Roles, Method: "admin"}
	}
	return a.gateway.ask(r.Context(), req), nil
}

// ask is a question on the live store: what an open would rest on, the worker
// asked as an open would ask it.
func (g *gateway) ask(ctx context.Context, req *authz.Request) *authz.Question {
	req.ID, req.Phase = authz.NewID(), authz.Open
	if req.Principal == nil {
		req.Principal = &authz.Principal{Subject: "operator", Method: "admin"}
		if s := g.facts.Snapshot(ctx, req.LeaseID).Snapshot; s != nil && s.Lease != nil {
			req.Principal.TenantID = s.Lease.TenantID
		}
	}
	q := g.authorizer.Question(ctx, req)
	if req.Conn != nil { // link: static asks by connecting
		_ = req.Conn.Close()
	}
	return &q
}

func (a *admin) teardown(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if !authz.ValidID(id) {
		writeError(w, http.StatusBadRequest, "the lease id is not well-formed")
		return
	}
	q := a.gateway.ask(r.Context(), &authz.Request{LeaseID: id, Capability: authz.DuplexCommandStream})
	if !q.View.Fresh {
		writeError(w, http.StatusServiceUnavailable, "the lease could not be confirmed in the store")
		return
	}
	if worker := authz.WorkerToAsk(q); q.Live == nil && worker != nil {
		q.Live = a.gateway.askWorker(r.Context(), q.Request, worker)
	}
	ready, reason := a.gateway.policy.Teardown(r.Context(), q)
	writeJSON(w, http.StatusOK, map[string]any{"leaseId": id, "ready": ready, "reason": reason})
}

// askWorker asks the worker for its live document on an operator's behalf.
func (g *gateway) askWorker(ctx context.Context, req *authz.Request, worker *authz.Record) *authz.Live {
	live, err := g.links.Ask(ctx, req, worker)
	if err != nil {
		g.log.Debug("worker did not answer", "worker", worker.ID, "error", err)
	}
	if req.Conn != nil {
		_ = req.Conn.Close()
	}
	return live
}
