package pdp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"sluice/internal/authz"
	"sluice/internal/snapshot"
	"time"
)

// ReadCase reads one case of `gateway eval`, a JSON object on one line, as a
// question. Its records go through the decoder of the stores, under the keys
// that the lease's ids lead to; its live document through the links'. What has
// no request, or a time that is none, is no case. Other fields of the wrong
// type are read so that they never grant: a principal that is no object is
// none, an expiry that is no time has passed. What else it holds is ignored.
func ReadCase(line []byte, extraFields []string) (*authz.Question, error) {
	q, _, err := ReadCaseNoting(line, extraFields)
	return q, err
}

// CaseNotes are what a case's author will want to know beside the decision.
type CaseNotes struct {
	// Malformed says what makes records malformed, by their kind; "live" is
	// the live document.
	Malformed map[string]string `json:"malformed,omitempty"`
	// Ignored are the keys that nobody reads, such as "request.leaseID", in
	// order. A misspelt one is as good as absent.
	Ignored []string `json:"ignored,omitempty"`
}

// ReadCaseNoting is ReadCase, and tells what it found: the question itself
// names no more than the kinds that the decision needs and that are malformed.
func ReadCaseNoting(line []byte, extraFields []string) (*authz.Question, *CaseNotes, error) {
	c, err := readFields(line)
	if err != nil {
		return nil, nil, fmt.Errorf("reading a case: %w", onOneLine(line, err))
	}
	request, err := readFields(c["request"])
	if err != nil {
		return nil, nil, fmt.Errorf("reading a case: its request: %w", err)
	}
	records, _ := readFields(c["records"])
	now, err := caseTime(c)
	if err != nil {
		return nil, nil, fmt.Errorf("reading a case: %w", err)
	}
	notes := &CaseNotes{Malformed: map[string]string{}, Ignored: ignoredKeys(c, request, records)}
	q := &authz.Question{
		Request: caseRequest(c, request, now), Now: now,
		View:           authz.View{Fresh: !set(c["stale"]) || string(c["stale"]) == "false", Confirmed: now},
		WorkersEnabled: !set(c["workersEnabled"]) || string(c["workersEnabled"]) == "true",
	}
	q.View.Snapshot = joinCase(q.Request.LeaseID, records, extraFields, notes)
	if q.Request.Phase != authz.Open { // the channel is one with the lease's worker and sandbox
		q.Request.Channel = &authz.ChannelFacts{
			ID: "case", OpenedAt: now, WorkerID: q.View.Snapshot.WorkerID(), Generation: text(c["openedGeneration"]),
			Sandbox: authz.SandboxOf(q.View.Snapshot.Lease),
		}
	}
	if set(c["live"]) {
		q.Live, err = snapshot.DecodeLive(c["live"]) // a malformed live document is none
		notes.malformed("live", err)
	}
	return q, notes, nil
}

func (n *CaseNotes) malformed(what string, err error) {
	if err != nil {
		n.Malformed[what] = err.Error()
	}
}

// onOneLine says what to do about a case that goes on in the next line.
func onOneLine(line []byte, err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok && syntax.Offset == int64(len(line)) {
		return fmt.Errorf("%w (a case is one line; jq -c . puts it on one)", err)
	}
	return err
}

// caseKeys are the keys that are read.
var caseKeys = map[string][]string{
	"": {
		"request", "records", "live", "now", "phase", "stale", "workersEnabled", "openedGeneration",
		"method", "path", "headers",
	},
	"request.":           {"leaseId", "capability", "environmentId", "principal"},
	"request.principal.": {"subject", "tenantId", "roles", "expiresAt"},
	"records.":           {"lease", "environment", "plugin", "worker", "control"},
}

func ignoredKeys(c, request, records map[string]json.RawMessage) []string {
	principal, _ := readFields(request["principal"])
	var ignored []string
	for at, fields := range map[string]map[string]json.RawMessage{
		"": c, "request.": request, "request.principal.": principal, "records.": records,
	} {
		for key := range fields {
			if !slices.Contains(caseKeys[at], key) {
				ignored = append(ignored, at+key)
			}
		}
	}
	slices.Sort(ignored)
	return ignored
}

var errNoObject = errors.New("no JSON object")

