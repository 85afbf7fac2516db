package main

import (
	"bytes"
	"encoding/json"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sluice/internal/authz"
	"strings"
)

// What a well-formed record may hold. Nothing here is refused, for the gates
// judge it, and other fields are dropped: it is what a writer probably got
// wrong. The words are those of the table of records in docs/records.md.

// knownFields are the fields of each kind of record.
var knownFields = map[authz.Kind][]string{
	authz.KindLease: {
		"id", "tenantId", "environmentId", "status", "leasePolicy", "provider", "providerLeaseId", "expiresAt",
		"configResolution", "capabilities", "pin", "metadata", "revision",
	},
	authz.KindEnvironment: {"id", "tenantId", "driver", "status", "revision"},
	authz.KindPlugin:      {"id", "tenantId", "pluginKey", "status", "environmentDrivers", "revision"},
	authz.KindWorker:      {"id", "tenantId", "pluginId", "url", "revision"},
	authz.KindControl:     {"duplexEnabled", "suspendedTenants", "revision"},
}

// knownInside are the fields of the objects inside a record.
var (
	knownPin    = []string{"driver", "pluginId", "driverKey", "workerId"}
	knownDriver = []string{"driverKey", "kind", "supportsReusableLeases", "sandboxCapabilities"}
)

// knownWords are the words that a field may be, by kind and path.
var knownWords = map[authz.Kind]map[string][]string{
	authz.KindLease: {
		"status":           {"active", "released", "expired", "failed", "retained", "pending_cleanup", "revoked"},
		"leasePolicy":      {"ephemeral", "reuse_by_environment", "reuse_by_execution_workspace", "retain_on_failure"},
		"configResolution": {"ok", "failed"},
	},
	authz.KindEnvironment: {"status": {"active", "archived"}},
	authz.KindPlugin:      {"status": {"installed", "ready", "disabled", "error", "upgrade_pending", "uninstalled"}},
}

var (
	knownFamilies = []string{"local", "plugin", "sandbox", "ssh"}
	knownKinds    = []string{"sandbox_provider", "environment_driver"}

	// shippedCapabilities stand in where no policies were loaded.
	shippedCapabilities = []authz.Capability{
		"concurrentSyncOperations", "duplexCommandStream", "incrementalSessionOutput", "independentControlCommands",
		"nativeSyncIn", "nativeSyncOut", "persistentProcessSessions", "reusableLeases", "runnerWebSocketIngress",
	}
)

// recordAdvice is about one well-formed record.
type recordAdvice struct {
	source       string
	text         []byte // as it is stored, for places; nil: no places
	places       map[string]jsonPlace
	capabilities []string
	found        []ConfigFault
}

// adviseRecord warns of what is allowed in a record and probably not meant.
// With placed the record's text is the source's, and warnings have places.
func adviseRecord(source string, kind authz.Kind, text []byte, placed bool, extraFields []string, capabilities []authz.Capability) []ConfigFault {
	var fields map[string]any
	if json.Unmarshal(text, &fields) != nil {
		return nil // malformed, and told of as such
	}
	a := &recordAdvice{source: source}
	if placed {
		a.text, a.places = text, jsonPlaces(text)
	}
	if len(capabilities) == 0 {
		capabilities = shippedCapabilities
	}
	for _, c := range capabilities {
		a.capabilities = append(a.capabilities, string(c))
	}
	known := slices.Clone(knownFields[kind])
	for _, extra := range extraFields {
		if name, ok := strings.CutPrefix(extra, string(kind)+"."); ok {
			known = append(known, name)
		}
	}
	a.names("", fields, known, fmt.Sprintf("is no field of a %s and is dropped", kind))
	for name, words := range knownWords[kind] {
		a.word(name, fields[name], words)
	}
	switch kind {
	case authz.KindLease:
		a.lease(fields)
	case authz.KindPlugin:
		a.plugin(fields)
	case authz.KindControl:
		a.control(fields)
	}
	slices.SortStableFunc(a.found, func(x, y ConfigFault) int {
		if x.Line != y.Line {
			return x.Line - y.Line
		}
		return x.Column - y.Column
	})
	return a.found
}

func (a *recordAdvice) lease(fields map[string]any) {
	if pin, ok := fields["pin"].(map[string]any); ok {
		a.names("pin", pin, knownPin, "is no field of a pin")
		a.word("pin.driver", pin["driver"], knownFamilies)
	}
	if granted, ok := fields["capabilities"].(map[string]any); ok {
		a.grants("capabilities", granted)
	}
}

func (a *recordAdvice) plugin(fields map[string]any) {
	drivers, _ := fields["environmentDrivers"].([]any)
	for i, entry := range drivers {
		driver, ok := entry.(map[string]any)
		if !ok {
			continue
		}
		at := index("environmentDrivers", i)
		a.names(at, driver, knownDriver, "is no field of a driver")
		a.word(at+".kind", driver["kind"], knownKinds)
		a.boolean(at+".supportsReusableLeases", driver["supportsReusableLeases"], "and the lease is denied for it")
		if declared, ok := driver["sandboxCapabilities"].(map[string]any); ok {
			a.grants(at+".sandboxCapabilities", declared)
		}
	}
}

