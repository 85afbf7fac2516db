package main

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sluice/internal/authz"
	"sluice/internal/worker/sample"
	"sluice/policies"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
)

// life is a gateway with workers that are processes and records in a real
// Redis.
type life struct {
	*redisScene
	process *workerProcess // of worker wrk-a, which nothing happens to

	once sync.Once
	conn *grpc.ClientConn

	oneMore sync.Once
	http2   *http2Caller
}

const lifeRoutes = `routes:
  - {path: "/v1/leases/{lease}/duplex", capability: duplexCommandStream, kind: duplex}
  - {path: "/v1/leases/{lease}/runner", capability: runnerWebSocketIngress, kind: duplex}
  - {path: "/v1/leases/{lease}/output", capability: incrementalSessionOutput, kind: stream, methods: [GET]}
  - {path: "/grpc.testing.TestService/FullDuplexCall", capability: duplexCommandStream, kind: duplex, lease_header: x-lease}`

func newLife(t testing.TB) *life {
	l := &life{redisScene: newRedisScene(t)}
	l.process = l.worker("wrk-a", "plg-a")
	l.plugin("plg-a", "ready", 1)
	return l
}

func document(id, plugin, generation string) sample.Document {
	return sample.Document{ID: id, PluginID: plugin, Status: "running", Generation: generation, SupportedMethods: sample.AllMethods}
}

// worker starts a worker's process and writes its record.
func (l *life) worker(id, plugin string) *workerProcess {
	l.t.Helper()
	w := startWorker(l.t, "127.0.0.1:0", document(id, plugin, "g1"))
	l.set("worker:"+id, fmt.Sprintf(`{"id": %q, "pluginId": %q, "url": %q, "revision": 1}`, id, plugin, w.url))
	return w
}

func (l *life) plugin(id, status string, revision int) {
	l.t.Helper()
	l.set("plugin:"+id, fmt.Sprintf(`{"id": %q, "status": %q, "revision": %d, "environmentDrivers": [{"driverKey": "box", "kind": "sandbox_provider", "sandboxCapabilities": {
		"duplexCommandStream": true, "incrementalSessionOutput": true, "concurrentSyncOperations": true, "runnerWebSocketIngress": true}},
		{"driverKey": "box", "kind": "environment_driver", "sandboxCapabilities": {"runnerWebSocketIngress": true}}]}`, id, status, revision))
}

// lease writes a lease with some of its fields changed.
func (l *life) lease(id string, change fields) {
	l.t.Helper()
	l.set("lease:"+id, l.leaseText(id, change))
}

// pinned is the pin of a lease to a worker of a plugin.
func pinned(worker, plugin string) fields {
	return fields{"driver": "sandbox", "pluginId": plugin, "driverKey": "box", "workerId": worker}
}

// credential adds a token, and returns what takes it away again.
func (l *life) credential(name, tenant, expires string) (withdraw func()) {
	l.t.Helper()
	before, _ := os.ReadFile(filepath.Join(l.dir, "tokens.yaml"))
	l.token(name, tenant, expires)
	after, _ := os.ReadFile(filepath.Join(l.dir, "tokens.yaml"))
	entry := strings.TrimPrefix(string(after), string(before))
	l.eventually(name+" is known", func() bool { return l.get(name, "/v1/leases/nobodys/capabilities").StatusCode == 403 })
	return func() {
		now, _ := os.ReadFile(filepath.Join(l.dir, "tokens.yaml"))
		l.write("tokens.yaml", strings.Replace(string(now), entry, "", 1))
	}
}

