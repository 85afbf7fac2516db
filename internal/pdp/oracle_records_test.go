package pdp_test

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"time"
)

// facts is a case of `gateway eval` after decoding: the records are
// well-formed or absent, and malformed names the needed ones that are bad
// (decision.md section 2).
type facts struct {
	now            time.Time
	phase          *node
	workersEnabled bool
	stale          bool
	opened         *node // the generation that the channel was opened under

	capability    string // "" when the request names none
	environmentID *node
	principal     *node
	method        *node

	lease, environment, plugin, worker, control, live *node

	malformed []string
	stored    string // the text of the records and of the lease's key
}

// readCase decodes one line of `gateway eval`.
func readCase(line []byte) (*facts, error) {
	c, err := scan(line)
	if err != nil {
		return nil, err
	}
	if !c.is(object) || !c.at("request").is(object) {
		return nil, errors.New("reading a case: it is no object with a request")
	}
	now, ok := parseTime(c.at("now"))
	if !ok {
		return nil, fmt.Errorf("reading a case: its time is no time: %s", c.raw)
	}
	request := c.at("request")
	f := &facts{
		now:            now,
		phase:          c.at("phase"),
		workersEnabled: !c.at("workersEnabled").set() || c.at("workersEnabled").isTrue(),
		stale:          c.at("stale").set() && !c.at("stale").isFalse(),
		opened:         c.at("openedGeneration"),
		environmentID:  request.at("environmentId"),
		principal:      request.at("principal"),
		method:         c.at("method"),
	}
	if capability := request.at("capability"); capability.is(text) {
		f.capability = capability.str
	}
	f.join(request.at("leaseId"), c.at("records"), c.at("live"))
	f.stored = request.at("leaseId").text() + c.at("records").text()
	return f, nil
}

// join follows the lease's ids. A record that the snapshot needs and that is
// malformed is named; a bad worker record or live document is just not there.
func (f *facts) join(leaseID, records, live *node) {
	f.lease = f.needed("lease", leaseID, records)
	f.control = f.needed("control", nil, records)
	if f.lease.at("environmentId").set() {
		f.environment = f.needed("environment", f.lease.at("environmentId"), records)
	}
	if isID(f.lease.at("pin", "pluginId")) {
		f.plugin = f.needed("plugin", f.lease.at("pin", "pluginId"), records)
	}
	if worker := f.leaseWorker(); isID(worker) && wellFormed("worker", worker, records.at("worker")) {
		f.worker = records.at("worker")
	}
	if wellFormed("live", nil, live) {
		f.live = live
	}
}

func (f *facts) needed(name string, key, records *node) *node {
	record := records.at(name)
	switch {
	case !record.set():
		return nil
	case wellFormed(name, key, record):
		return record
	}
	f.malformed = append(f.malformed, name)
	return nil
}

// leaseWorker is the id of the lease's worker: the pinned one or, when that is
// absent, the plugin's id.
func (f *facts) leaseWorker() *node {
	if worker := f.lease.at("pin", "workerId"); worker.set() {
		return worker
	}
	return f.lease.at("pin", "pluginId")
}

// rule is one row of the table of types.
type rule struct {
	field    string
	required bool
	ok       func(*node) bool
}

// types is the table of types of decision.md section 2.
var types = map[string][]rule{
	"lease": {
		{"revision", true, isRevision},
		{"id", true, isID},
		{"tenantId", true, isID},
		{"environmentId", false, isID},
		{"status", true, isNonEmptyString},
		{"leasePolicy", false, isString},
		{"provider", false, isString},
		{"configResolution", false, isString},
		{"providerLeaseId", false, isEmptyOrToken},
		{"expiresAt", false, isTime},
		{"capabilities", false, isObject},
		{"metadata", false, isObject},
		{"pin", false, isObject},
	},
	"environment": {
		{"revision", true, isRevision},
		{"id", true, isID},
		{"tenantId", true, isID},
		{"status", true, isNonEmptyString},
		{"driver", false, isString},
	},
	"plugin": {
		{"revision", true, isRevision},
		{"id", true, isID},
		{"tenantId", false, isID},
		{"status", true, isNonEmptyString},
		{"pluginKey", false, isString},
		{"environmentDrivers", false, listOf(isDriverEntry)},
	},
	"worker": {
		{"revision", true, isRevision},
		{"id", true, isID},
		{"pluginId", true, isID},
		{"tenantId", false, isID},
		{"url", true, isNonEmptyString},
	},
	"control": {
		{"revision", true, isRevision},
		{"suspendedTenants", false, listOf(isString)},
	},
	"live": {
		{"id", true, isID},
		{"pluginId", true, isID},
		{"status", true, isNonEmptyString},
		{"generation", true, isToken},
		{"supportedMethods", false, listOf(isString)},
	},
}

