package decisionlog

import (
	"net/http"
	"slices"
	"sluice/internal/authz"
	"sluice/internal/channel"
	"strings"
	"time"
)

// The paths that records are filed under. OPA's receivers tell events apart
// by them.
const (
	decisionPath = "sluice/authz/decision"
	endPath      = "sluice/channel/end"
	eventType    = "openpolicyagent.org/decision_logs"
)

// Event is one record: the fields of OPA's decision log event, and what is
// the gateway's own under Custom.
type Event struct {
	Type        string            `json:"type"`
	Labels      map[string]string `json:"labels"`
	DecisionID  string            `json:"decision_id"`
	TraceID     string            `json:"trace_id,omitempty"`
	Path        string            `json:"path"`
	Input       *Input            `json:"input"`
	Result      *Result           `json:"result,omitempty"`
	RequestedBy string            `json:"requested_by,omitempty"`
	Timestamp   time.Time         `json:"timestamp"`
	Metrics     map[string]int64  `json:"metrics,omitempty"`
	Custom      Custom            `json:"custom"`
}

// Input is what the decision was asked about, without the records: their
// revisions say which they were.
type Input struct {
	Version    int              `json:"version"`
	Phase      authz.Phase      `json:"phase"`
	Capability authz.Capability `json:"capability"`
	Request    Request          `json:"request"`
	Principal  *Principal       `json:"principal"`
}

// Request is the request's part of an Input.
type Request struct {
	ID            string      `json:"id"`
	LeaseID       string      `json:"lease_id"`
	EnvironmentID string      `json:"environment_id,omitempty"`
	Method        string      `json:"method"`
	Path          string      `json:"path"`
	Host          string      `json:"host"`
	Protocol      string      `json:"protocol"`
	Headers       http.Header `json:"headers,omitempty"`
	RemoteAddress string      `json:"remote_address"`
}

// Principal is the caller's part of an Input.
type Principal struct {
	Subject  string   `json:"subject"`
	TenantID string   `json:"tenantId"`
	Method   string   `json:"method"`
	Roles    []string `json:"roles,omitempty"`
}

// Result is the decision.
type Result struct {
	Allow   bool         `json:"allow"`
	Code    authz.Code   `json:"code"`
	Reason  authz.Reason `json:"reason"`
	Reasons []string     `json:"reasons,omitempty"`
}

// Custom holds the gateway's own fields.
type Custom struct {
	Sluice Sluice `json:"sluice"`
}

// Sluice is what a decision rested on, or how a channel ended.
type Sluice struct {
	Phase            string               `json:"phase"` // a phase, or "end"
	ChannelID        string               `json:"channel_id,omitempty"`
	Code             string               `json:"code"`
	Reason           authz.Reason         `json:"reason,omitempty"`
	Reasons          []string             `json:"reasons,omitempty"`
	Tenant           string               `json:"tenant,omitempty"`
	Lease            string               `json:"lease"`
	Capability       authz.Capability     `json:"capability"`
	Effective        []authz.Capability   `json:"effective"`
	Revisions        map[authz.Kind]int64 `json:"revisions,omitempty"`
	SnapshotAgeMS    *int64               `json:"snapshot_age_ms,omitempty"`
	WorkerGeneration string               `json:"worker_generation,omitempty"`
	WorkerStatic     bool                 `json:"worker_static,omitempty"` // the operator's word, not the worker's
	Fault            string               `json:"fault,omitempty"`         // why no answer could be reached
	Ended            *Ended               `json:"ended,omitempty"`
}

// Ended is how a channel ended.
type Ended struct {
	Why              channel.Why `json:"why"`
	CloseCode        int         `json:"close_code,omitempty"`
	LastDecisionID   string      `json:"last_decision_id"`
	Opened           bool        `json:"opened"` // false: refused before the caller saw an answer
	DurationMS       int64       `json:"duration_ms"`
	BytesToWorker    int64       `json:"bytes_to_worker"`
	BytesToCaller    int64       `json:"bytes_to_caller"`
	MessagesToWorker int64       `json:"messages_to_worker"`
	MessagesToCaller int64       `json:"messages_to_caller"`
}

// entry is what is queued: values that nobody changes any more.
type entry struct {
	request  authz.Request
	decision authz.Decision
	end      *channel.Summary
	traceID  string
}

