package main

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"sluice/internal/authz"
	"sluice/internal/decisionlog"
	"sluice/internal/worker"
	"strings"
	"testing"
)

// What the documents say of names is held against the program here.

func readDoc(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docRoot, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// matches returns the first group of every match, sorted and once.
func matches(pattern, text string) []string {
	var found []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// mustName fails for every name that a document does not hold as code.
func mustName(t *testing.T, path string, names []string) {
	t.Helper()
	if len(names) == 0 {
		t.Errorf("nothing was looked for in %s", path)
	}
	code := codeOf(readDoc(t, path))
	for _, name := range names {
		if !regexp.MustCompile(`(^|[^\w/])` + regexp.QuoteMeta(name) + `($|[^\w/])`).MatchString(code) {
			t.Errorf("%s does not name %s", path, name)
		}
	}
}

// codeOf is what stands between backquotes, one span a line.
func codeOf(text string) string {
	code := ""
	for line := range strings.Lines(text) {
		for i, part := range strings.Split(line, "`") {
			if i%2 == 1 {
				code += part + "\n"
			}
		}
	}
	return code
}

func TestEveryTestThatTheDocumentsNameIsThere(t *testing.T) {
	there := map[string]bool{}
	err := filepath.WalkDir(docRoot, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, name := range matches(`(?m)^func (Test\w+)\(`, string(text)) {
				there[name] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range documents(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range matches("`(Test\\w+)`", string(text)) {
			if !there[name] {
				t.Errorf("%s names %s, which is not there", path, name)
			}
		}
	}
}

func TestEveryLinkOfTheDocumentsLeadsSomewhere(t *testing.T) {
	for _, path := range documents(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range matches(`\]\(([^)\s]+)\)`, string(text)) {
			file, anchor, _ := strings.Cut(link, "#")
			if strings.Contains(link, "://") {
				continue
			}
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			led, err := os.ReadFile(target)
			info, statErr := os.Stat(target)
			if statErr != nil || anchor != "" && (err != nil || !slices.Contains(anchors(string(led)), anchor)) || err != nil && !info.IsDir() {
				t.Errorf("%s: the link %s leads nowhere", path, link)
			}
		}
	}
}

// anchors are the headings of a document as links name them.
func anchors(text string) []string {
	var found []string
	for _, heading := range matches(`(?m)^#+ (.*)$`, text) {
		plain := regexp.MustCompile("[^a-z0-9 -]").ReplaceAllString(strings.ToLower(heading), "")
		found = append(found, strings.ReplaceAll(plain, " ", "-"))
	}
	return found
}

// rows are the cells of a document's table rows, without their backquotes.
func rows(text string) [][]string {
	var found [][]string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i, cell := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cell), "`")
		}
		found = append(found, cells)
	}
	return found
}

func TestTheCodesAreThoseOfTheDocuments(t *testing.T) {
	codes := []authz.Code{
		authz.CodeDuplexDenied, authz.CodeDuplexUnsupported, authz.CodeCapabilityDenied, authz.CodeUnauthenticated,
		authz.CodeCredentialExpired, authz.CodeRouteBusy, authz.CodeWorkerUnavailable, authz.CodeUnavailable,
	}
	table := rows(readDoc(t, "README.md"))
	for _, code := range codes {
		o := code.Outward()
		again := map[bool]string{true: "yes", false: "no"}[o.Retryable]
		want := []string{string(code), fmt.Sprint(o.Status), fmt.Sprint(o.GRPC), fmt.Sprint(o.Close), again}
		if code == authz.CodeRouteBusy {
			want[1], want[3] = "429 or 503", "-" // by whose limit it is; nothing open ends with it
		}
		if !slices.ContainsFunc(table, func(row []string) bool { return len(row) == 6 && slices.Equal(row[:5], want) }) {
			t.Errorf("the README has no row %v", want)
		}
	}
}

func TestTheGatesAreThoseOfTheDocuments(t *testing.T) {
	var tables struct {
		Gates []struct {
			Gate          int
			Stage, Reason string
			FailsWhen     string `json:"fails_when"`
		}
	}
	if err := json.Unmarshal([]byte(readDoc(t, "policies/sluice/tables/data.json")), &tables); err != nil || len(tables.Gates) != 32 {
		t.Fatalf("%d gates, %v", len(tables.Gates), err)
	}
	var found [][]string
	for _, row := range rows(readDoc(t, "docs/policies.md")) {
		if len(row) == 4 && regexp.MustCompile(`^\d+$`).MatchString(row[0]) {
			found = append(found, row)
		}
	}
	for i, g := range tables.Gates {
		want := []string{fmt.Sprint(g.Gate), g.Stage, g.Reason, g.FailsWhen}
		if i >= len(found) || !slices.Equal(found[i], want) {
			t.Errorf("docs/policies.md has no row %q in its place", want)
		}
	}
}

func TestTheReasonsOfTheGatewayAreDocumented(t *testing.T) {
	mustName(t, "docs/policies.md", matches(`Reason = "([A-Z_]+)"`, readDoc(t, "internal/authz/decision.go")))
}

