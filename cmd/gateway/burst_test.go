package main

import (
	"fmt"
	"net/http"
	"sluice/internal/authz"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// asked is what came of one of many requests that were made at once.
type asked struct {
	status     int
	code       string
	decision   string
	retryAfter string
	conn       *websocket.Conn // an open channel's
}

// atOnce makes n requests at the same time.
func (s *scene) atOnce(n int, ask func(i int) asked) []asked {
	s.t.Helper()
	all, start := make([]asked, n), make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			all[i] = ask(i)
		})
	}
	close(start)
	wg.Wait()
	return all
}

// ask opens a duplex channel that may be refused, and holds it.
func (s *scene) ask(caller, lease string) asked {
	conn, answer, err := s.connect(caller, lease)
	switch {
	case err == nil:
		s.t.Cleanup(func() { _ = conn.CloseNow() })
		return asked{status: 101, conn: conn}
	case answer == nil:
		s.t.Errorf("refused without an answer: %v", err)
		return asked{}
	}
	p := readProblem(s.t, answer)
	return asked{status: p.Status, code: p.Code, decision: p.DecisionID, retryAfter: answer.Header.Get("Retry-After")}
}

// statuses counts answers by their status.
func statuses(all []asked) map[int]int {
	n := map[int]int{}
	for _, a := range all {
		n[a.status]++
	}
	return n
}

// ofBusy looks at every refusal of a burst: its status is one of the limit's, its
// code is that of a route which is busy, and the log has one of the reasons.
func (s *scene) ofBusy(what string, all []asked, want map[authz.Reason]int) {
	s.t.Helper()
	for _, a := range all {
		if a.status == 101 {
			continue
		}
		reason := s.decision(a.decision).Result.Reason
		if status, ok := want[reason]; !ok || a.status != status || a.code != "DUPLEX_CHANNEL_ROUTE_BUSY" {
			s.t.Errorf("%s: answered %d %s for %s", what, a.status, a.code, reason)
		}
		if seconds, err := strconv.Atoi(a.retryAfter); err != nil || seconds < 1 {
			s.t.Errorf("%s: Retry-After is %q", what, a.retryAfter)
		}
	}
}

// spread wants refusals to name different times to return.
func spread(t testing.TB, all []asked) {
	t.Helper()
	times := map[string]int{}
	for _, a := range all {
		if a.retryAfter != "" {
			times[a.retryAfter]++
		}
	}
	if len(times) < 2 {
		t.Errorf("all are told to return at once: %v", times)
	}
}

// However many callers come at the same time, no more channels are there than
// each limit allows, and the worker hears of nobody else.
func TestABurstNeverExceedsALimit(t *testing.T) {
	t.Parallel()
	const perLease, perTenant, open = 4, 7, 10
	s := newScene(t)
	for i := range 20 {
		s.lease(fmt.Sprint("acme-", i), nil)
		s.lease(fmt.Sprint("globex-", i), fields{"tenantId": "globex"})
	}
	s.start(fmt.Sprintf(`channels: {max_per_lease: %d, max_per_tenant: %d, max_open: %d, open_rate_per_caller: 100000, revocation_bound: 20s}`, perLease, perTenant, open))

	watched, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for {
			select {
			case <-watched:
				return
			case <-time.After(20 * time.Millisecond):
			}
			answer, err := http.Get("http://" + s.probes + "/livez")
			if err != nil {
				continue
			}
			_ = answer.Body.Close()
			if n, _ := strconv.Atoi(s.metric(`sluice_channels_open{kind="duplex"}`)); n > open {
				t.Errorf("%d channels at once", n)
			}
		}
	}()
	t.Cleanup(func() { close(watched); <-over })

	held := 0
	opened := func(what string, all []asked, n int) {
		t.Helper()
		if got := statuses(all)[101]; got != n {
			t.Errorf("%s: %d opened, not %d: %v", what, got, n, statuses(all))
		}
		held += n
		if c := s.worker.Counts(); c.Requests != held {
			t.Errorf("%s: the worker was asked %d times, not %d", what, c.Requests, held)
		}
	}
	const burst = 40
	ofLease := s.atOnce(burst, func(int) asked { return s.ask("alice", "acme-0") })
	opened("one lease", ofLease, perLease)
	s.ofBusy("one lease", ofLease, map[authz.Reason]int{authz.ReasonLeaseChannels: 429})

	ofTenant := s.atOnce(burst, func(i int) asked { return s.ask("alice", fmt.Sprint("acme-", 1+i%19)) })
	opened("one tenant", ofTenant, perTenant-perLease)
	s.ofBusy("one tenant", ofTenant, map[authz.Reason]int{authz.ReasonTenantChannels: 429})

	ofAll := s.atOnce(burst, func(i int) asked { return s.ask("bob", fmt.Sprint("globex-", i%20)) })
	opened("the gateway", ofAll, open-perTenant)
	s.ofBusy("the gateway", ofAll, map[authz.Reason]int{authz.ReasonOpenChannels: 503})

	spread(t, append(append(ofLease, ofTenant...), ofAll...))
	for _, a := range append(append(ofLease, ofTenant...), ofAll...) {
		if a.conn != nil {
			_ = a.conn.CloseNow()
		}
	}
	s.eventually("every place is given back", func() bool { return s.metric(`sluice_channels_open{kind="duplex"}`) == "0" })
	s.open("alice", "acme-0")
}