const (
	maxLevels = 32
	maxText   = 256 * 1024
)

// wellFormed judges one record, or the live document, as decision.md section 2
// does. The control record and the live document are under no key.
func wellFormed(name string, key, record *node) bool {
	if !record.is(object) || record.fault != "" || record.levels > maxLevels || len(record.raw) > maxText {
		return false
	}
	for _, r := range types[name] {
		value := record.at(r.field)
		if value.set() && !r.ok(value) || !value.set() && r.required {
			return false
		}
	}
	if name == "control" || name == "live" {
		return true
	}
	return key.is(text) && record.at("id").says(key.str)
}

var (
	idForm    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)
	tokenForm = regexp.MustCompile(`^[!-~]{1,512}$`)
	timeForm  = regexp.MustCompile(`^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:Z|([+-])(\d\d):(\d\d))$`)

	// A number is an integer by its text: no fraction, no exponent, no sign.
	revisionForm = regexp.MustCompile(`^\d+$`)
	revisionMax  = new(big.Int).SetUint64(1<<63 - 1)
)

func isString(n *node) bool         { return n.is(text) }
func isNonEmptyString(n *node) bool { return n.is(text) && n.str != "" }
func isObject(n *node) bool         { return n.is(object) }
func isEmptyOrToken(n *node) bool   { return n.says("") || isToken(n) }

func isID(n *node) bool { return n.is(text) && idForm.MatchString(n.str) }

func isToken(n *node) bool { return n.is(text) && tokenForm.MatchString(n.str) }

func isRevision(n *node) bool {
	if !n.is(number) || !revisionForm.Match(n.raw) {
		return false
	}
	v, ok := new(big.Int).SetString(string(n.raw), 10)
	return ok && v.Cmp(revisionMax) <= 0
}

func isDriverEntry(n *node) bool {
	return n.is(object) && n.at("driverKey").is(text) && n.at("kind").is(text)
}

func listOf(ok func(*node) bool) func(*node) bool {
	return func(n *node) bool {
		if !n.is(list) {
			return false
		}
		for _, item := range n.items {
			if !ok(item) {
				return false
			}
		}
		return true
	}
}

func isTime(n *node) bool {
	_, ok := parseTime(n)
	return ok
}

// parseTime reads the one form of a time. Times are compared to the
// nanosecond, so digits beyond it are cut: the earlier instant, the safer one.
func parseTime(n *node) (time.Time, bool) {
	if !n.is(text) {
		return time.Time{}, false
	}
	m := timeForm.FindStringSubmatch(n.str)
	if m == nil {
		return time.Time{}, false
	}
	year, month, day := atoi(m[1]), atoi(m[2]), atoi(m[3])
	hour, minute, second := atoi(m[4]), atoi(m[5]), atoi(m[6])
	offset := time.Duration(atoi(m[9]))*time.Hour + time.Duration(atoi(m[10]))*time.Minute
	if hour > 23 || minute > 59 || second > 59 || atoi(m[9]) > 23 || atoi(m[10]) > 59 {
		return time.Time{}, false
	}
	nanos := atoi((m[7] + "000000000")[:9])
	t := time.Date(year, time.Month(month), day, hour, minute, second, nanos, time.UTC)
	if t.Year() != year || int(t.Month()) != month || t.Day() != day {
		return time.Time{}, false
	}
	if m[8] == "-" {
		return t.Add(offset), true
	}
	return t.Add(-offset), true
}

// atoi reads digits that the form has already counted; none are zero.
func atoi(digits string) int {
	v, _ := strconv.Atoi(digits)
	return v
}
