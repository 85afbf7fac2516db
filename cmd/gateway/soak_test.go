//go:build soak

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sluice/internal/snapshot/redistest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// soak is a gateway under everything that happens to one in a day, for as long
// as SOAK says: channels open, speak and close, leases are revoked and come
// back, policies are swapped, links drop, operators close, the configuration is
// read again and Redis restarts. Nothing may end that was not told to, nothing
// that was told to may stay, and nothing may grow.
type soak struct {
	*life
	leases  []*soakLease
	ctx     context.Context
	store   sync.Mutex     // held while Redis is down
	pending sync.WaitGroup // revocations that are looked after

	opens, closes, revocations, revoked, byOperator, swaps, restarts, refused, messages atomic.Int64
	lost, wrong                                                                         atomic.Int64
}

type soakLease struct {
	id string

	mu       sync.Mutex
	revision int
	revoked  bool
	restored time.Time // after the last revocation
	conns    map[*soakConn]struct{}
}

type soakConn struct {
	opened time.Time
	ended  chan struct{}
}

const (
	soakLeases    = 400
	soakPerLease  = 5
	soakBound     = 10 * time.Second // revocation_bound as it is set here, and a restart of Redis
	soakRevokeFor = 2 * time.Second
)

func TestSoak(t *testing.T) {
	length := 10 * time.Minute
	if text := os.Getenv("SOAK"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	s := newSoak(t)
	var stop context.CancelFunc
	s.ctx, stop = context.WithCancel(t.Context())
	defer func() { stop() }()

	// Everything once, and away again: what a process takes only once is not
	// what grows.
	s.live(t, min(length/5, 30*time.Second))
	empty := s.measure("empty, warm")
	start, end := s.live(t, length)
	drained := s.measure("empty again")

	t.Logf("\n%s\n%s\n%s\n%s", empty, start, end, drained)
	t.Logf("%d opens (%d refused), %d messages, %d closes, %d revocations of %d channels, %d closed by operators, %d policy swaps, %d restarts of Redis: %d lost, %d wrong",
		s.opens.Load(), s.refused.Load(), s.messages.Load(), s.closes.Load(), s.revocations.Load(), s.revoked.Load(), s.byOperator.Load(), s.swaps.Load(), s.restarts.Load(), s.lost.Load(), s.wrong.Load())
	t.Logf("undecided:\n%s", strings.Join(s.undecided(), ""))
	if s.lost.Load() > 0 || s.wrong.Load() > 0 {
		t.Error("channels ended that should not have, or stayed")
	}
	for _, pair := range [][2]reading{{start, end}, {empty, drained}} {
		was, is := pair[0], pair[1]
		if is.goroutines > was.goroutines*1.02+20 || is.files > was.files*1.02+20 || is.memory > was.memory*1.2+16<<20 {
			t.Errorf("grew from\n%s to\n%s", was, is)
		}
	}
}

func newSoak(t *testing.T) *soak {
	scene := newScene(t)
	scene.forget = true
	l := &life{redisScene: &redisScene{scene: scene, port: freePort(t)}}
	// It keeps what it was told: a restart loses no revocation.
	l.redis = redistest.Start(t, "--bind", "127.0.0.1", "--port", l.port, "--appendonly", "yes", "--appendfsync", "always")
	l.set("control", `{"duplexEnabled": true, "revision": 1}`)
	l.plugin("plg-a", "ready", 1)
	l.process = l.worker("wrk-a", "plg-a")
	s := &soak{life: l}
	for i := range soakLeases {
		lease := &soakLease{id: fmt.Sprintf("lease-%d", i), conns: map[*soakConn]struct{}{}}
		s.leases = append(s.leases, lease)
		s.write(lease, "active")
	}
	l.scene.write("rules/team.rego", "package sluice.custom\n")
	l.start(lifeRoutes, `policies: {path: rules}`, soakChannels(0), `evaluation: {timeout: 2s}`)
	return s
}

// soakChannels is a section that a reload finds changed. The callers and the
// worker have the same processors as the gateway: that a revocation takes no
// longer than a second is shown elsewhere.
func soakChannels(n int) string {
	return fmt.Sprintf(`channels: {max_per_tenant: %d, open_rate_per_caller: 100000, revocation_bound: 5s, recheck_interval: 20s, drain_delay: 100ms, drain_timeout: 5s}`, 100000+n)
}

func (s *soak) write(l *soakLease, status string) {
	l.revision++
	text := s.leaseText(l.id, fields{"status": status, "revision": l.revision, "metadata": fields{"sandboxProviderPlugin": true, "class": "open"}})
	if err := s.redis.Client.Set(context.Background(), "sluice:lease:"+l.id, text, 0).Err(); err != nil {
		s.t.Errorf("writing a lease: %v", err)
	}
}

// live keeps 2,000 channels for a time, has everything happen to them, and
// returns what the gateway held when they were all open, at first and at last.
func (s *soak) live(t *testing.T, length time.Duration) (start, end reading) {
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	var callers sync.WaitGroup
	for _, l := range s.leases {
		for range soakPerLease {
			callers.Go(func() { s.call(ctx, l) })
		}
	}
	s.full()
	start = s.measure("start")
	busy, rest := context.WithTimeout(ctx, length)
	defer rest()
	var happens sync.WaitGroup
	for every, happen := range map[time.Duration]func(int){
		100 * time.Millisecond:     func(int) { s.revoke() },
		7 * time.Second:            s.swap,
		11 * time.Second:           func(int) { s.process.tell(order{Do: "drop"}) },
		13 * time.Second:           func(int) { s.operate() },
		17 * time.Second:           s.reload,
		length/4 + time.Second:     func(int) { s.restartRedis() },
		min(time.Minute, length/2): func(int) { t.Logf("%s", s.measure("busy")) },
	} {
		happens.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-busy.Done():
					return
				case <-time.After(every):
					happen(n)
				}
			}
		})
	}
	happens.Wait()
	s.pending.Wait() // what is revoked comes back
	s.full()
	end = s.measure("end")
	stop()
	callers.Wait()
	return start, end
}

