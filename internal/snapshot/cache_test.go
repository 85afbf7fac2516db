package snapshot

import (
	"context"
	"errors"
	"fmt"
	"sluice/internal/authz"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// bubble runs a test of the cache's timing on a clock of its own, over a
// store in memory that is up and holds one lease in order.
func bubble(t *testing.T, opt Options, test func(t *testing.T, c *Cache, m *memoryStore, told func() string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryStore()
		for k, text := range map[Key]string{
			leaseKey: goodLease, envKey: goodEnvironment, pluginKey: goodPlugin, workerKey: goodWorker, ControlKey: goodControl,
		} {
			m.set(k, text)
		}
		changes := make(chan string, 1000)
		opt.Store, opt.OnChange = m, oneByOne(func(id string) { changes <- id })
		c, err := NewCache(opt)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { _ = c.Run(ctx); close(ended) }()
		<-m.ready
		m.feed.Up()
		m.feed.Confirm(time.Now())
		// told returns what OnChange was called for since it was last asked.
		told := func() string {
			synctest.Wait()
			var ids []string
			for len(changes) > 0 {
				ids = append(ids, <-changes)
			}
			return strings.Join(ids, " ")
		}
		test(t, c, m, told)
		cancel()
		<-ended
	})
}

// oneByOne calls f for each of the leases that OnChange is called for.
func oneByOne(f func(id string)) func([]string) {
	return func(ids []string) {
		for _, id := range ids {
			f(id)
		}
	}
}

func see(c *Cache) authz.View { return c.Snapshot(context.Background(), "lease-1") }

func TestASnapshotTurnsStaleExactlyAtItsAge(t *testing.T) {
	bubble(t, Options{MaxAge: 5 * time.Second}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
		if !see(c).Fresh {
			t.Fatal("not fresh at first")
		}
		time.Sleep(3 * time.Second)
		confirmed := time.Now()
		m.feed.Confirm(confirmed)
		time.Sleep(5 * time.Second)
		if v := see(c); !v.Fresh || !v.Confirmed.Equal(confirmed) {
			t.Errorf("at the limit: %+v", v)
		}
		time.Sleep(time.Nanosecond)
		if v := see(c); v.Fresh || v.Err == nil || v.Snapshot.Lease == nil {
			t.Errorf("beyond it: %+v", v)
		}
		m.feed.Confirm(time.Now())
		if !see(c).Fresh {
			t.Error("not fresh when confirmed again")
		}
		calls, _ := m.counted()
		if calls != 2 {
			t.Errorf("%d reads", calls)
		}
	})
}

func TestARetainedLeaseIsToldOfItsAge(t *testing.T) {
	bubble(t, Options{MaxAge: 2 * time.Second}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
		c.Retain("lease-1")
		if got := told(); got != "" {
			t.Errorf("told of %q at first", got)
		}
		time.Sleep(2 * time.Second)
		if got := told(); got != "" {
			t.Errorf("told of %q at the limit", got)
		}
		time.Sleep(100 * time.Millisecond)
		if got := told(); got != "lease-1" {
			t.Errorf("told of %q beyond it", got)
		}
		time.Sleep(time.Minute)
		if got := told(); got != "" {
			t.Errorf("told of %q again", got)
		}
		m.feed.Confirm(time.Now())
		time.Sleep(100 * time.Millisecond)
		if got := told(); got != "lease-1" {
			t.Errorf("told of %q when fresh again", got)
		}
	})
}

func TestARecordThatChangedWhileItWasReadIsNotKept(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
		m.before = func(keys []Key) { // the values are taken, the answer is under way
			m.before = nil
			m.set(leaseKey, leaseOf("lease-1", 4, "revoked"))
			m.feed.Changed(leaseKey)
		}
		if v := see(c); v.Snapshot.Lease.Status != "revoked" {
			t.Errorf("the record from before the change was kept: %+v", v.Snapshot.Lease)
		}
	})
}

func TestARecordReadInAnEpochThatIsOverIsNotKept(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
		m.before = func(keys []Key) {
			m.before = nil
			m.set(leaseKey, leaseOf("lease-1", 4, "revoked")) // untold: the connection is lost
			m.feed.Down(errBroken)
			m.feed.Up()
		}
		v := see(c)
		if v.Snapshot.Lease.Status != "revoked" {
			t.Errorf("the record from before the loss was kept: %+v", v.Snapshot.Lease)
		}
	})
}

