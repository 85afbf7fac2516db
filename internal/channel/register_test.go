package channel

import (
	"context"
	"fmt"
	"log/slog"
	"sluice/internal/authz"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// policy answers rechecks; what a decision is made of is tested elsewhere.
type policy struct {
	mu     sync.Mutex
	answer func(context.Context, *authz.Request) authz.Decision
	asked  atomic.Int32
	kin    bool // all are kin

	repeated atomic.Int32
}

func (p *policy) set(answer func(context.Context, *authz.Request) authz.Decision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

func (p *policy) Recheck(ctx context.Context, req *authz.Request, _ *authz.Decision) authz.Decision {
	p.asked.Add(1)
	p.mu.Lock()
	answer := p.answer
	p.mu.Unlock()
	return answer(ctx, req)
}

func (p *policy) Kin(_ context.Context, req *authz.Request) (authz.Kinship, bool) {
	return authz.Kinship{}, p.kin
}

func (p *policy) Refuse(_ *authz.Request, d authz.Decision) authz.Decision {
	d.ID = authz.NewID()
	return d
}

func (p *policy) Repeat(_ *authz.Request, d authz.Decision) authz.Decision {
	d.ID = authz.NewID()
	p.repeated.Add(1)
	return d
}

// credentials maps a principal to what it stands for now.
type credentials struct{ now sync.Map }

func (c *credentials) Current(p *authz.Principal) *authz.Principal {
	if now, ok := c.now.Load(p); ok {
		q, _ := now.(*authz.Principal)
		return q
	}
	return p
}

// keeper counts what is retained.
type keeper struct{ held atomic.Int32 }

func (k *keeper) Retain(string)  { k.held.Add(1) }
func (k *keeper) Release(string) { k.held.Add(-1) }

type records struct {
	mu     sync.Mutex
	ends   []Summary
	delays []time.Duration
}

func (r *records) RecordEnd(s *Summary) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ends = append(r.ends, *s)
}

func (r *records) RecordRevocation(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delays = append(r.delays, d)
}

type fixture struct {
	*Register
	policy         *policy
	credentials    *credentials
	facts, workers keeper
	records        records
	caller         *authz.Principal
	expires        *time.Time // of the lease
}

func defaults() Limits {
	return Limits{
		RevocationBound: time.Second, RecheckInterval: 30 * time.Second, IdleTimeout: time.Hour, MaxLifetime: 12 * time.Hour,
		MaxOpen: 100, MaxPerLease: 100, MaxPerTenant: 100,
	}
}

func newFixture(l Limits) *fixture {
	f := &fixture{
		policy: &policy{}, credentials: &credentials{},
		caller: &authz.Principal{Subject: "agent", TenantID: "acme"},
	}
	f.policy.set(func(context.Context, *authz.Request) authz.Decision { return f.allow() })
	f.Register = New(Options{
		Authorizer: f.policy, Callers: f.credentials, Facts: &f.facts, Workers: &f.workers,
		Recorder: &f.records, Limits: l, Log: slog.New(slog.DiscardHandler),
	})
	return f
}

func (f *fixture) allow() authz.Decision {
	lease := &authz.Record{Kind: authz.KindLease, TenantID: "acme", Pin: authz.Pin{WorkerID: "wrk"}, ExpiresAt: f.expires}
	return authz.Decision{
		ID: authz.NewID(), Allow: true, Code: authz.CodeAllow,
		View: authz.View{Fresh: true, Snapshot: &authz.Snapshot{Lease: lease}},
		Live: &authz.Live{ID: "wrk", Generation: "g1"},
	}
}

func deny(code authz.Code) func(context.Context, *authz.Request) authz.Decision {
	return func(context.Context, *authz.Request) authz.Decision {
		d := authz.Deny(code, "TEST")
		d.ID = authz.NewID()
		return d
	}
}

// judged says whether everything that was asked of a channel is settled.
func (c *Channel) judged() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.settled == c.asks && c.overdue == nil
}

