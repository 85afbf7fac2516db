package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"sluice/internal/authz"
	"sluice/internal/worker/sample"
	"strings"
	"testing"
	"time"
)

// vector is one case of policy_test/decision.jsonl with its answer.
type vector struct {
	Name string
	Case struct {
		Now            string
		Phase          string
		WorkersEnabled bool
		Stale          bool
		Request        struct {
			LeaseID       string `json:"leaseId"`
			Capability    string
			EnvironmentID string `json:"environmentId"`
			Principal     *struct{ Subject, TenantID, ExpiresAt string }
		}
		Records map[string]json.RawMessage
		Live    *sample.Document
	}
	Want struct {
		Allow        bool
		Code, Reason string
	}
}

func readVectors(t *testing.T) []vector {
	t.Helper()
	file, err := os.Open("../../policy_test/decision.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var out []vector
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var v vector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

// TestTheCasesThroughARunningGateway puts a gateway into the state of every
// case that one can be in, and asks for the channel. What cannot be made from
// outside: a store that is out of reach while the records are there, a
// recheck or an admit at a chosen moment, and a caller without a tenant.
func TestTheCasesThroughARunningGateway(t *testing.T) {
	const fewest = 85
	groups := map[string][]vector{}
	for _, v := range readVectors(t) {
		if v.Case.Phase == "open" && !v.Case.Stale && (v.Case.Request.Principal == nil || v.Case.Request.Principal.TenantID != "") {
			group := fmt.Sprintf("%s %v", v.Case.Records["control"], v.Case.WorkersEnabled)
			groups[group] = append(groups[group], v)
		}
	}
	played := 0
	for _, group := range groups {
		playVectors(t, group)
		played += len(group)
	}
	if played < fewest {
		t.Errorf("%d cases were played, of at least %d", played, fewest)
	}
}

// playVectors plays cases that share a control record on one gateway: each
// has ids of its own.
func playVectors(t *testing.T, group []vector) {
	s := newScene(t)
	if control := group[0].Case.Records["control"]; string(control) == "null" || control == nil {
		os.Remove(s.dir + "/records/control.json")
	} else {
		s.put("control", "", string(control))
	}
	workers := make([]*sample.Worker, len(group))
	for i := range group {
		workers[i] = s.stage(i, &group[i])
	}
	routes := "routes:"
	for _, c := range append(allCapabilities, "unknown", "noSuchCapability", "shellAccess") {
		routes += fmt.Sprintf("\n  - {path: \"/v1/leases/{lease}/%s\", capability: %s, kind: duplex}", c, c)
	}
	config := []string{routes, `channels: {open_rate_per_caller: 1000000}`}
	if !group[0].Case.WorkersEnabled {
		config = append(config, `workers: {link: none}`)
	}
	s.start(config...)
	for i := range group {
		t.Run(group[i].Name, func(t *testing.T) { s.play(t, i, &group[i], workers[i]) })
	}
}

var allCapabilities = []string{
	"reusableLeases", "nativeSyncIn", "nativeSyncOut", "persistentProcessSessions", "independentControlCommands",
	"incrementalSessionOutput", "concurrentSyncOperations", "duplexCommandStream", "runnerWebSocketIngress",
}

// stage writes a case's records under ids of its own, its times moved to now.
func (s *scene) stage(i int, v *vector) *sample.Worker {
	shift := shiftOf(s.t, v.Case.Now)
	doc := sample.Document{}
	if v.Case.Live != nil {
		doc = *v.Case.Live
		doc.ID, doc.PluginID = own(i, doc.ID), own(i, doc.PluginID)
	}
	w := sample.New(doc)
	if v.Case.Live == nil {
		w.Misbehave(sample.Faults{LinkStatus: 404})
	}
	url := serveWorker(s.t, w)
	ids := recordIDs(v)
	for kind, raw := range v.Case.Records {
		if kind == "control" || string(raw) == "null" || ids[kind] == "" {
			continue
		}
		text := own(i, string(raw))
		text = moveTime(text, "expiresAt", shift)
		if kind == "worker" {
			text = strings.Replace(text, "http://127.0.0.1:9000", url, 1)
		}
		s.put(kind, own(i, ids[kind]), text)
	}
	if p := v.Case.Request.Principal; p != nil {
		expires := ""
		if p.ExpiresAt != "" {
			expires = moved(s.t, p.ExpiresAt, shift)
		}
		s.token(fmt.Sprintf("caller-%d", i), p.TenantID, expires)
	}
	return w
}

// recordIDs are the keys that the lease's ids lead to.
func recordIDs(v *vector) map[string]string {
	var lease struct {
		EnvironmentID any `json:"environmentId"`
		Pin           struct{ PluginID, WorkerID any }
	}
	_ = json.Unmarshal(v.Case.Records["lease"], &lease)
	ids := map[string]string{"lease": v.Case.Request.LeaseID}
	ids["environment"], _ = lease.EnvironmentID.(string)
	ids["plugin"], _ = lease.Pin.PluginID.(string)
	if ids["worker"], _ = lease.Pin.WorkerID.(string); ids["worker"] == "" {
		ids["worker"] = ids["plugin"]
	}
	for kind, id := range ids {
		if !authz.ValidID(id) {
			ids[kind] = ""
		}
	}
	return ids
}

// own makes the ids of the cases case i's own.
func own(i int, text string) string {
	for _, stem := range []string{"lease-1", "env-1", "plg-a", "plg-b", "wrk-a", "wrk-b"} {
		text = strings.ReplaceAll(text, stem, fmt.Sprintf("%s-%d", stem, i))
	}
	return text
}

func shiftOf(t testing.TB, now string) time.Duration {
	at, err := time.Parse(time.RFC3339Nano, now)
	if err != nil {
		t.Fatal(err)
	}
	return time.Since(at)
}

func moved(t testing.TB, text string, shift time.Duration) string {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return at.Add(shift).UTC().Format(time.RFC3339Nano)
}

// moveTime moves the time of a field that holds one, and leaves garbage.
func moveTime(text, field string, shift time.Duration) string {
	var record map[string]json.RawMessage
	var value string
	if json.Unmarshal([]byte(text), &record) != nil || json.Unmarshal(record[field], &value) != nil {
		return text
	}
	at, err := time.Parse(time.RFC3339Nano, value)
	if err != nil || at.Year() > 2200 {
		return text
	}
	next, _ := json.Marshal(at.Add(shift).UTC().Format(time.RFC3339Nano))
	return strings.Replace(text, string(record[field]), string(next), 1)
}

func (s *scene) play(t *testing.T, i int, v *vector, w *sample.Worker) {
	if v.Name == "lease-expires-nanosecond" {
		return // by the time it is asked, that nanosecond is over
	}
	headers := append([]string{}, handshakeHeaders...)
	if env := v.Case.Request.EnvironmentID; env != "" {
		headers = append(headers, "Sluice-Environment-Id", own(i, env))
	}
	caller := ""
	if v.Case.Request.Principal != nil {
		caller = fmt.Sprintf("caller-%d", i)
	}
	answer := s.get(caller, "/v1/leases/"+own(i, v.Case.Request.LeaseID)+"/"+v.Case.Request.Capability, headers...)
	defer answer.Body.Close()
	if v.Want.Allow {
		// The sample worker serves no such path: that it answered at all is
		// the grant.
		if answer.StatusCode != 404 || answer.Header.Get("Content-Type") == "application/problem+json" {
			t.Errorf("answered %d %v, want the worker's own 404", answer.StatusCode, answer.Header)
		}
		return
	}
	p := readProblem(t, answer)
	if p.Code != v.Want.Code || p.Title == "" || answer.StatusCode != authz.Code(v.Want.Code).Outward().Status {
		t.Errorf("answered %d %+v, want %s", answer.StatusCode, p, v.Want.Code)
	}
	if got := s.decision(p.DecisionID).Result.Reason; string(got) != v.Want.Reason {
		t.Errorf("recorded %s, want %s", got, v.Want.Reason)
	}
	switch v.Want.Reason {
	case "WORKER_UNAVAILABLE", "WORKER_CHANGED", "METHOD_NOT_VERIFIED":
	default:
		if got := w.Counts(); got != (sample.Counts{}) {
			t.Errorf("a gate before the worker's failed, and the worker was contacted: %+v", got)
		}
	}
}

func TestEvalAnswersEveryCase(t *testing.T) {
	for file, args := range map[string][]string{"decision.jsonl": {"eval"}, "teardown.jsonl": {"eval", "--teardown"}} {
		text, err := os.ReadFile("../../policy_test/" + file)
		if err != nil {
			t.Fatal(err)
		}
		var cases bytes.Buffer
		var rows []struct {
			Name string
			Case json.RawMessage
			Want map[string]any
		}
		for line := range bytes.Lines(text) {
			var row struct {
				Name string
				Case json.RawMessage
				Want map[string]any
			}
			if err := json.Unmarshal(line, &row); err != nil {
				t.Fatal(err)
			}
			rows = append(rows, row)
			cases.Write(append(row.Case, '\n'))
		}
		var out, errs bytes.Buffer
		if code := run(t.Context(), args, &cases, &out, &errs); code != 0 {
			t.Fatalf("%v exits with %d: %s", args, code, errs.Bytes())
		}
		answers := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
		if len(answers) != len(rows) {
			t.Fatalf("%d answers to %d cases", len(answers), len(rows))
		}
		for i, row := range rows {
			var got map[string]any
			if err := json.Unmarshal(answers[i], &got); err != nil {
				t.Fatal(err)
			}
			for key, want := range row.Want {
				if fmt.Sprint(got[key]) != fmt.Sprint(want) {
					t.Errorf("%s: %s is %v, want %v", row.Name, key, got[key], want)
				}
			}
		}
	}
}

func TestEvalGoesOnBehindALineThatIsTooLong(t *testing.T) {
	var out, errs bytes.Buffer
	long := `{"request": {"leaseId": "` + strings.Repeat("x", maxCase) + `"}}`
	in := strings.NewReader(long + "\n{\"request\": {}}\n" + long) // the last without its end
	if code := run(t.Context(), []string{"eval"}, in, &out, &errs); code != 1 {
		t.Errorf("exits with %d: %s", code, errs.Bytes())
	}
	tooLong := `{"error":"a case has at most 4194304 bytes"}`
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || lines[0] != tooLong || !strings.Contains(lines[1], `"UNAUTHENTICATED"`) || lines[2] != tooLong {
		t.Errorf("answered %.300q", lines)
	}
}

func TestEvalSaysWhatIsNoCase(t *testing.T) {
	var out, errs bytes.Buffer
	in := strings.NewReader("[]\n{}\n\nnonsense\n{\"request\": {}}\n") // also a line with nothing on it
	if code := run(t.Context(), []string{"eval"}, in, &out, &errs); code != 1 {
		t.Errorf("exits with %d: %s", code, errs.Bytes())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, want := range []string{`{"error":`, `{"error":`, `{"error":`, `{"error":`, `"UNAUTHENTICATED"`} {
		if len(lines) != 5 || !strings.Contains(lines[i], want) {
			t.Fatalf("answered %v", lines)
		}
	}
}