func TestANewEpochReadsAgainBeforeItTrusts(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
		before := see(c).Snapshot
		m.set(leaseKey, leaseOf("lease-1", 4, "revoked"))
		m.feed.Down(errBroken)
		if v := see(c); v.Snapshot != before || !v.Fresh {
			t.Errorf("what was confirmed decides on: %+v", v)
		}
		m.feed.Up()
		if v := see(c); v.Snapshot.Lease.Status != "revoked" {
			t.Errorf("trusted without being read: %+v", v.Snapshot.Lease)
		}
		// Nothing changed: the same value lives on.
		before = see(c).Snapshot
		m.feed.Up()
		if v := see(c); v.Snapshot != before || !v.Fresh {
			t.Error("an unchanged lease was joined anew")
		}
	})
}

func TestWhatCannotBeReadAgainDecidesByItsOldConfirmation(t *testing.T) {
	bubble(t, Options{MaxAge: 2 * time.Second}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
		c.Retain("lease-1")
		before, confirmed := see(c).Snapshot, time.Now()
		m.feed.Confirm(confirmed)
		m.fail(errBroken)
		m.feed.Down(errBroken)
		m.feed.Up()
		m.feed.Confirm(time.Now())
		if v := see(c); v.Snapshot != before || !v.Fresh || !v.Confirmed.Equal(confirmed) {
			t.Errorf("got %+v", v)
		}
		for time.Since(confirmed) <= 2*time.Second {
			time.Sleep(100 * time.Millisecond)
			m.feed.Confirm(time.Now()) // which says nothing of what was not read
		}
		if v := see(c); v.Fresh || !errors.Is(v.Err, errBroken) {
			t.Errorf("beyond its age: %+v", v)
		}
		time.Sleep(100 * time.Millisecond)
		if got := told(); got != "lease-1" {
			t.Errorf("told of %q", got)
		}
		m.fail(nil)
		time.Sleep(100 * time.Millisecond)
		if got := told(); got != "lease-1" || !see(c).Fresh || see(c).Snapshot != before {
			t.Errorf("when it can be read again: told of %q, %+v", got, see(c))
		}
	})
}

func TestWhatIsKnownToHaveChangedAndCannotBeReadIsNotFresh(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
		c.Retain("lease-1")
		see(c)
		m.fail(errBroken)
		m.put(leaseKey, leaseOf("lease-1", 4, "revoked"))
		if v := see(c); v.Fresh || !errors.Is(v.Err, errBroken) {
			t.Errorf("got %+v", v)
		}
		if got := told(); got != "lease-1" {
			t.Errorf("told of %q", got)
		}
		m.fail(nil)
		time.Sleep(300 * time.Millisecond)
		if v := see(c); !v.Fresh || v.Snapshot.Lease.Status != "revoked" {
			t.Errorf("got %+v", v)
		}
	})
}

func TestOneFailedReadIsTriedAgainUntold(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
		c.Retain("lease-1")
		see(c)
		m.fail(errBroken)
		m.before = func([]Key) { m.before = nil; m.fail(nil) }
		m.put(envKey, strings.ReplaceAll(goodEnvironment, " ", "")) // the same again
		if v := see(c); !v.Fresh || v.Snapshot.Environment == nil {
			t.Errorf("got %+v", v)
		}
		if got := told(); got != "" {
			t.Errorf("told of %q", got)
		}
	})
}

func TestAFailedReadIsNeverAnAbsence(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
		m.fail(errBroken)
		if v := see(c); v.Fresh || v.Snapshot != nil || !errors.Is(v.Err, errBroken) {
			t.Errorf("got %+v", v)
		}
		m.fail(nil)
		if v := see(c); !v.Fresh || v.Snapshot.Lease == nil {
			t.Errorf("remembered: %+v", v)
		}
	})
}

func TestASlowStoreMakesNoRequestWaitForLong(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
		waited := func(id string) time.Duration {
			start := time.Now()
			c.Snapshot(context.Background(), id)
			return time.Since(start)
		}
		see(c)
		m.delay = time.Hour
		if got := waited("lease-2"); got > 500*time.Millisecond {
			t.Errorf("a lease never seen waited %s", got)
		}
		m.feed.Changed(leaseKey)
		if got := waited("lease-1"); got > 100*time.Millisecond {
			t.Errorf("a held lease waited %s", got)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		if v := c.Snapshot(ctx, "lease-3"); !errors.Is(v.Err, context.DeadlineExceeded) {
			t.Errorf("got %+v", v)
		}
	})
}