// run runs the register until the test's bubble is over.
func (f *fixture) run(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = f.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// open reserves and commits a channel that is done with when it is cut.
func (f *fixture) open(t *testing.T, lease string) *Channel {
	t.Helper()
	c := f.reserve(t, lease)
	if !c.Commit(f.allow(), func() { go c.Done() }, nil) {
		t.Fatal("the channel did not open")
	}
	return c
}

func (f *fixture) reserve(t *testing.T, lease string) *Channel {
	t.Helper()
	d := f.allow()
	c, reason := f.Reserve(&authz.Request{LeaseID: lease, Principal: f.caller, Kind: authz.Duplex}, &d)
	if reason != "" {
		t.Fatalf("refused: %s", reason)
	}
	c.Decided(d)
	return c
}

func (f *fixture) mustBeEmpty(t *testing.T) {
	t.Helper()
	if f.Len() != 0 || len(f.byLease) != 0 || len(f.byWorker) != 0 || len(f.byTenant) != 0 {
		t.Errorf("left over: %d channels, %d leases, %d workers, %d tenants", f.Len(), len(f.byLease), len(f.byWorker), len(f.byTenant))
	}
	if f.facts.held.Load() != 0 || f.workers.held.Load() != 0 {
		t.Errorf("retained: %d leases, %d workers", f.facts.held.Load(), f.workers.held.Load())
	}
}

func TestAChangeEndsExactlyTheChannelsThatLostTheirRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(defaults())
		f.run(t)
		mine, neighbour := f.open(t, "lease-1"), f.open(t, "lease-2")
		f.policy.set(func(_ context.Context, req *authz.Request) authz.Decision {
			if req.Phase != authz.Recheck || req.Channel == nil || req.Channel.Generation != "g1" {
				t.Errorf("asked %+v", req)
			}
			if req.LeaseID == "lease-1" {
				return deny(authz.CodeDuplexDenied)(nil, req)
			}
			return f.allow()
		})
		f.LeaseChanged("lease-1")
		f.LeaseChanged("lease-2")
		synctest.Wait()
		e := mine.Ending()
		if e == nil || e.Why != Revoked || e.Code != string(authz.CodeDuplexDenied) || e.Close != 1008 || e.Since.IsZero() {
			t.Errorf("ended with %+v", e)
		}
		if neighbour.Ending() != nil {
			t.Errorf("the neighbour ended with %+v", neighbour.Ending())
		}
		if len(f.records.delays) != 1 || len(f.records.ends) != 1 {
			t.Errorf("recorded %+v", &f.records)
		}
		neighbour.End(EndOperator)
		synctest.Wait()
		f.mustBeEmpty(t)
	})
}

func TestEveryKindOfChangeAsksAgain(t *testing.T) {
	for name, change := range map[string]func(*fixture){
		"lease":      func(f *fixture) { f.LeaseChanged("lease-1") },
		"worker":     func(f *fixture) { f.WorkerChanged("wrk") },
		"everything": func(f *fixture) { f.EverythingChanged() },
		"the timer":  func(*fixture) { time.Sleep(31 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(defaults())
				f.run(t)
				c := f.open(t, "lease-1")
				f.policy.set(deny(authz.CodeUnavailable))
				change(f)
				synctest.Wait()
				if e := c.Ending(); e == nil || e.Why != Undecided || e.Close != 1011 {
					t.Errorf("ended with %+v", e)
				}
			})
		})
	}
}

func TestOfKinOneIsJudgedWhenEverythingChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(defaults())
		f.policy.kin = true
		f.rechecks = 1
		f.run(t)
		channels := make([]*Channel, 50)
		for i := range channels {
			channels[i] = f.open(t, "lease-1")
		}
		f.EverythingChanged()
		synctest.Wait()
		if n := f.policy.asked.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		f.policy.set(deny(authz.CodeDuplexDenied))
		f.EverythingChanged()
		synctest.Wait()
		if n := f.policy.asked.Load(); n != 2 || f.policy.repeated.Load() != 98 {
			t.Errorf("asked %d times, repeated %d", n, f.policy.repeated.Load())
		}
		for _, c := range channels {
			if c.Ending() == nil || c.Ending().Why != Revoked {
				t.Fatalf("ended with %+v", c.Ending())
			}
		}
		f.mustBeEmpty(t)
	})
}

func TestAChannelEndsWhenItsLeaseExpiresAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(defaults())
		at := time.Now().Add(10 * time.Second)
		f.expires = &at
		f.run(t)
		c := f.open(t, "lease-1")
		f.policy.set(deny(authz.CodeDuplexDenied))
		time.Sleep(10*time.Second - time.Millisecond)
		synctest.Wait()
		if c.Ending() != nil {
			t.Fatal("ended before its expiry")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if c.Ending() == nil {
			t.Fatal("outlived its expiry")
		}
	})
}