// readFields reads an object's fields, their names exactly.
func readFields(raw json.RawMessage) (map[string]json.RawMessage, error) {
	if !set(raw) {
		return nil, errNoObject
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
		return nil, errors.Join(errNoObject, err)
	}
	return fields, nil
}

// set reports whether a value is neither absent nor null.
func set(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

func text(raw json.RawMessage) string {
	var s string
	if len(raw) > 0 && raw[0] == '"' {
		_ = json.Unmarshal(raw, &s)
	}
	return s
}

func caseTime(c map[string]json.RawMessage) (time.Time, error) {
	if !set(c["now"]) {
		return time.Now(), nil
	}
	now, err := snapshot.ParseTime(text(c["now"]))
	if err != nil {
		return time.Time{}, fmt.Errorf("its now: %w", err)
	}
	return now, nil
}

func caseRequest(c, request map[string]json.RawMessage, now time.Time) *authz.Request {
	r := &authz.Request{
		ID: "case", Phase: authz.Open, Kind: authz.Duplex,
		LeaseID: text(request["leaseId"]), Capability: authz.Capability(text(request["capability"])),
		EnvironmentID: caseEnvironment(request["environmentId"]), Principal: casePrincipal(request["principal"], now),
		Method: text(c["method"]), Path: text(c["path"]), Headers: caseHeaders(c["headers"]),
	}
	if set(c["phase"]) && text(c["phase"]) != string(authz.Open) {
		r.Phase = authz.Phase(text(c["phase"]))
	}
	return r
}

// noEnvironment stands for a name of an environment that no environment has.
const noEnvironment = "\x00"

func caseEnvironment(raw json.RawMessage) string {
	if set(raw) && text(raw) == "" {
		return noEnvironment
	}
	return text(raw)
}

func casePrincipal(raw json.RawMessage, now time.Time) *authz.Principal {
	fields, err := readFields(raw)
	if err != nil {
		return nil
	}
	p := &authz.Principal{Subject: text(fields["subject"]), TenantID: text(fields["tenantId"]), Method: "token"}
	var roles []json.RawMessage
	_ = json.Unmarshal(fields["roles"], &roles)
	for _, role := range roles {
		p.Roles = append(p.Roles, text(role))
	}
	if set(fields["expiresAt"]) {
		at, err := snapshot.ParseTime(text(fields["expiresAt"]))
		if err != nil {
			at = now // not after now, whenever that is
		}
		p.ExpiresAt = &at
	}
	return p
}

// caseHeaders takes a header as a string or as a list of strings.
func caseHeaders(raw json.RawMessage) http.Header {
	fields, err := readFields(raw)
	if err != nil {
		return nil
	}
	headers := make(http.Header, len(fields))
	for name, value := range fields {
		var values []string
		if json.Unmarshal(value, &values) != nil {
			values = []string{text(value)}
		}
		headers[textproto.CanonicalMIMEHeaderKey(name)] = values
	}
	return headers
}

// joinCase joins a case's records as a store's would be.
func joinCase(leaseID string, records map[string]json.RawMessage, extraFields []string, notes *CaseNotes) *authz.Snapshot {
	s := &authz.Snapshot{LeaseID: leaseID}
	decode := func(kind authz.Kind, id string) *authz.Record {
		if !set(records[string(kind)]) {
			return nil
		}
		record, err := snapshot.Decode(kind, id, records[string(kind)], extraFields)
		notes.malformed(string(kind), err)
		if err != nil {
			if kind != authz.KindWorker {
				s.Malformed = append(s.Malformed, kind)
			}
			return nil
		}
		return record
	}
	s.Lease = decode(authz.KindLease, leaseID)
	s.Control = decode(authz.KindControl, "")
	if s.Lease == nil {
		return s
	}
	if s.Lease.EnvironmentID != "" {
		s.Environment = decode(authz.KindEnvironment, s.Lease.EnvironmentID)
	}
	if snapshot.ValidID(s.Lease.Pin.PluginID) {
		s.Plugin = decode(authz.KindPlugin, s.Lease.Pin.PluginID)
	}
	if id := s.WorkerID(); snapshot.ValidID(id) {
		s.Worker = decode(authz.KindWorker, id)
	}
	return s
}