func TestARequestThatGoesAwayDoesNotSpoilTheRead(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
		m.delay = 50 * time.Millisecond
		ctx, cancel := context.WithCancel(context.Background())
		first := make(chan authz.View)
		go func() { first <- c.Snapshot(ctx, "lease-1") }()
		synctest.Wait()
		second := make(chan authz.View)
		go func() { second <- see(c) }()
		synctest.Wait()
		cancel()
		if v := <-first; v.Fresh || v.Err == nil {
			t.Errorf("the first: %+v", v)
		}
		if v := <-second; !v.Fresh {
			t.Errorf("the second: %+v", v)
		}
		if _, reads := m.counted(); reads != 5 {
			t.Errorf("%d records read", reads)
		}
	})
}

func TestAFloodOfMadeUpIDsEvictsNoLease(t *testing.T) {
	bubble(t, Options{MaxLeases: 10, MaxAbsent: 100}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
		before := see(c).Snapshot
		for i := range 10000 {
			c.Snapshot(context.Background(), fmt.Sprint("made-up-", i))
		}
		s := c.Stats()
		if s.Absent > 100 || len(c.entries) > 200 {
			t.Errorf("%d ids and %d entries are remembered", s.Absent, len(c.entries))
		}
		_, reads := m.counted()
		if v := see(c); v.Snapshot != before {
			t.Error("the lease was evicted")
		}
		if _, again := m.counted(); again != reads {
			t.Error("the lease was read again")
		}
	})
}

// Each made-up id costs one read of one record, however many ask at once, and
// leaves no more than the bounds say.
func TestAnIDThatIsNoLeaseCostsOneReadAndNoRoomForEver(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
		see(c)
		_, before := m.counted()
		const ids = 50_000
		for i := range ids {
			if v := c.Snapshot(t.Context(), fmt.Sprint("made-up-", i)); !v.Fresh || v.Snapshot.Lease != nil {
				t.Fatalf("got %+v", v)
			}
		}
		if _, reads := m.counted(); reads-before != ids {
			t.Errorf("%d ids cost %d reads", ids, reads-before)
		}
		slots := len(c.index.table.Load().slots)
		if s := c.Stats(); s.Absent > 8192 || len(c.entries) > 8192+10 || s.Leases != 1 || slots > 64<<10 || len(c.active) > 0 || c.waiting > 0 {
			t.Errorf("remembered are %d ids, %d entries, %d leases, %d slots, %d of them in use", s.Absent, len(c.entries), s.Leases, slots, len(c.active))
		}
		if n := len(c.marks.young) + len(c.marks.old); n > 5 {
			t.Errorf("%d revisions are remembered of nothing", n)
		}
	})
}

func TestMadeUpIDsThatAreAskedForTogetherAreReadTogether(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
		see(c)
		m.delay = 20 * time.Millisecond
		calls, reads := m.counted()
		const ids, askers = 2000, 5
		var all sync.WaitGroup
		for i := range ids * askers {
			all.Go(func() {
				if v := c.Snapshot(t.Context(), fmt.Sprint("made-up-", i%ids)); !v.Fresh || v.Snapshot.Lease != nil {
					t.Errorf("got %+v", v)
				}
			})
		}
		all.Wait()
		callsNow, readsNow := m.counted()
		if readsNow-reads != ids || callsNow-calls > ids/batchSize*2 {
			t.Errorf("%d ids, each asked for %d times, cost %d reads in %d calls", ids, askers, readsNow-reads, callsNow-calls)
		}
	})
}

func TestLeasesAreBoundedAndTheirMarksStay(t *testing.T) {
	bubble(t, Options{MaxLeases: 10}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
		id := func(i int) string { return fmt.Sprint("lease-", i) }
		for i := range 100 {
			m.set(Key{authz.KindLease, id(i)}, leaseOf(id(i), 5, "revoked"))
		}
		c.Retain(id(0))
		for i := range 100 {
			if v := c.Snapshot(context.Background(), id(i)); !v.Fresh {
				t.Fatalf("got %+v", v)
			}
		}
		if s := c.Stats(); s.Leases != 10 || len(c.entries) > 20 {
			t.Errorf("%d leases and %d entries are held", s.Leases, len(c.entries))
		}
		_, reads := m.counted()
		if c.Snapshot(context.Background(), id(0)); reads != func() int { _, r := m.counted(); return r }() {
			t.Error("a retained lease was evicted")
		}
		m.set(Key{authz.KindLease, id(1)}, leaseOf(id(1), 4, "active"))
		if v := c.Snapshot(context.Background(), id(1)); malformed(v) != "[lease]" {
			t.Errorf("an evicted lease came back at an older revision: %+v", v.Snapshot)
		}
	})
}