// ownPolicies copies the shipped policies, so that a test can edit them; the
// schema and the team's empty package come from the binary all the same.
func (s *scene) ownPolicies(to string) {
	s.t.Helper()
	err := fs.WalkDir(policies.FS, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.Contains(path, "schemas") || strings.Contains(path, "custom") {
			return err
		}
		text, err := policies.FS.ReadFile(path)
		s.write(filepath.Join(to, path), string(text))
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// cause is one of the things that take a channel's right away. What is not
// said: the caller is alice, all at once is made to happen by change, and the
// channel ends with 1008 inside the bound while its neighbour stays.
type cause struct {
	mine, neighbour string // leases
	caller          string // of mine
	path            string // of both, below the lease
	transports      []string
	change          func()
	when            time.Time // it happens by itself
	status          int
	code            string
	reason          authz.Reason
	why             string
	patience        time.Duration // until the end
}

const (
	duplexDenied = "DUPLEX_CHANNEL_CAPABILITY_DENIED"
	// bound is revocation_bound and what a busy machine adds.
	bound = 20 * time.Second
	// clock is how far ahead an expiry lies: all channels are open by then.
	clock = 15 * time.Second
)

// cause writes two leases, the first with some fields changed, and describes
// the usual.
func (l *life) cause(name string, change fields) cause {
	l.lease(name, change)
	l.lease(name+"-neighbour", nil)
	return cause{
		mine: name, neighbour: name + "-neighbour", caller: "alice", path: "duplex", transports: []string{"websocket"},
		status: 1008, code: duplexDenied, why: "revoked", patience: bound,
	}
}

// everywhere has a cause shown on every transport at once.
func (c *cause) everywhere() {
	c.transports = []string{"websocket", "websocket over HTTP/2", "grpc", "sse"}
}

// of the worker's, which is the end by 1014.
func (c *cause) ofTheWorker(reason authz.Reason) {
	c.status, c.code, c.reason, c.why = 1014, "WORKER_UNAVAILABLE", reason, "worker_failed"
}

var leaseCauses = map[string]struct {
	change fields
	reason authz.Reason
}{
	"its lease is released":       {fields{"status": "released"}, "LEASE_NOT_ACTIVE"},
	"its lease's expiry is past":  {fields{"expiresAt": "2026-01-01T00:00:00Z"}, "LEASE_EXPIRED"},
	"its lease changes hands":     {fields{"tenantId": "globex"}, "TENANT_MISMATCH"},
	"its lease loses its opt-in":  {fields{"capabilities": fields{}}, "LEASE_NOT_OPTED_IN"},
	"its lease contradicts a pin": {fields{"metadata": fields{"sandboxProviderPlugin": true, "pluginId": "plg-z"}}, "IDENTITY_CONFLICT"},
	"its lease is malformed":      {fields{"tenantId": 7}, "RECORD_MALFORMED"},
}

// causes are all of them; each has its own leases, and its own of whatever
// else it changes, so that all can happen at once.
var causes = map[string]func(*life) cause{
	"its lease is revoked": func(l *life) cause {
		c := l.cause("revoked", nil)
		c.everywhere()
		c.change, c.reason = func() { l.lease(c.mine, fields{"status": "revoked", "revision": 2}) }, "LEASE_NOT_ACTIVE"
		return c
	},
	"its lease is deleted": func(l *life) cause {
		c := l.cause("deleted", nil)
		c.change, c.reason = func() { l.cli("DEL", "sluice:lease:"+c.mine) }, "SNAPSHOT_MISSING"
		return c
	},
	"its lease expires by the clock": func(l *life) cause {
		when := time.Now().Add(clock)
		c := l.cause("expires", fields{"expiresAt": when.UTC().Format(time.RFC3339Nano)})
		c.everywhere()
		c.when, c.reason = when, "LEASE_EXPIRED"
		return c
	},
	"its lease is pinned to another worker": func(l *life) cause {
		l.worker("pin-there", "plg-a")
		c := l.cause("pinned", nil)
		l.lease(c.neighbour, fields{"pin": pinned("pin-there", "plg-a")})
		c.change = func() { l.lease(c.mine, fields{"pin": pinned("pin-there", "plg-a"), "revision": 2}) }
		c.ofTheWorker("WORKER_CHANGED")
		return c
	},
	"its lease leads to another sandbox": func(l *life) cause {
		c := l.cause("moved", nil)
		c.change = func() { l.lease(c.mine, fields{"providerLeaseId": "another", "revision": 2}) }
		c.ofTheWorker("WORKER_CHANGED")
		return c
	},
	"its environment is archived": func(l *life) cause {
		environment := func(id, status string, revision int) {
			l.set("environment:"+id, fmt.Sprintf(`{"id": %q, "tenantId": "acme", "driver": "sandbox", "status": %q, "revision": %d}`, id, status, revision))
		}
		environment("env-archived", "active", 1)
		environment("env-other", "active", 1)
		c := l.cause("archived", fields{"environmentId": "env-archived"})
		l.lease(c.neighbour, fields{"environmentId": "env-other"})
		c.change, c.reason = func() { environment("env-archived", "archived", 2) }, "ENVIRONMENT_NOT_ACTIVE"
		return c
	},
	"its plugin is disabled": func(l *life) cause {
		l.plugin("plg-disabled", "ready", 1)
		l.worker("plugin-disabled", "plg-disabled")
		c := l.cause("disabled", fields{"pin": pinned("plugin-disabled", "plg-disabled")})
		c.change, c.reason = func() { l.plugin("plg-disabled", "disabled", 2) }, "PLUGIN_NOT_READY"
		return c
	},
	"its tenant is suspended": func(l *life) cause {
		l.credential("carol", "initech", "")
		c := l.cause("suspended", fields{"tenantId": "initech"})
		c.caller, c.reason = "carol", "TENANT_SUSPENDED"
		c.change = func() {
			l.set("control", `{"duplexEnabled": true, "suspendedTenants": ["initech"], "revision": 2}`)
		}
		return c
	},
	"its credential is withdrawn": func(l *life) cause {
		withdraw := l.credential("dave", "acme", "")
		c := l.cause("withdrawn", nil)
		c.everywhere()
		c.caller, c.change, c.code, c.reason = "dave", withdraw, "UNAUTHENTICATED", "UNAUTHENTICATED"
		return c
	},
	"its credential expires by the clock": func(l *life) cause {
		when := time.Now().Add(clock)
		l.credential("erin", "acme", when.UTC().Format(time.RFC3339Nano))
		c := l.cause("credential", nil)
		c.everywhere()
		c.caller, c.when, c.code, c.reason = "erin", when, "CREDENTIAL_EXPIRED", "CREDENTIAL_EXPIRED"
		return c
	},
	"a rule of the team is swapped": func(l *life) cause {
		c := l.cause("ruled-out", fields{"metadata": fields{"sandboxProviderPlugin": true, "class": "restricted"}})
		c.everywhere()
		c.reason = "CUSTOM_DENY"
		c.change = func() {
			l.write("policies/team/rules.rego", "package sluice.custom\n\ndeny contains \"restricted class\" if input.snapshot.lease.metadata.class == \"restricted\"\n")
		}
		return c
	},
	"the shipped policy is swapped": func(l *life) cause {
		pin := pinned("wrk-a", "plg-a")
		pin["driver"] = "plugin"
		c := l.cause("swapped", fields{"pin": pin, "metadata": nil})
		c.path, c.code, c.reason = "runner", "SANDBOX_CAPABILITY_DENIED", "DRIVER_UNSUPPORTED"
		c.change = func() { // the family plugin does no runner any more
			const table = "policies/sluice/tables/data.json"
			text, _ := os.ReadFile(filepath.Join(l.dir, table))
			l.write(table, strings.Replace(string(text), `"concurrentSyncOperations", "runnerWebSocketIngress"]`, `"concurrentSyncOperations"]`, 1))
		}
		return c
	},
}

// workerCauses are those by which a worker of a lease's own takes its right.
var workerCauses = map[string]struct {
	change   func(*life, *workerProcess, sample.Document)
	reason   authz.Reason
	patience time.Duration
}{
	"its worker loses a method": {change: func(_ *life, w *workerProcess, doc sample.Document) {
		doc.SupportedMethods = doc.SupportedMethods[:7]
		w.update(doc)
	}, reason: "METHOD_NOT_VERIFIED"},
	"its worker is stopping": {change: func(_ *life, w *workerProcess, doc sample.Document) {
		doc.Status = "stopping"
		w.update(doc)
	}, reason: "WORKER_UNAVAILABLE"},
	"another process of its worker serves": {change: func(l *life, w *workerProcess, doc sample.Document) {
		w.leave() // the old process keeps its conversations; the new one has the port
		doc.Generation = "g2"
		startWorker(l.t, strings.TrimPrefix(w.url, "http://"), doc)
	}, reason: "WORKER_CHANGED", patience: 2 * bound},
	"its worker's link drops for good": {change: func(_ *life, w *workerProcess, _ sample.Document) {
		w.tell(order{Do: "misbehave", Faults: sample.Faults{LinkStatus: 503}})
		w.tell(order{Do: "drop"})
	}, reason: "WORKER_UNAVAILABLE"},
	// Ten seconds of silence are allowed.
	"its worker freezes": {
		change: func(_ *life, w *workerProcess, _ sample.Document) { w.signal(syscall.SIGSTOP) },
		reason: "WORKER_UNAVAILABLE", patience: 60 * time.Second,
	},
}

func allCauses() map[string]func(*life) cause {
	all := maps.Clone(causes)
	for name, row := range leaseCauses {
		all[name] = func(l *life) cause {
			c := l.cause(strings.ReplaceAll(strings.ReplaceAll(name, " ", "-"), "'", ""), nil)
			change := maps.Clone(row.change)
			change["revision"] = 2
			c.change, c.reason = func() { l.lease(c.mine, change) }, row.reason
			return c
		}
	}
	for name, row := range workerCauses {
		all[name] = func(l *life) cause {
			id := strings.ReplaceAll(strings.ReplaceAll(name, " ", "-"), "'", "")
			w := l.worker(id, "plg-a")
			c := l.cause(id, fields{"pin": pinned(id, "plg-a")})
			c.change = func() { row.change(l, w, document(id, "plg-a", "g1")) }
			if c.ofTheWorker(row.reason); row.reason == "METHOD_NOT_VERIFIED" {
				c.status, c.code, c.why = 1008, duplexDenied, "revoked"
			}
			c.patience = max(bound, row.patience)
			return c
		}
	}
	return all
}

func TestEveryCauseEndsItsChannelsAndTheNeighboursLoseNoByte(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	l.ownPolicies("policies")
	l.start(lifeRoutes, `policies: {path: policies, replace: true}`)

	flapping := l.flapping(t)
	shown := map[string]*show{}
	for name, prepare := range allCauses() {
		shown[name] = l.begin(t, prepare(l))
	}
	for _, s := range shown { // all at once
		s.happen()
	}
	flapping()
	var neighbours []*talk
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		t.Run(name, func(t *testing.T) { l.look(t, shown[name]) })
		neighbours = append(neighbours, shown[name].neighbours...)
	}
	t.Run("and every neighbour stays", func(t *testing.T) { stay(t, neighbours...) })
	t.Run("an operator closes it", l.byOperator)
	t.Run("duplex is switched off", l.killSwitch)
	t.Run("no revocation took longer than the bound", func(t *testing.T) {
		all, inside := l.metric("sluice_revocation_delay_seconds_count"), l.metric(`sluice_revocation_delay_seconds_bucket{le="5"}`)
		if all == "" || all == "0" || all != inside {
			t.Errorf("of %q revocations %q were inside", all, inside)
		}
	})
}

// show is one cause, with its channels and their neighbours.
type show struct {
	cause
	since      time.Time // it happened
	channels   []*talk
	neighbours []*talk
}

func (l *life) begin(t *testing.T, c cause) *show {
	s := &show{cause: c, since: c.when}
	for _, transport := range c.transports {
		s.channels = append(s.channels, l.talk(t, transport, c.caller, c.mine, c.path))
		if c.neighbour != "" {
			s.neighbours = append(s.neighbours, l.talk(t, transport, "alice", c.neighbour, c.path))
		}
	}
	return s
}

func (s *show) happen() {
	if s.change != nil {
		s.since = time.Now()
		s.change()
	}
}

// look sees that the channels have ended as the cause says.
func (l *life) look(t *testing.T, s *show) {
	for _, k := range s.channels {
		l.lookAt(t, k, s)
	}
	l.recordedEnds(t, s.cause, len(s.channels))
	if s.why == "revoked" { // a worker in trouble may not answer, or not be there
		l.eventually("the worker is let go", func() bool { return l.process.active(s.mine) == 0 })
	}
}

// lookAt holds the end of a channel against its cause: no earlier than it
// happened, inside the bound, in its words, and for its reason.
func (l *life) lookAt(t *testing.T, k *talk, s *show) {
	t.Helper()
	e := k.ends(t, max(time.Second, time.Until(s.since)+s.patience))
	if after := e.at.Sub(s.since); after < 0 || after > s.patience {
		t.Errorf("%s: ended after %v", k.name, after)
	}
	if status, code := s.asSeenBy(k.transport); e.status != status || e.code != code {
		t.Errorf("%s: ended with %d %s (%v), want %d %s", k.name, e.status, e.code, e.err, status, code)
	}
	if s.reason == "" {
		return // no decision was the cause
	}
	denial := l.recorded(func(r event) bool {
		c := &r.Custom.Sluice
		return c.Lease == s.mine && c.Phase == "recheck" && r.Result != nil && !r.Result.Allow && (e.decision == "" || r.ID == e.decision)
	})
	if denial.Result.Reason != s.reason {
		t.Errorf("%s: the recheck says %s, want %s", k.name, denial.Result.Reason, s.reason)
	}
}

// asSeenBy is how the cause ends a channel in a transport's own words.
func (c *cause) asSeenBy(transport string) (status int, code string) {
	switch {
	case transport == "sse":
		return 0, ""
	case transport == "grpc" && (c.code == "UNAUTHENTICATED" || c.code == "CREDENTIAL_EXPIRED"):
		return 16, c.code
	case transport == "grpc":
		return 7, c.code
	}
	return c.status, c.code
}

// reason is that of a decision, if it is recorded.
func (l *life) reason(decision string) authz.Reason {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.decisions {
		if e.ID == decision && e.Result != nil {
			return e.Result.Reason
		}
	}
	return ""
}

// recordedEnds waits for the records of n ends, and of what they rest on.
func (l *life) recordedEnds(t *testing.T, c cause, n int) {
	t.Helper()
	ends := func() (found []event) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, e := range l.decisions {
			if e.Custom.Sluice.Lease == c.mine && e.Custom.Sluice.Ended != nil {
				found = append(found, e)
			}
		}
		return found
	}
	l.eventually("every end is recorded", func() bool { return len(ends()) == n })
	for _, e := range ends() {
		if e.Custom.Sluice.Ended.Why != c.why || !e.Custom.Sluice.Ended.Opened {
			t.Errorf("recorded %+v, want %s", e.Custom.Sluice.Ended, c.why)
		}
	}
}