// A caller has a burst of twice its rate; then it is refused, whatever it asks
// for, and nobody else is.
func TestACallerOpensNoFasterThanItsRate(t *testing.T) {
	t.Parallel()
	const rate, burst = 5, 40
	s := newScene(t)
	s.token("carol", "acme", "")
	s.lease("lease-globex", fields{"tenantId": "globex"})
	s.start(fmt.Sprintf(`channels: {max_per_lease: 1000, open_rate_per_caller: %d, revocation_bound: 20s}`, rate))
	callers := map[authz.Reason]int{authz.ReasonCallerRate: 429}
	// passed holds the number of those that were not refused for their caller's
	// rate against what there is: its burst, and what came on top since it began,
	// without what it had before.
	passed := func(what string, since time.Time, all []asked, status, least, had int) {
		t.Helper()
		n := statuses(all)
		most := 2*rate + 1 + int(time.Since(since).Seconds()*rate) - had
		if n[status] < least || n[status] > most || n[429] == 0 || n[status]+n[429] != burst {
			t.Errorf("%s: answered %v, want %d to %d times %d, and 429", what, n, least, most, status)
		}
	}
	request := func(caller, path string, header ...string) func(int) asked {
		return func(int) asked {
			answer := s.get(caller, path, header...)
			p := readProblem(t, answer)
			return asked{status: p.Status, code: p.Code, decision: p.DecisionID, retryAfter: answer.Header.Get("Retry-After")}
		}
	}
	const duplex = "/v1/leases/lease-1/duplex"

	since := time.Now()
	opens := s.atOnce(burst, func(int) asked { return s.ask("alice", "lease-1") })
	passed("opens", since, opens, 101, 2*rate, 0)
	s.ofBusy("opens", opens, callers)
	spread(t, opens)
	opened := statuses(opens)[101]

	// It comes before the decision: what would be denied is told no more.
	denied := s.atOnce(burst, request("alice", "/v1/leases/lease-globex/duplex", handshakeHeaders...))
	passed("what is denied", since, denied, 403, 0, opened)
	// And behind the credential check: who shows two is not a caller yet.
	for _, a := range s.atOnce(5, func(int) asked {
		answer := s.get("alice", duplex, append([]string{"Sec-WebSocket-Protocol", "x, sluice.bearer.dG9rZW4tb2YtYWxpY2U"}, handshakeHeaders...)...)
		return asked{status: answer.StatusCode}
	}) {
		if a.status != 400 {
			t.Errorf("two credentials were answered %d", a.status)
		}
	}

	// Nobody else pays for it, of the tenant or of another.
	for _, other := range []struct{ caller, lease string }{{"carol", "lease-1"}, {"bob", "lease-globex"}} {
		s.open(other.caller, other.lease)
		opened++
	}

	// Without a credential that is known, the address is the caller.
	since = time.Now()
	strangers := s.atOnce(burst, func(i int) asked {
		return request([]string{"", "nobody", "somebody"}[i%3], duplex, handshakeHeaders...)(i)
	})
	passed("strangers", since, strangers, 401, 2*rate, 0)
	for _, a := range strangers {
		if a.status == 429 && (a.code != "DUPLEX_CHANNEL_ROUTE_BUSY" || s.decision(a.decision).Result.Reason != authz.ReasonCallerRate || a.retryAfter == "") {
			t.Errorf("a stranger was answered %+v", a)
		}
	}
	s.open("carol", "lease-1") // from the same address
	opened++
	if c := s.worker.Counts(); c.Requests != opened {
		t.Errorf("the worker was asked %d times, not %d", c.Requests, opened)
	}
}