func (a *recordAdvice) control(fields map[string]any) {
	a.boolean("duplexEnabled", fields["duplexEnabled"], "so every duplex channel is denied")
	tenants, _ := fields["suspendedTenants"].([]any)
	for i, tenant := range tenants {
		if id, ok := tenant.(string); ok && !authz.ValidID(id) {
			a.warn(index("suspendedTenants", i), false, "%q cannot be a tenant's id, so it suspends nobody", id)
		}
	}
}

// grants warns of opt-ins and declarations that are none.
func (a *recordAdvice) grants(at string, granted map[string]any) {
	a.names(at, granted, a.capabilities, "names no capability")
	for name, value := range granted {
		if slices.Contains(a.capabilities, name) {
			a.boolean(at+"."+name, value, "and the capability is denied for it")
		}
	}
}

func (a *recordAdvice) boolean(path string, value any, so string) {
	if _, ok := value.(bool); !ok && value != nil {
		a.warn(path, false, "is no boolean, %s", so)
	}
}

func (a *recordAdvice) word(path string, value any, words []string) {
	if text, ok := value.(string); ok && !slices.Contains(words, text) {
		a.warn(path, false, "nobody knows %q%s", text, orDidYouMean(text, words))
	}
}

// names warns of the members of an object that are not among the known.
func (a *recordAdvice) names(at string, object map[string]any, known []string, what string) {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if slices.Contains(known, name) {
			continue
		}
		path := name
		if at != "" {
			path = at + "." + name
		}
		meant := ""
		if near := nearest(name, known); near != "" {
			meant = fmt.Sprintf("; did you mean %s?", near)
		}
		a.warn(path, true, "%s%s", what, meant)
	}
}

func (a *recordAdvice) warn(path string, ofName bool, format string, args ...any) {
	f := ConfigFault{Source: a.source, Path: path, Message: fmt.Sprintf(format, args...)}
	if place, ok := a.places[path]; ok {
		offset := place.value
		if ofName {
			offset = place.name
		}
		before := a.text[:offset]
		f.Line, f.Column = 1+bytes.Count(before, []byte("\n")), len(before)-bytes.LastIndexByte(before, '\n')
	}
	a.found = append(a.found, f)
}

func orDidYouMean(word string, words []string) string {
	if near := nearest(word, words); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return "; there are " + strings.Join(words, ", ")
}

// nearest is the known word that a misspelt one probably is, or "".
func nearest(word string, known []string) string {
	best, least := "", max(1, len(word)/3)+1
	for _, k := range known {
		if d := distance(plainWord(word), plainWord(k)); d < least {
			best, least = k, d
		}
	}
	return best
}

// plainWord leaves out what spellings differ in: case, and signs between words.
func plainWord(s string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(s))
}

// distance counts the letters to insert, delete or replace (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0]++
		for j := range len(b) {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// jsonPlace is where a member of an object (or an item of a list) stands:
// offsets of its name and of its value.
type jsonPlace struct{ name, value int }

// jsonPlaces finds the members of a text by their path, such as
// environmentDrivers[0].kind.
func jsonPlaces(text []byte) map[string]jsonPlace {
	places := map[string]jsonPlace{}
	d := jsontext.NewDecoder(bytes.NewReader(text))
	walkPlaces(d, text, "", places)
	return places
}

// walkPlaces reads one value, whose own place is noted already.
func walkPlaces(d *jsontext.Decoder, text []byte, path string, places map[string]jsonPlace) {
	switch d.PeekKind() {
	case jsontext.KindBeginObject:
		_, _ = d.ReadToken()
		for d.PeekKind() == jsontext.KindString {
			name := tokenStart(d, text)
			token, err := d.ReadToken()
			if err != nil {
				return
			}
			member := token.String()
			if path != "" {
				member = path + "." + member
			}
			if d.PeekKind() == jsontext.KindInvalid {
				return
			}
			places[member] = jsonPlace{name, tokenStart(d, text)}
			walkPlaces(d, text, member, places)
		}
		_, _ = d.ReadToken()
	case jsontext.KindBeginArray:
		_, _ = d.ReadToken()
		for i := 0; d.PeekKind() != jsontext.KindEndArray && d.PeekKind() != jsontext.KindInvalid; i++ {
			start := tokenStart(d, text)
			places[index(path, i)] = jsonPlace{start, start}
			walkPlaces(d, text, index(path, i), places)
		}
		_, _ = d.ReadToken()
	default:
		if errors.Is(d.SkipValue(), io.EOF) {
			return
		}
	}
}

// tokenStart is where the next token begins: behind what only separates.
func tokenStart(d *jsontext.Decoder, text []byte) int {
	start := int(d.InputOffset())
	for start < len(text) && strings.IndexByte(" \t\r\n,:", text[start]) >= 0 {
		start++
	}
	return start
}