func TestHeldRecordsAreBoundedByTheirSize(t *testing.T) {
	bubble(t, Options{MaxBytes: 100 << 10}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
		for i := range 50 {
			id := fmt.Sprint("lease-", i)
			m.set(Key{authz.KindLease, id}, fmt.Sprintf(`{"id":%q,"tenantId":"a","status":"active","revision":1,"metadata":{"x":%q}}`, id, strings.Repeat("x", 10<<10)))
			c.Snapshot(context.Background(), id)
		}
		if s := c.Stats(); s.Bytes > 100<<10 || s.Leases < 5 || s.Leases > 10 {
			t.Errorf("got %+v", s)
		}
	})
}

func TestReleasedLeasesAreNoLongerReadUnasked(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
		c.Retain("lease-1")
		c.Retain("lease-1")
		c.Release("lease-1")
		see(c)
		m.put(leaseKey, leaseOf("lease-1", 4, "active"))
		if got := told(); got != "lease-1" {
			t.Errorf("told of %q while retained", got)
		}
		c.Release("lease-1")
		c.Release("lease-1") // one too many is ignored
		_, reads := m.counted()
		m.put(leaseKey, leaseOf("lease-1", 5, "active"))
		if got := told(); got != "" {
			t.Errorf("told of %q", got)
		}
		if _, again := m.counted(); again != reads {
			t.Error("it was read")
		}
		if see(c).Snapshot.Lease.Revision != 5 {
			t.Error("the change was missed")
		}
	})
}

func TestALeaseThatMovesToAnotherPluginFollowsThatOne(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
		c.Retain("lease-1")
		see(c)
		m.set(Key{authz.KindPlugin, "plg-b"}, strings.ReplaceAll(goodPlugin, "plg-a", "plg-b"))
		m.put(leaseKey, strings.ReplaceAll(leaseOf("lease-1", 4, "active"), "plg-a", "plg-b"))
		if got := told(); got != "lease-1" || see(c).Snapshot.Plugin.ID != "plg-b" {
			t.Errorf("told of %q, %+v", got, see(c).Snapshot.Plugin)
		}
		m.put(pluginKey, strings.ReplaceAll(goodPlugin, `"revision":5`, `"revision":6`))
		if got := told(); got != "" {
			t.Errorf("told of %q by a plugin that it no longer rests on", got)
		}
		if _, held := c.entries[pluginKey]; held {
			t.Error("the plugin is still held")
		}
	})
}

func TestNothingIsLookedUpByWhatIsNoID(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
		for _, id := range []string{"", "../x", "a b", "a\r\nb", "*", strings.Repeat("a", 129)} {
			if v := c.Snapshot(context.Background(), id); v.Fresh || v.Snapshot != nil || v.Err == nil {
				t.Errorf("%q: got %+v", id, v)
			}
			c.Retain(id)
			c.Release(id)
		}
		if calls, _ := m.counted(); calls != 0 {
			t.Errorf("%d reads", calls)
		}
	})
}

func TestARequestBeforeTheFirstConnectionWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryStore()
		m.set(leaseKey, goodLease)
		c, err := NewCache(Options{Store: m})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if v := see(c); v.Fresh || v.Err == nil || time.Since(start) > 500*time.Millisecond {
			t.Errorf("got %+v after %s", v, time.Since(start))
		}
		if c.Ready() == nil || c.Stats().Up {
			t.Error("ready before anything ran")
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { _ = c.Run(ctx); close(ended) }()
		<-m.ready
		go func() {
			time.Sleep(100 * time.Millisecond)
			m.feed.Up()
			m.feed.Confirm(time.Now())
		}()
		if v := see(c); !v.Fresh || v.Snapshot.Lease == nil {
			t.Errorf("got %+v", v)
		}
		if err := c.Ready(); err != nil {
			t.Errorf("not ready: %v", err)
		}
		cancel()
		<-ended
		if v := c.Snapshot(context.Background(), "lease-9"); v.Fresh || v.Err == nil {
			t.Errorf("when it has ended: %+v", v)
		}
	})
}