func TestAChannelEndsWhenItsCallersCredentialExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(defaults())
		at := time.Now().Add(5 * time.Second)
		f.caller.ExpiresAt = &at
		f.run(t)
		c := f.open(t, "lease-1")
		f.policy.set(deny(authz.CodeCredentialExpired))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if e := c.Ending(); e == nil || e.Code != string(authz.CodeCredentialExpired) {
			t.Fatalf("ended with %+v", e)
		}
	})
}

func TestAWithdrawnCredentialIsNobodys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(defaults())
		f.run(t)
		c := f.open(t, "lease-1")
		f.policy.set(func(_ context.Context, req *authz.Request) authz.Decision {
			if req.Principal != nil {
				t.Errorf("asked for %+v", req.Principal)
			}
			return authz.Deny(authz.CodeUnauthenticated, authz.ReasonUnauthenticated)
		})
		f.credentials.now.Store(f.caller, (*authz.Principal)(nil))
		f.EverythingChanged()
		synctest.Wait()
		if e := c.Ending(); e == nil || e.Close != 1008 {
			t.Fatalf("ended with %+v", e)
		}
		f.mustBeEmpty(t)
	})
}

func TestARecheckThatTakesTooLongEndsTheChannelInsideTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(defaults())
		f.run(t)
		c := f.open(t, "lease-1")
		f.policy.set(func(ctx context.Context, _ *authz.Request) authz.Decision {
			<-ctx.Done()
			return authz.Unavailable(authz.ReasonEvaluationTimeout)
		})
		f.LeaseChanged("lease-1")
		time.Sleep(time.Second)
		synctest.Wait()
		if e := c.Ending(); e == nil || e.Why != Undecided {
			t.Fatalf("ended with %+v", e)
		}
	})
}

func TestAChangeDuringOpeningRefusesTheOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(defaults())
		f.run(t)
		c := f.reserve(t, "lease-1")
		stopped := make(chan struct{})
		c.Opening(func() { close(stopped) })
		f.policy.set(deny(authz.CodeDuplexDenied))
		f.LeaseChanged("lease-1")
		<-stopped
		if c.Commit(f.allow(), func() { t.Error("cut a channel that never opened") }, nil) {
			t.Error("opened in spite of its ending")
		}
		c.Done()
		if len(f.records.ends) != 1 || f.records.ends[0].Committed {
			t.Errorf("recorded %+v", f.records.ends)
		}
		f.mustBeEmpty(t)
	})
}

func TestAChangeWhileARecheckRunsIsJudgedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(defaults())
		f.run(t)
		c := f.open(t, "lease-1")
		entered, leave := make(chan struct{}), make(chan struct{})
		f.policy.set(func(context.Context, *authz.Request) authz.Decision {
			close(entered)
			<-leave
			return f.allow() // on facts from before the change
		})
		f.LeaseChanged("lease-1")
		<-entered
		f.policy.set(deny(authz.CodeDuplexDenied))
		f.LeaseChanged("lease-1")
		close(leave)
		synctest.Wait()
		if c.Ending() == nil {
			t.Error("the second change was lost")
		}
	})
}

func TestAChangeDuringARecheckHasTheBoundFromWhenItWasNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(defaults())
		f.rechecks = 1
		f.run(t)
		c, neighbour := f.open(t, "lease-1"), f.open(t, "lease-2")
		f.policy.set(func(context.Context, *authz.Request) authz.Decision {
			time.Sleep(450 * time.Millisecond)
			return f.allow()
		})
		f.LeaseChanged("lease-1")
		time.Sleep(10 * time.Millisecond)
		f.LeaseChanged("lease-2") // stands before it in the line
		noticed := time.Now()
		f.LeaseChanged("lease-1")
		time.Sleep(699 * time.Millisecond)
		if e := c.Ending(); e != nil {
			t.Fatalf("ended with %+v", e)
		}
		time.Sleep(2 * time.Millisecond)
		e := c.Ending()
		if e == nil || e.Decision == nil || e.Decision.Reason != authz.ReasonRecheckOverdue || !e.Since.Equal(noticed) {
			t.Errorf("ended with %+v, noticed at %s", e, noticed)
		}
		neighbour.End(EndOperator)
	})
}