func TestTheAdminCallsAreDocumented(t *testing.T) {
	mustName(t, "docs/operations.md", matches(`"((?:GET|PUT|POST|DELETE) /v1/[^"]*)"`, readDoc(t, "cmd/gateway/admin.go")))
}

func TestTheEndsOfChannelsAreDocumented(t *testing.T) {
	mustName(t, "docs/operations.md", matches(`Why = "([a-z_]+)"`, readDoc(t, "internal/channel/ending.go")))
	var states []string
	for _, state := range worker.AllStates {
		states = append(states, string(state))
	}
	mustName(t, "docs/operations.md", states)
}

func TestTheFieldsOfTheDecisionLogAreDocumented(t *testing.T) {
	var names []string
	for _, of := range []any{decisionlog.Sluice{}, decisionlog.Ended{}, decisionlog.Result{}, decisionlog.Event{}} {
		fields := reflect.TypeOf(of)
		for i := range fields.NumField() {
			name, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ",")
			if name != "type" {
				names = append(names, name)
			}
		}
	}
	mustName(t, "docs/operations.md", names)
}

func TestTheFieldsOfRecordsAreDocumented(t *testing.T) {
	text := readDoc(t, "internal/snapshot/types.go")
	table := rows(readDoc(t, "docs/records.md"))
	for _, kind := range []string{"Lease", "Environment", "Plugin", "Worker", "Control"} {
		block := regexp.MustCompile(`(?s)authz\.Kind` + kind + `: \{(.*?)\n\t\}`).FindString(text)
		names := append(matches(`\{"(\w+)",`, block), "revision")
		row := slices.IndexFunc(table, func(row []string) bool { return row[0] == strings.ToLower(kind) })
		if row < 0 || len(names) < 2 {
			t.Fatalf("no row of %s", kind)
		}
		for _, name := range names {
			if !strings.Contains(table[row][3], "`"+name+"`") && !strings.HasPrefix(table[row][3], name+"`") {
				t.Errorf("docs/records.md does not name %s of a %s: %s", name, kind, table[row][3])
			}
		}
	}
}

// plainMetric is a metric's name without the endings that its type adds.
func plainMetric(name string) string {
	return strings.TrimSuffix(strings.TrimSuffix(name, "_total"), "_seconds")
}

func TestTheMetricsAreThoseOfTheDocuments(t *testing.T) {
	t.Parallel()
	s := newScene(t).start()
	conn := s.open("alice", "lease-1")
	s.lease("lease-1", fields{"status": "revoked", "revision": 2})
	closed(t, conn)
	s.ended("lease-1")
	answer, err := http.Get("http://" + s.probes + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	var there, said []string
	for _, name := range matches(`(?m)^# TYPE (sluice_\w+) `, string(text)) {
		there = append(there, plainMetric(name))
	}
	for _, name := range matches("(?m)^\\| `(sluice_\\w+)", readDoc(t, "docs/operations.md")) {
		said = append(said, plainMetric(name))
	}
	slices.Sort(there)
	slices.Sort(said)
	if !slices.Equal(there, said) {
		t.Errorf("the gateway shows\n%s\nand docs/operations.md says\n%s", strings.Join(there, "\n"), strings.Join(said, "\n"))
	}
}

// The keys that the README says are refused, with a value that would turn them
// on.
var unsupported = map[string]string{
	"opa": "{services: {}}", "extauthz": "{address: \"127.0.0.1:1\"}", "forward_auth": "{address: \"127.0.0.1:1\"}",
	"identity.jwt": "[{issuer: x}]", "identity.mtls": "{trust_domain: x}",
	"policies.max_age": "1h", "explain": "", "replay": "", "policy": "",
}

func TestWhatIsNotInThisVersionIsRefused(t *testing.T) {
	_, section, _ := strings.Cut(readDoc(t, "README.md"), "## Not in this version")
	section, _, _ = strings.Cut(section, "\n\nMore:")
	for _, key := range matches("`([a-z_.]+)`", section) {
		value, known := unsupported[key]
		switch {
		case !known:
			t.Errorf("the README says that %s is refused, and nobody looked", key)
		case value != "":
			if got := runWith(t, "", "check", "--set", key+"="+value); got.code != exitNo || !strings.Contains(got.stderr, "not supported by this version") {
				t.Errorf("%s: exit %d: %s", key, got.code, got.stderr)
			}
		}
	}
	_, source, _ := strings.Cut(readDoc(t, "cmd/gateway/config_judge.go"), ") judgeSupport() {")
	source, _, _ = strings.Cut(source, "\n}")
	for _, key := range matches(`\{"([a-z_.]+)", `, source) {
		if !slices.ContainsFunc(matches("`([a-z_.]+)`", section), func(said string) bool { return key == said || strings.HasPrefix(key, said+".") }) {
			t.Errorf("the README does not say that %s is refused", key)
		}
	}
}