// flapping has a worker's link drop and come back, the same process being
// there again at once, and returns what looks whether a channel stayed.
func (l *life) flapping(t *testing.T) func() {
	w := l.worker("flapping", "plg-a")
	l.lease("flapping", fields{"pin": pinned("flapping", "plg-a")})
	k := l.talk(t, "websocket", "alice", "flapping", "duplex")
	return func() {
		for range 5 {
			w.tell(order{Do: "drop"})
			k.until(t, k.heard.Load()+10)
		}
		stay(t, k)
	}
}

// byOperator: an operator's word is no decision, and takes nobody's right.
func (l *life) byOperator(t *testing.T) {
	c := l.cause("by-operator", nil)
	c.everywhere()
	c.code, c.why = "CLOSED_BY_OPERATOR", "operator"
	c.change = func() {
		if status, _, body := l.operator("DELETE", "/v1/channels?lease="+c.mine, ""); status != 200 || !strings.Contains(body, "4") {
			t.Errorf("the operator was answered %d %s", status, body)
		}
	}
	s := l.begin(t, c)
	s.happen()
	l.look(t, s)
	stay(t, append(s.neighbours, l.talk(t, "websocket", "alice", c.mine, "duplex"))...)
}

// killSwitch comes last: it ends every duplex channel there is. What is no
// duplex command stream is not its business.
func (l *life) killSwitch(t *testing.T) {
	c := l.cause("switched-off", nil)
	c.transports = []string{"websocket", "grpc"}
	c.reason, c.neighbour = "KILL_SWITCH", ""
	c.change = func() { l.set("control", `{"duplexEnabled": false, "suspendedTenants": ["initech"], "revision": 3}`) }
	l.lease("not-duplex", nil)
	runner, events := l.talk(t, "websocket", "alice", "not-duplex", "runner"), l.talk(t, "sse", "alice", "not-duplex", "")
	s := l.begin(t, c)
	s.happen()
	l.look(t, s)
	stay(t, runner, events)
}