func TestMarksForgetTheLongestUnused(t *testing.T) {
	m := newMarks(10)
	key := func(i int) Key { return Key{authz.KindLease, fmt.Sprint(i)} }
	for i := range 100 {
		m.put(key(i), mark{revision: int64(i), content: digest{1}})
	}
	if len(m.young)+len(m.old) > 20 {
		t.Errorf("%d marks are kept", len(m.young)+len(m.old))
	}
	if got := m.take(key(99)); got.revision != 99 {
		t.Errorf("got %+v", got)
	}
	if got := m.take(key(99)); got != (mark{}) {
		t.Errorf("taken twice: %+v", got)
	}
	if got := m.take(key(0)); got != (mark{}) {
		t.Errorf("got %+v", got)
	}
	m.put(key(1), mark{})
	if got := m.take(key(1)); got != (mark{}) {
		t.Errorf("got %+v", got)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	m := newMemoryStore()
	for name, opt := range map[string]Options{
		"no store":       {},
		"negative age":   {Store: m, MaxAge: -1},
		"negative bound": {Store: m, MaxLeases: -1},
		"extra fields":   {Store: m, ExtraFields: []string{"region"}},
		"unknown kind":   {Store: m, ExtraFields: []string{"leases.region"}},
	} {
		if _, err := NewCache(opt); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := NewCache(Options{Store: m, ExtraFields: []string{"lease.region"}}); err != nil {
		t.Error(err)
	}
	if _, err := NewFileStore(FileOptions{}); err == nil {
		t.Error("a file store without a directory")
	}
	if _, err := NewRedisStore(RedisOptions{}); err == nil {
		t.Error("a Redis store without an address")
	}
}

func TestASharedRecordThatWasReadAgainSpoilsNoOtherLease(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
		m.set(Key{authz.KindLease, "lease-2"}, leaseOf("lease-2", 1, "active"))
		see(c)
		c.Snapshot(context.Background(), "lease-2")
		m.feed.Down(errBroken)
		m.feed.Up()
		see(c) // reads the control record, the plugin and the worker again
		m.fail(errBroken)
		if v := c.Snapshot(context.Background(), "lease-2"); !v.Fresh {
			t.Errorf("got %+v", v)
		}
		m.feed.Changed(ControlKey)
		if v := c.Snapshot(context.Background(), "lease-2"); v.Fresh {
			t.Error("known to have changed, and fresh")
		}
	})
}

func TestAChangeThatIsReadWhileNothingIsConfirmedIsStale(t *testing.T) {
	bubble(t, Options{MaxAge: time.Second}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
		c.Retain("lease-1")
		see(c)
		time.Sleep(2 * time.Second) // up, and silent
		told()
		m.put(leaseKey, leaseOf("lease-1", 4, "revoked"))
		if got := told(); got != "lease-1" {
			t.Errorf("told of %q", got)
		}
		if v := see(c); v.Fresh || v.Err == nil {
			t.Errorf("got %+v", v)
		}
	})
}

func TestALossIsWaitedOutOnlyForOneAttempt(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
		m.feed.Down(errBroken)
		go func() {
			time.Sleep(5 * time.Millisecond)
			m.feed.Up()
		}()
		if v := see(c); !v.Fresh {
			t.Errorf("a short loss: %+v", v)
		}
		m.feed.Down(errBroken)
		go func() {
			time.Sleep(5 * time.Millisecond)
			m.feed.Down(errBroken)
		}()
		start := time.Now()
		if v := c.Snapshot(context.Background(), "lease-2"); v.Fresh || !errors.Is(v.Err, errBroken) || time.Since(start) != 5*time.Millisecond {
			t.Errorf("a second failure: %+v after %s", v, time.Since(start))
		}
		start = time.Now()
		if v := c.Snapshot(context.Background(), "lease-3"); v.Fresh || !errors.Is(v.Err, errBroken) || time.Since(start) != 0 {
			t.Errorf("while down: %+v after %s", v, time.Since(start))
		}
	})
}

func TestAChangedLeaseThatNobodyRetainsIsReadAgainWhenItIsAskedFor(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, c *Cache, m *memoryStore, _ func() string) {
		if v := see(c); !v.Fresh {
			t.Fatalf("got %+v", v)
		}
		feed{c}.Changed(leaseKey)
		if v := see(c); !v.Fresh {
			t.Errorf("got %+v", v)
		}
	})
}

func TestAStoreThatDoesNotAnswerHoldsARequestUpForItsTimeAndNoLonger(t *testing.T) {
	bubble(t, Options{MaxAge: time.Minute}, func(t *testing.T, c *Cache, m *memoryStore, told func() string) {
		before := see(c)
		m.mu.Lock()
		m.delay = time.Hour
		m.mu.Unlock()
		m.feed.Up() // what is held is to be read again
		began := time.Now()
		if v := see(c); !v.Fresh || v.Snapshot != before.Snapshot || time.Since(began) != waitHeld {
			t.Errorf("a held lease waited %s: %+v", time.Since(began), v)
		}
		began = time.Now()
		if v := c.Snapshot(t.Context(), "lease-2"); v.Fresh || v.Snapshot != nil || v.Err == nil || time.Since(began) != waitUnseen {
			t.Errorf("a lease never seen waited %s: %+v", time.Since(began), v)
		}
	})
}
