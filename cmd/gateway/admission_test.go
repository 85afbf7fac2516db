package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
)

// inside starts the gateway inside the test's process, where a round of
// opening and revoking takes no longer than it must.
func (s *scene) inside(config ...string) *gateway {
	s.t.Helper()
	s.configure(config...)
	cfg, err := Load(filepath.Join(s.dir, "gateway.yaml"), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	read, written := io.Pipe()
	g, err := newGateway(ctx, cfg, written, slog.New(slog.DiscardHandler))
	if err != nil {
		cancel()
		s.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- g.run(ctx, ctx) }() // no drain: the second signal at once
	var reader sync.WaitGroup
	reader.Go(func() { s.readDecisions(read) })
	s.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
		_ = written.Close()
		reader.Wait()
	})
	s.address, s.probes, s.admin = g.data.Addr().String(), g.probes.Addr().String(), g.operators.Addr().String()
	s.eventually("the gateway is ready", func() bool {
		answer, err := http.Get("http://" + s.probes + "/readyz")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == 200
	})
	return g
}

// outcome is what became of one open that its revocation met somewhere.
type outcome struct {
	opened   bool // the caller saw the worker's answer
	status   int  // of the refusal, or of the close
	code     string
	decision string
	err      error
	at       time.Time
	late     time.Duration // after the revocation
}

// rounds opens channels whose lease is revoked at a moment that slides over
// every stage of opening.
type rounds struct {
	*life
	gateway *gateway
	worker  *servedWorker
	usual   time.Duration // to open, when the worker answers at once
	revoke  func(lease string)
	open    func(ctx context.Context, lease, delay string) outcome
}

// rounded is how many rounds are played at most, spare how many of them may be
// played again, parallel how many at a time.
const rounded, spare, parallel = 500, 100, 4

// slowest is how long a worker takes for its answer at most.
const slowest = 20 * time.Millisecond