// full waits until every channel is open.
func (s *soak) full() {
	want := strconv.Itoa(soakLeases * soakPerLease)
	for deadline := time.Now().Add(2 * time.Minute); s.metric(`sluice_channels_open{kind="duplex"}`) != want; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("there are %s channels, not %s", s.metric(`sluice_channels_open{kind="duplex"}`), want)
		}
	}
}

// call is one caller: it opens, speaks now and then, is closed or closes, and
// comes again.
func (s *soak) call(ctx context.Context, l *soakLease) {
	for ctx.Err() == nil {
		if !s.converse(ctx, l) {
			select {
			case <-ctx.Done():
			case <-time.After(500*time.Millisecond + rand.N(time.Second)):
			}
		}
	}
}

func (s *soak) converse(ctx context.Context, l *soakLease) bool {
	began := time.Now()
	conn, answer, err := websocket.Dial(ctx, "ws://"+s.address+"/v1/leases/"+l.id+"/duplex", &websocket.DialOptions{HTTPHeader: bearer("alice")})
	if err != nil {
		switch {
		case ctx.Err() != nil:
		case answer != nil && (answer.StatusCode == 503 || answer.StatusCode == 403 && l.down(began)):
			s.refused.Add(1)
		default:
			s.complain("an open failed: %v", err)
		}
		return false
	}
	defer conn.CloseNow()
	s.opens.Add(1)
	c := l.hold(began)
	defer l.drop(c)
	heard, ended := make(chan string), make(chan error, 1)
	go func() {
		for {
			_, word, err := conn.Read(ctx)
			if err != nil {
				ended <- err
				return
			}
			select {
			case heard <- string(word):
			case <-ctx.Done():
			}
		}
	}()
	leaves := time.After(time.Duration(rand.ExpFloat64() * float64(40*time.Second)))
	every := time.Second + rand.N(2*time.Second)
	for n := int64(rand.N(1000)); ; n++ {
		select {
		case <-ctx.Done():
			return true
		case <-leaves:
			s.closes.Add(1)
			_ = conn.Close(websocket.StatusNormalClosure, "")
			return true
		case err := <-ended:
			s.judge(ctx, l, c, err)
			return true
		case <-time.After(every):
		}
		if err := conn.Write(ctx, websocket.MessageText, []byte(spoken(n))); err != nil {
			s.judge(ctx, l, c, <-ended)
			return true
		}
		select {
		case err := <-ended:
			s.judge(ctx, l, c, err)
			return true
		case word := <-heard:
			if s.messages.Add(1); word != spoken(n) {
				s.complain("%.20q came back for %.20q", word, spoken(n))
			}
		}
	}
}

// judge looks whether an end that this caller did not ask for was right: its
// lease was revoked, or an operator closed it, while it was open. A change that
// was told of and could not be read, for Redis went away, is one of those.
func (s *soak) judge(ctx context.Context, l *soakLease, c *soakConn, err error) {
	e := webSocketEnding(err)
	switch {
	case ctx.Err() != nil:
	case e.status == 1008 && e.code == "CLOSED_BY_OPERATOR":
		s.byOperator.Add(1)
	case (e.status == 1008 || e.status == 1011) && l.down(c.opened):
		s.revoked.Add(1)
	default:
		s.complain("a channel ended: %v", err)
	}
}