func TestManyChangesAtOnceEndNobodyWhoKeepsItsRight(t *testing.T) {
	l := defaults()
	l.RevocationBound = time.Minute
	f := newFixture(l)
	f.run(t)
	channels := make([]*Channel, 20)
	for i := range channels {
		channels[i] = f.open(t, "lease-1")
	}
	var changes sync.WaitGroup
	for range 8 {
		changes.Go(func() {
			for range 200 {
				f.LeaseChanged("lease-1")
				f.WorkerChanged("wrk")
				f.EverythingChanged()
			}
		})
	}
	changes.Wait()
	for _, c := range channels {
		for until := time.Now().Add(20 * time.Second); !c.judged(); time.Sleep(time.Millisecond) {
			if time.Now().After(until) {
				t.Fatal("a change was lost")
			}
		}
		if e := c.Ending(); e != nil {
			t.Fatalf("ended with %+v", e)
		}
		c.End(EndOperator)
	}
	for f.Len() > 0 {
		time.Sleep(time.Millisecond)
	}
}

func TestAQueueThatIsTooLongEndsTheChannelInsideTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(defaults())
		f.rechecks = 1
		f.run(t)
		stuck, waiting := f.open(t, "lease-1"), f.open(t, "lease-2")
		f.policy.set(func(context.Context, *authz.Request) authz.Decision {
			time.Sleep(10 * time.Second) // whatever it is told
			return f.allow()
		})
		f.LeaseChanged("lease-1")
		f.LeaseChanged("lease-2")
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		for _, c := range []*Channel{stuck, waiting} {
			if e := c.Ending(); e == nil || e.Why != Undecided || e.Decision.Reason != authz.ReasonRecheckOverdue {
				t.Errorf("ended with %+v", e)
			}
		}
		time.Sleep(20 * time.Second)
	})
}

func TestTenantsTakeTurns(t *testing.T) {
	q := newQueue()
	for range 100 {
		q.put(&Channel{tenant: "many"}, true)
	}
	q.put(&Channel{tenant: "one"}, true)
	q.put(&Channel{tenant: "bulk"}, false)
	for i := range 2 {
		if c := q.next(); i == 1 && c.tenant != "one" {
			t.Errorf("the second turn is %q's", c.tenant)
		}
	}
	for range 99 {
		if c := q.next(); c.tenant != "many" {
			t.Errorf("a turn is %q's", c.tenant)
		}
	}
	if c := q.next(); c.tenant != "bulk" || q.next() != nil {
		t.Errorf("the last turn is %q's", c.tenant)
	}
}

func TestLimitsOfTimeEndAChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := defaults()
		l.IdleTimeout, l.MaxLifetime = time.Minute, 3*time.Minute
		f := newFixture(l)
		f.run(t)
		idle, busy := f.open(t, "lease-1"), f.open(t, "lease-2")
		for range 179 {
			time.Sleep(time.Second)
			busy.Touch()
		}
		synctest.Wait()
		if e := idle.Ending(); e == nil || e.Why != Idle || e.Close != 1001 {
			t.Errorf("the idle channel ended with %+v", e)
		}
		if busy.Ending() != nil {
			t.Errorf("the busy channel ended early with %+v", busy.Ending())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if e := busy.Ending(); e == nil || e.Why != Lifetime {
			t.Errorf("the busy channel ended with %+v", e)
		}
	})
}

func TestAPolicyLowersLimitsAndNeverRaisesThem(t *testing.T) {
	f := newFixture(defaults())
	d := f.allow()
	d.Limits = authz.Limits{IdleTimeout: time.Minute, MaxLifetime: 100 * time.Hour, MaxMessageBytes: 1000}
	c, _ := f.Reserve(&authz.Request{LeaseID: "lease-1", Principal: f.caller}, &d)
	defer c.Done()
	if want := (authz.Limits{IdleTimeout: time.Minute, MaxLifetime: 12 * time.Hour, MaxMessageBytes: 1000}); c.Limits != want {
		t.Errorf("in force: %+v, want %+v", c.Limits, want)
	}
}

func TestPlacesAreGivenOutExactlyAlsoInABurst(t *testing.T) {
	l := defaults()
	l.MaxPerLease = 10
	f := newFixture(l)
	var wg sync.WaitGroup
	begin, all := make(chan struct{}), make(chan *Channel, 200)
	for range 200 {
		wg.Go(func() {
			<-begin
			d := f.allow()
			c, reason := f.Reserve(&authz.Request{LeaseID: "lease-1", Principal: f.caller}, &d)
			switch {
			case reason == "":
				all <- c
			case reason != authz.ReasonLeaseChannels:
				t.Errorf("refused with %s", reason)
			}
		})
	}
	close(begin)
	wg.Wait()
	close(all)
	if len(all) != 10 {
		t.Errorf("%d places were given out", len(all))
	}
	for c := range all {
		c.Done()
	}
	f.mustBeEmpty(t)
}