// Many lose their channels by one change and are all back at once: each is
// refused before the worker hears of it, and the others do not notice.
func TestAReconnectStormTouchesNoWorkerAndNoNeighbour(t *testing.T) {
	t.Parallel()
	const many = 60
	s := newScene(t)
	s.lease("lease-globex", fields{"tenantId": "globex"})
	s.start(`channels: {max_per_lease: 1000, open_rate_per_caller: 100000, revocation_bound: 20s, drain_delay: 100ms, drain_timeout: 6s}`)
	mine := s.atOnce(many, func(i int) asked { return s.ask("alice", []string{"lease-1", "lease-2"}[i%2]) })
	if n := statuses(mine); n[101] != many {
		t.Fatalf("opened %v", n)
	}
	neighbours := s.atOnce(many, func(int) asked { return s.ask("bob", "lease-globex") })
	before := s.worker.Counts()

	s.put("control", "", `{"duplexEnabled": true, "suspendedTenants": ["acme"], "revision": 2}`)
	back := s.atOnce(3*many, func(i int) asked {
		if conn := mine[i%many].conn; i < many {
			if e := closed(t, conn); e.Code != 1008 {
				t.Errorf("closed with %d %q", e.Code, e.Reason)
			}
			return s.ask("alice", "lease-1")
		}
		s.ended([]string{"lease-1", "lease-2"}[i%2])
		return s.ask("alice", "lease-2")
	})
	for _, a := range back {
		if a.status != 403 || a.code != duplexDenied || a.retryAfter != "" {
			t.Errorf("who came back was answered %+v", a)
		}
	}
	if after := s.worker.Counts(); after.Requests != before.Requests {
		t.Errorf("the worker was touched: %+v, before %+v", after, before)
	}
	for _, n := range neighbours {
		s.echo(n.conn, "still here")
	}

	// A drain sends them all away, not all to return at the same time.
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var refusals []asked
	s.atOnce(len(neighbours), func(i int) asked {
		if e := closed(t, neighbours[i].conn); e.Code != 1001 {
			t.Errorf("closed with %d %q", e.Code, e.Reason)
		}
		_, answer, err := s.connect("bob", "lease-globex")
		if err == nil || answer == nil {
			return asked{} // the last are told when the gateway is about to end
		}
		p := readProblem(t, answer)
		mu.Lock()
		defer mu.Unlock()
		refusals = append(refusals, asked{status: p.Status, code: p.Code, retryAfter: answer.Header.Get("Retry-After")})
		return asked{}
	})
	if len(refusals) < many/4 {
		t.Errorf("of %d who came back only %d were answered", many, len(refusals))
	}
	for _, a := range refusals {
		if a.status != 503 || a.code != "SHUTTING_DOWN" || a.retryAfter == "" {
			t.Errorf("while it drains somebody was answered %+v", a)
		}
	}
	spread(t, refusals)
	if after := s.worker.Counts(); after.Requests != before.Requests {
		t.Errorf("the worker was touched while it drains: %+v, before %+v", after, before)
	}
}