func (s *soak) complain(format string, args ...any) {
	if s.wrong.Add(1) <= 20 {
		s.t.Logf(format, args...)
	}
}

// down says whether the lease was revoked at some time since.
func (l *soakLease) down(since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.revoked || l.restored.After(since.Add(-soakBound))
}

func (l *soakLease) hold(began time.Time) *soakConn {
	c := &soakConn{opened: began, ended: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[c] = struct{}{}
	return c
}

func (l *soakLease) drop(c *soakConn) {
	close(c.ended)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// revoke revokes a lease, sees all its channels end, and restores it.
func (s *soak) revoke() {
	l := s.leases[rand.N(len(s.leases))]
	if !l.mu.TryLock() {
		return
	}
	if l.revoked {
		l.mu.Unlock()
		return
	}
	s.store.Lock()
	l.revoked = true
	s.write(l, "revoked")
	s.store.Unlock()
	conns := slices.Collect(maps.Keys(l.conns))
	l.mu.Unlock()
	s.revocations.Add(1)
	s.pending.Go(func() {
		deadline := time.After(soakBound)
		for _, c := range conns {
			select {
			case <-c.ended:
			case <-deadline:
				if s.lost.Add(1) <= 20 {
					s.t.Logf("a channel of %s outlived its revocation", l.id)
				}
				return
			}
		}
		select {
		case <-s.ctx.Done():
		case <-time.After(soakRevokeFor):
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		s.store.Lock()
		defer s.store.Unlock()
		s.write(l, "active")
		l.revoked, l.restored = false, time.Now()
	})
}

// swap swaps policies that change no verdict of these leases.
func (s *soak) swap(n int) {
	s.scene.write("rules/team.rego", fmt.Sprintf("package sluice.custom\n\n# %d\ndeny contains \"closed\" if input.snapshot.lease.metadata.class == \"closed-%d\"\n", n, n))
	s.swaps.Add(1)
}

// operate has an operator close the channels of a lease.
func (s *soak) operate() {
	l := s.leases[rand.N(len(s.leases))]
	if status, _, body := s.operator("DELETE", "/v1/channels?lease="+l.id, ""); status/100 != 2 {
		s.complain("an operator was answered %d %s", status, body)
	}
}

func (s *soak) reload(n int) {
	s.configure(lifeRoutes, `policies: {path: rules}`, soakChannels(n+1), `evaluation: {timeout: 2s}`,
		fmt.Sprintf(`store: {type: redis, redis: {addresses: ["127.0.0.1:%s"]}}`, s.port))
}

// restartRedis takes Redis away and brings it back with all that it held.
func (s *soak) restartRedis() {
	s.store.Lock()
	defer s.store.Unlock()
	s.redis.Down()
	time.Sleep(300 * time.Millisecond)
	s.redis.Up()
	s.restarts.Add(1)
}

// undecided are the metrics of decisions that could not be reached.
func (s *soak) undecided() (lines []string) {
	answer, err := http.Get("http://" + s.probes + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "sluice_decisions_total") && strings.Contains(line, "AUTHORIZATION_UNAVAILABLE") {
			lines = append(lines, line)
		}
	}
	return lines
}

// reading is what a process holds.
type reading struct {
	when                      string
	memory, goroutines, files float64
	channels                  string
}

func (r reading) String() string {
	return fmt.Sprintf("%-12s %6s channels %8.1f MiB %7.0f goroutines %6.0f descriptors", r.when, r.channels, r.memory/(1<<20), r.goroutines, r.files)
}

// measure reads what the gateway holds, after a moment of rest: the least of
// several looks, for what is on its way is not held.
func (s *soak) measure(when string) reading {
	r := reading{when: when}
	for i := range 5 {
		time.Sleep(time.Second)
		r.channels = s.metric(`sluice_channels_open{kind="duplex"}`)
		for name, to := range map[string]*float64{"process_resident_memory_bytes": &r.memory, "go_goroutines": &r.goroutines, "process_open_fds": &r.files} {
			n, err := strconv.ParseFloat(s.metric(name+" "), 64)
			if err != nil {
				s.t.Errorf("%s: %v", name, err)
			}
			if *to = min(*to, n); i == 0 {
				*to = n
			}
		}
	}
	return r
}