func TestAPlaceBelongsToTheTenantThatTookIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(defaults())
		f.run(t)
		c := f.open(t, "lease-1")
		f.credentials.now.Store(f.caller, &authz.Principal{Subject: "agent", TenantID: "other"})
		f.EverythingChanged()
		synctest.Wait()
		c.End(EndOperator)
		synctest.Wait()
		f.mustBeEmpty(t)
	})
}

func TestDrainEndsEveryChannelSpreadOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(defaults())
		f.run(t)
		for range 10 {
			f.open(t, "lease-1")
		}
		started := time.Now()
		f.Drain(t.Context(), 10*time.Second)
		synctest.Wait()
		if took := time.Since(started); took < 8*time.Second || took > 11*time.Second {
			t.Errorf("drained in %v", took)
		}
		for _, s := range f.records.ends {
			if s.Ending.Why != Drain || s.Ending.Close != 1001 || s.Ending.DecisionID == "" {
				t.Errorf("recorded %+v", s.Ending)
			}
		}
		f.mustBeEmpty(t)
	})
}

// A plain request ends by itself: told to come again while a worker does what it
// asks, its caller would have that done twice.
func TestDrainLeavesPlainRequestsTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(defaults())
		f.run(t)
		reserve := func() *Channel {
			d := f.allow()
			c, reason := f.Reserve(&authz.Request{LeaseID: "lease-1", Principal: f.caller, Kind: authz.PlainRequest}, &d)
			if reason != "" {
				t.Fatal(reason)
			}
			return c
		}
		quick, slow := reserve(), reserve()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		over := make(chan struct{})
		go func() {
			f.Drain(ctx, time.Second)
			close(over)
		}()
		time.Sleep(9 * time.Second)
		if quick.Ending() != nil || slow.Ending() != nil {
			t.Fatal("told to end while there was time")
		}
		quick.End(EndByWorker)
		quick.Done()
		time.Sleep(time.Second + time.Millisecond)
		if e := slow.Ending(); e == nil || e.Why != Drain {
			t.Errorf("after all the time: %+v", e)
		}
		slow.Done()
		<-over
		f.mustBeEmpty(t)
	})
}

// nearing answers rechecks by the expiry of the lease as expires gives it.
func (f *fixture) nearing(expires func() time.Time) {
	f.policy.set(func(context.Context, *authz.Request) authz.Decision {
		at := expires()
		d := f.allow()
		d.View.Snapshot = &authz.Snapshot{Lease: &authz.Record{TenantID: "acme", Pin: authz.Pin{WorkerID: "wrk"}, ExpiresAt: &at}}
		if !at.After(time.Now()) {
			d = authz.Deny(authz.CodeDuplexDenied, authz.ReasonLeaseExpired)
		}
		return d
	})
}

func TestAnOlderAnswerDoesNotReplaceANewerOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(defaults())
		f.run(t)
		far, near := time.Now().Add(time.Hour), time.Now().Add(2*time.Second)
		f.expires = &far
		c := f.open(t, "lease-1")
		var asked atomic.Int32
		f.nearing(func() time.Time {
			if asked.Add(1) == 1 { // it read the facts from before the change, and is slow
				time.Sleep(100 * time.Millisecond)
				return far
			}
			return near
		})
		f.LeaseChanged("lease-1") // something else
		time.Sleep(10 * time.Millisecond)
		f.LeaseChanged("lease-1") // the expiry is near now
		time.Sleep(2100 * time.Millisecond)
		if c.Ending() == nil {
			t.Error("the channel outlived its lease")
		}
		c.End(EndOperator)
		c.Done()
	})
}

func TestAnAdmitBehindANewerAnswerIsJudgedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(defaults())
		f.run(t)
		far, near := time.Now().Add(time.Hour), time.Now().Add(2*time.Second)
		f.expires = &far
		c := f.reserve(t, "lease-1")
		if c.Admitting() != f.caller {
			t.Error("the caller is somebody else")
		}
		admitted := f.allow() // on the facts of now
		f.nearing(func() time.Time { return near })
		f.LeaseChanged("lease-1") // told, judged and settled meanwhile
		synctest.Wait()
		if !c.Commit(admitted, func() {}, nil) {
			t.Fatal("not committed")
		}
		time.Sleep(2100 * time.Millisecond)
		if c.Ending() == nil {
			t.Error("the channel outlived its lease")
		}
		c.End(EndOperator)
		c.Done()
	})
}