func (r *rounds) round(t *testing.T, lease string, position float64) outcome {
	delay := rand.N(slowest)
	moment := time.Duration(position * float64(delay+2*r.usual))
	revoked := make(chan time.Time, 1)
	go func() {
		time.Sleep(moment)
		r.revoke(lease)
		revoked <- time.Now()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got := r.open(ctx, lease, strconv.Itoa(int(delay.Microseconds())))
	got.late = got.at.Sub(<-revoked)
	return got
}

// measure finds out how long opening takes here: these leases are revoked only
// when their channels are open.
func (r *rounds) measure(t *testing.T) {
	took := make([]time.Duration, 24)
	var wg sync.WaitGroup
	for lane := range parallel {
		wg.Go(func() {
			for i := lane; i < len(took); i += parallel {
				lease, since := fmt.Sprintf("lease-%d", rounded+spare+i), time.Now()
				wg.Go(func() {
					r.eventually("the worker is reached", func() bool { return r.worker.there(lease) })
					took[i] = time.Since(since)
					r.revoke(lease)
				})
				r.open(t.Context(), lease, "0")
			}
		})
	}
	wg.Wait()
	slices.Sort(took)
	r.usual = took[len(took)/2] + 2*time.Millisecond
}

// tally is what became of the rounds so far.
type tally struct {
	refused, closed outcome // the two that there may be

	mu               sync.Mutex
	refusals, closes int
	again            int // rounds that were played again
}

// play plays n rounds, some at a time, and counts how many were refused and how
// many were closed; anything else is an error.
func (r *rounds) play(t *testing.T, n int, all *tally) {
	stoodStill := watchForStandstills(t)
	next := make(chan int)
	var wg sync.WaitGroup
	for range parallel {
		wg.Go(func() {
			for i := range next {
				for lease := i; lease >= 0; {
					began := time.Now()
					got := r.round(t, fmt.Sprintf("lease-%d", lease), float64(i)/float64(n))
					lease = r.judge(t, i, got, all, stoodStill(began))
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	r.eventually("no channel is left", func() bool { return r.gateway.register.Len() == 0 })
	r.eventually("the worker is let go", r.worker.idle)
}

// judge counts an outcome. A round in which the machine stood still for as long
// as the gateway waits for its store is played again: that it "could not be
// authorized right now" is then true. It returns the lease to do that with, or
// -1.
func (r *rounds) judge(t *testing.T, round int, got outcome, all *tally, stoodStill bool) int {
	all.mu.Lock()
	defer all.mu.Unlock()
	switch (outcome{opened: got.opened, status: got.status, code: got.code}) {
	case all.refused:
		all.refusals++
		return -1
	case all.closed:
		if all.closes++; got.late > bound && !stoodStill {
			t.Errorf("round %d: closed %v after the revocation", round, got.late)
		}
		return -1
	}
	if got.code == "AUTHORIZATION_UNAVAILABLE" && stoodStill && all.again < spare {
		all.again++
		return rounded + all.again
	}
	t.Errorf("round %d: a third outcome: opened %v, status %d, code %q for %s: %v", round, got.opened, got.status, got.code, r.reason(got.decision), got.err)
	return -1
}

// watchForStandstills returns what says whether this process did not get to
// run, for longer than matters, at some time since.
func watchForStandstills(t *testing.T) func(since time.Time) bool {
	const matters = 20 * time.Millisecond
	var last atomic.Int64
	go func() {
		for t.Context().Err() == nil {
			before := time.Now()
			time.Sleep(time.Millisecond)
			if now := time.Now(); now.Sub(before) > matters {
				last.Store(now.UnixNano())
			}
		}
	}()
	return func(since time.Time) bool { return last.Load() >= since.UnixNano() }
}

// servedInside serves a worker until the test ends.
func servedInside(t testing.TB) *servedWorker {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := newServedWorker(document("wrk-a", "plg-a", "g1"), listener)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = w.server.Close()
		<-done
	})
	return w
}

func TestARevocationAtAnyMomentOfOpeningRefusesOrCloses(t *testing.T) {
	t.Parallel()
	const config = `channels: {open_rate_per_caller: 1000000, close_grace: 3s}`
	files := func(t *testing.T) *rounds {
		s := newScene(t)
		r := &rounds{life: &life{redisScene: &redisScene{scene: s}}, worker: servedInside(t)}
		s.put("worker", "wrk-a", fmt.Sprintf(`{"id": "wrk-a", "pluginId": "plg-a", "url": "http://%s", "revision": 1}`, r.worker.listener.Addr()))
		for i := range rounded + spare + 24 {
			s.lease(fmt.Sprintf("lease-%d", i), nil)
		}
		r.revoke = func(lease string) { s.lease(lease, fields{"status": "revoked", "revision": 2}) }
		r.gateway = s.inside(lifeRoutes, config)
		return r
	}
	redis := func(t *testing.T) *rounds {
		s := newRedisScene(t)
		r := &rounds{life: &life{redisScene: s}, worker: servedInside(t)}
		r.plugin("plg-a", "ready", 1)
		s.set("worker:wrk-a", fmt.Sprintf(`{"id": "wrk-a", "pluginId": "plg-a", "url": "http://%s", "revision": 1}`, r.worker.listener.Addr()))
		write := func(lease string, change fields) {
			if err := s.redis.Client.Set(context.Background(), "sluice:lease:"+lease, s.leaseText(lease, change), 0).Err(); err != nil {
				t.Error(err)
			}
		}
		for i := range rounded + spare + 24 {
			write(fmt.Sprintf("lease-%d", i), nil)
		}
		r.revoke = func(lease string) { write(lease, fields{"status": "revoked", "revision": 2}) }
		r.gateway = s.inside(lifeRoutes, config, fmt.Sprintf(`store: {type: redis, redis: {addresses: ["127.0.0.1:%s"]}}`, s.port))
		return r
	}
	const denied = "SANDBOX_CAPABILITY_DENIED"
	for _, row := range []struct {
		name            string
		store           func(*testing.T) *rounds
		open            func(*rounds, context.Context, string, string) outcome
		n               int
		refused, closed outcome
	}{
		{"WebSockets, records in files", files, (*rounds).openWebSocket, rounded, outcome{status: 403, code: duplexDenied}, outcome{opened: true, status: 1008, code: duplexDenied}},
		{"WebSockets, records in Redis", redis, (*rounds).openWebSocket, 200, outcome{status: 403, code: duplexDenied}, outcome{opened: true, status: 1008, code: duplexDenied}},
		{"gRPC calls", redis, (*rounds).openCall, 200, outcome{status: 7, code: duplexDenied}, outcome{opened: true, status: 7, code: duplexDenied}},
		{"events", redis, (*rounds).openEvents, 200, outcome{status: 403, code: denied}, outcome{opened: true}},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := row.store(t)
			r.open = func(ctx context.Context, lease, delay string) outcome { return row.open(r, ctx, lease, delay) }
			r.measure(t)
			all := &tally{refused: row.refused, closed: row.closed}
			r.play(t, row.n, all)
			t.Logf("%d refused, %d closed, %d played again", all.refusals, all.closes, all.again)
			if all.refusals < row.n/20 || all.closes < row.n/20 {
				t.Error("the revocation did not slide over the opening")
			}
		})
	}
}

func (r *rounds) openWebSocket(ctx context.Context, lease, delay string) (o outcome) {
	header := bearer("alice")
	header.Set("X-Delay", delay)
	conn, answer, err := websocket.Dial(ctx, "ws://"+r.address+"/v1/leases/"+lease+"/duplex", &websocket.DialOptions{HTTPHeader: header})
	if err != nil {
		if o.err = err; answer != nil {
			p := readProblem(r.t, answer)
			o.status, o.code, o.decision = p.Status, p.Code, p.DecisionID
		}
		return o
	}
	defer conn.CloseNow()
	go func() { // something is always on its way
		for n := int64(0); conn.Write(ctx, websocket.MessageText, []byte(spoken(n))) == nil; n++ {
			time.Sleep(2 * time.Millisecond)
		}
	}()
	for {
		if _, _, err = conn.Read(ctx); err != nil {
			e := webSocketEnding(err)
			return outcome{opened: true, status: e.status, code: e.code, decision: e.decision, err: err, at: time.Now()}
		}
	}
}

func (r *rounds) openCall(ctx context.Context, lease, delay string) outcome {
	// A connection of its own: its opening is a stage too.
	conn, err := grpc.NewClient(r.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return outcome{err: err}
	}
	defer conn.Close()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer token-of-alice", "x-lease", lease, "x-delay", delay)
	stream, err := testpb.NewTestServiceClient(conn).FullDuplexCall(ctx)
	if err != nil {
		return outcome{err: err}
	}
	go func() {
		for n := int64(0); stream.Send(&testpb.StreamingOutputCallRequest{Payload: &testpb.Payload{Body: []byte(spoken(n))}}) == nil; n++ {
			time.Sleep(2 * time.Millisecond)
		}
	}()
	for opened := false; ; opened = true {
		if _, err := stream.Recv(); err != nil {
			e := callEnding(err)
			return outcome{opened: opened, status: e.status, code: e.code, decision: e.decision, err: err, at: time.Now()}
		}
	}
}

func (r *rounds) openEvents(ctx context.Context, lease, delay string) outcome {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.address+"/v1/leases/"+lease+"/output", nil)
	if err != nil {
		return outcome{err: err}
	}
	request.Header = bearer("alice")
	request.Header.Set("X-Delay", delay)
	answer, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		return outcome{err: err}
	}
	defer answer.Body.Close()
	if answer.StatusCode != 200 {
		p := readProblem(r.t, answer)
		return outcome{status: p.Status, code: p.Code, decision: p.DecisionID}
	}
	buf := make([]byte, 4096)
	for {
		if _, err := answer.Body.Read(buf); err != nil {
			return outcome{opened: true, err: err, at: time.Now()}
		}
	}
}