func (l *Log) event(e *entry) *Event {
	req, d := &e.request, &e.decision
	ev := &Event{
		Type: eventType, Labels: l.labels, DecisionID: d.ID, Path: decisionPath, TraceID: e.traceID,
		Input: input(req), RequestedBy: req.RemoteAddress, Timestamp: d.At.UTC(),
		Result: &Result{Allow: d.Allow, Code: d.Code, Reason: d.Reason, Reasons: d.Reasons},
		Custom: Custom{l.rested(req, d)},
	}
	if d.Evaluated > 0 {
		ev.Metrics = map[string]int64{"timer_rego_query_eval_ns": d.Evaluated.Nanoseconds()}
	}
	if e.end != nil {
		asEnd(ev, e.end)
	}
	return ev
}

// loggable leaves out headers that by their name may hold a secret, and the
// query of an address.
func loggable(h http.Header) http.Header {
	out := make(http.Header, len(h))
	for name, values := range h {
		lower := strings.ToLower(name)
		switch {
		case slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(lower, word) }):
		case lower == "referer" || slices.ContainsFunc(values, holdsQuery):
			for _, v := range values {
				if lower == "referer" || holdsQuery(v) {
					v, _, _ = strings.Cut(v, "?")
				}
				out[name] = append(out[name], v)
			}
		default:
			out[name] = values
		}
	}
	return out
}

// holdsQuery says whether v holds an address with a query.
func holdsQuery(v string) bool {
	i := strings.LastIndexByte(v, '?')
	return i >= 0 && strings.ContainsAny(v[:i], "/:")
}

// secretWords are in the names of headers that are not logged. Policy may see
// these headers all the same.
var secretWords = []string{"key", "token", "secret", "auth", "cookie", "session", "password", "credential", "signature"}

func input(req *authz.Request) *Input {
	in := &Input{
		Version: 1, Phase: req.Phase, Capability: req.Capability,
		Request: Request{
			ID: req.ID, LeaseID: req.LeaseID, EnvironmentID: req.EnvironmentID, Method: req.Method, Path: req.Path,
			Host: req.Host, Protocol: req.Protocol, Headers: loggable(req.Headers), RemoteAddress: req.RemoteAddress,
		},
	}
	if p := req.Principal; p != nil {
		in.Principal = &Principal{Subject: p.Subject, TenantID: p.TenantID, Method: p.Method, Roles: p.Roles}
	}
	return in
}

func (l *Log) rested(req *authz.Request, d *authz.Decision) Sluice {
	s := Sluice{
		Phase: string(req.Phase), Code: string(d.Code), Reason: d.Reason, Reasons: d.Reasons,
		Lease: req.LeaseID, Capability: req.Capability, Effective: append([]authz.Capability{}, l.effective(d.View.Snapshot, d.Live)...),
		Revisions: revisions(d.View.Snapshot), Fault: d.Fault,
	}
	if req.Principal != nil {
		s.Tenant = req.Principal.TenantID
	}
	if req.Channel != nil {
		s.ChannelID = req.Channel.ID
	}
	if !d.View.Confirmed.IsZero() {
		age := d.At.Sub(d.View.Confirmed).Milliseconds()
		s.SnapshotAgeMS = &age
	}
	if d.Live != nil {
		s.WorkerGeneration, s.WorkerStatic = d.Live.Generation, d.Live.Static
	}
	return s
}

func revisions(s *authz.Snapshot) map[authz.Kind]int64 {
	if s == nil {
		return nil
	}
	out := map[authz.Kind]int64{}
	for _, r := range []*authz.Record{s.Lease, s.Environment, s.Plugin, s.Worker, s.Control} {
		if r != nil {
			out[r.Kind] = r.Revision
		}
	}
	return out
}

// asEnd turns a record of the last decision into one of the channel's end.
func asEnd(ev *Event, s *channel.Summary) {
	ev.Path, ev.Result, ev.Metrics = endPath, nil, nil
	ev.DecisionID = authz.NewID()
	ev.Timestamp = s.At.UTC()
	ev.Custom.Sluice.Phase = "end"
	ev.Custom.Sluice.Code = s.Ending.Code
	ev.Custom.Sluice.ChannelID = s.Channel
	if s.Ending.Decision == nil {
		ev.Custom.Sluice.Reason, ev.Custom.Sluice.Reasons = "", nil
	}
	ev.Custom.Sluice.Ended = &Ended{
		Why: s.Ending.Why, CloseCode: s.Ending.Close, LastDecisionID: s.Ending.DecisionID, Opened: s.Committed,
		DurationMS: s.Duration.Milliseconds(), BytesToWorker: s.BytesToWorker, BytesToCaller: s.BytesToCaller,
		MessagesToWorker: s.MessagesToWorker, MessagesToCaller: s.MessagesToCaller,
	}
}