func TestAWithdrawnCredentialIsNobodysAtTheAdmit(t *testing.T) {
	f := newFixture(defaults())
	c := f.reserve(t, "lease-1")
	f.credentials.now.Store(f.caller, (*authz.Principal)(nil))
	if got := c.Admitting(); got != nil {
		t.Errorf("got %+v", got)
	}
	c.Done()
	if got := f.records.ends[0].Request.Principal; got != f.caller {
		t.Errorf("its end is recorded of %+v", got)
	}
}

func TestPlainRequestsAreATenantsToo(t *testing.T) {
	l := defaults()
	l.MaxPerTenant, l.MaxPerLease = 3, 1
	f := newFixture(l)
	request := func(tenant string, kind authz.ChannelKind, lease string) authz.Reason {
		d := f.allow()
		c, reason := f.Reserve(&authz.Request{LeaseID: lease, Principal: &authz.Principal{Subject: "s", TenantID: tenant}, Kind: kind}, &d)
		if reason == "" {
			t.Cleanup(func() {
				c.Done()
				if len(f.channels) == 0 {
					f.mustBeEmpty(t)
				}
			})
		}
		return reason
	}
	for range 3 {
		if reason := request("acme", authz.PlainRequest, "lease-1"); reason != "" {
			t.Errorf("refused: %s", reason)
		}
	}
	if reason := request("acme", authz.PlainRequest, "lease-2"); reason != authz.ReasonTenantChannels {
		t.Errorf("one more request: %q", reason)
	}
	if reason := request("globex", authz.PlainRequest, "lease-3"); reason != "" {
		t.Errorf("another tenant's: %s", reason)
	}
	if reason := request("acme", authz.Duplex, "lease-1"); reason != "" {
		t.Errorf("a channel besides: %s", reason)
	}
}

// What one change does to many leases is one sweep: a revocation that comes
// meanwhile goes first, also of one of these leases.
func TestARevocationGoesBeforeWhatConcernsMany(t *testing.T) {
	for name, concerned := range map[string]int{"of another lease": 399, "of one of them": 400} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { revokedAmongMany(t, concerned) })
		})
	}
}

func revokedAmongMany(t *testing.T, concerned int) {
	l := defaults()
	l.MaxOpen, l.MaxPerTenant, l.RevocationBound = 1000, 1000, 10*time.Second
	f := newFixture(l)
	f.run(t)
	var leases []string
	var all []*Channel
	for i := range 400 {
		leases = append(leases, fmt.Sprint("lease-", i))
		all = append(all, f.open(t, leases[i]))
	}
	var judged, place atomic.Int32
	f.policy.set(func(_ context.Context, req *authz.Request) authz.Decision {
		time.Sleep(time.Millisecond)
		if n := judged.Add(1); req.LeaseID == "lease-399" {
			place.CompareAndSwap(0, n)
		}
		return f.allow()
	})
	f.LeaseChanged(leases[:concerned]...)
	time.Sleep(5 * time.Millisecond)
	f.LeaseChanged("lease-399")
	f.LeaseChanged("lease-399")
	time.Sleep(time.Second)
	// Where it waited in bulk it is judged once more when that comes to it.
	if n := judged.Load(); n < 400 || n > 402 || place.Load() > 99 {
		t.Errorf("of %d rechecks it was number %d", n, place.Load())
	}
	for _, c := range all {
		c.End(EndOperator)
		c.Done()
	}
}

func TestTheFirstEndingWins(t *testing.T) {
	f := newFixture(defaults())
	c := f.reserve(t, "lease-1")
	if !c.End(EndOperator) || c.End(EndDrain) {
		t.Error("the second ending won")
	}
	c.Done()
	c.Done() // does nothing
	if len(f.records.ends) != 1 || f.records.ends[0].Ending.Why != Operator {
		t.Errorf("recorded %+v", f.records.ends)
	}
}

func TestTheZeroDecisionEndsAChannelAsUndecided(t *testing.T) {
	if e := Denied(authz.Decision{}, time.Time{}); e.Why != Undecided || e.Code != string(authz.CodeUnavailable) || e.Close != 1011 {
		t.Errorf("ends with %+v", e)
	}
}
