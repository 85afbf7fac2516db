package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sluice/internal/authz"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// backend is a store as the contract suite sees it: the store, its records'
// operations, and what another program does to it behind its back.
type backend struct {
	Store
	records
	set     func(k Key, text string) // as any writer would
	del     func(k Key)
	outage  func() // nothing can be read any more
	recover func()
}

type records interface {
	Get(ctx context.Context, k Key) (*Stored, error)
	Put(ctx context.Context, k Key, text []byte, expect Expect) (*authz.Record, error)
	Delete(ctx context.Context, k Key, expect Expect) error
	List(ctx context.Context, kind authz.Kind) ([]string, error)
}

// backends are the stores that the suite runs on.
var backends = map[string]func(t *testing.T) *backend{
	"file":      func(t *testing.T) *backend { return fileBackend(t, false) },
	"file flat": func(t *testing.T) *backend { return fileBackend(t, true) },
	"redis":     redisBackend,
	"cluster":   clusterBackend,
	"sentinel":  sentinelBackend,
}

// fragile are those of them that a test may break: not shared with others.
var fragile = map[string]func(t *testing.T) *backend{
	"cluster": ownClusterBackend, "sentinel": ownSentinelBackend,
}

// onEveryStore runs one test of the contract on every store.
func onEveryStore(t *testing.T, test func(t *testing.T, b *backend)) {
	for name, open := range backends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// onEveryStoreAlone is for a test that breaks the store.
func onEveryStoreAlone(t *testing.T, test func(t *testing.T, b *backend)) {
	for name, open := range backends {
		if own, ok := fragile[name]; ok {
			open = own
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// scene is a running cache over a store with one lease in order.
type scene struct {
	*Cache
	*backend
	t       *testing.T
	changes chan string
	asked   atomic.Int64 // records read from the store by the cache
}

// countingStore counts what the cache asks of a store.
type countingStore struct {
	Store
	asked *atomic.Int64
}

func (c countingStore) Read(ctx context.Context, keys []Key) ([]Value, error) {
	c.asked.Add(int64(len(keys)))
	return c.Store.Read(ctx, keys)
}

func (c countingStore) Rebases(ctx context.Context) ([]Rebase, error) {
	return c.Store.(interface {
		Rebases(ctx context.Context) ([]Rebase, error)
	}).Rebases(ctx)
}

var (
	leaseKey  = Key{authz.KindLease, "lease-1"}
	envKey    = Key{authz.KindEnvironment, "env-1"}
	pluginKey = Key{authz.KindPlugin, "plg-a"}
	workerKey = Key{authz.KindWorker, "wrk-a"}
)

func newScene(t *testing.T, b *backend, opt Options) *scene {
	t.Helper()
	for k, text := range map[Key]string{
		leaseKey: goodLease, envKey: goodEnvironment, pluginKey: goodPlugin, workerKey: goodWorker, ControlKey: goodControl,
	} {
		b.set(k, text)
	}
	s := &scene{backend: b, t: t, changes: make(chan string, 1000)}
	opt.Store = countingStore{b.Store, &s.asked}
	opt.OnChange = oneByOne(func(id string) { s.changes <- id })
	c, err := NewCache(opt)
	if err != nil {
		t.Fatal(err)
	}
	s.Cache = c
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	s.eventually("the store is ready", func() bool { return c.Ready() == nil })
	return s
}

// view asks until the store answered in time: the machine may be busy.
func (s *scene) view(id string) authz.View {
	s.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		v := s.Snapshot(context.Background(), id)
		if !errors.Is(v.Err, errSlow) || time.Now().After(deadline) {
			return v
		}
	}
}

func (s *scene) eventually(what string, is func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("not within 10s: %s", what)
		}
	}
}

// told waits for OnChange of a lease.
func (s *scene) told(id string) {
	s.t.Helper()
	select {
	case got := <-s.changes:
		if got != id {
			s.t.Fatalf("told of %s, not of %s", got, id)
		}
	case <-time.After(10 * time.Second):
		s.t.Fatalf("not told of %s", id)
	}
}

// notTold shows that nothing was told: of a change behind all others, the
// telling of which proves that theirs would have come.
func (s *scene) notTold(marker string) {
	s.t.Helper()
	s.set(Key{authz.KindLease, marker}, leaseOf(marker, 1, "active"))
	s.eventually("the marker is seen", func() bool { return s.view(marker).Snapshot.Lease != nil })
	s.Retain(marker)
	defer s.Release(marker)
	s.set(Key{authz.KindLease, marker}, leaseOf(marker, 2, "revoked"))
	s.told(marker)
}

// allTold waits until everything written so far was told of, which it forgets:
// the marker's change stands behind all of it.
func (s *scene) allTold(marker string) {
	s.t.Helper()
	s.set(Key{authz.KindLease, marker}, leaseOf(marker, 1, "active"))
	s.eventually("the marker is seen", func() bool { return s.view(marker).Snapshot.Lease != nil })
	s.Retain(marker)
	defer s.Release(marker)
	s.set(Key{authz.KindLease, marker}, leaseOf(marker, 2, "revoked"))
	for deadline := time.After(10 * time.Second); ; {
		select {
		case got := <-s.changes:
			if got == marker {
				return
			}
		case <-deadline:
			s.t.Fatalf("not told of %s", marker)
		}
	}
}

func leaseOf(id string, revision int, status string) string {
	return fmt.Sprintf(`{"id":%q,"tenantId":"acme","environmentId":"env-1","status":%q,"revision":%d,`+
		`"pin":{"driver":"sandbox","pluginId":"plg-a","driverKey":"daytona","workerId":"wrk-a"}}`, id, status, revision)
}

func malformed(v authz.View) string { return fmt.Sprint(v.Snapshot.Malformed) }

func TestASnapshotJoinsTheRecordsThatTheLeaseLeadsTo(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *backend) {
		s := newScene(t, b, Options{})
		v := s.view("lease-1")
		if !v.Fresh || v.Err != nil || time.Since(v.Confirmed) > 10*time.Second {
			t.Fatalf("not fresh: %+v", v)
		}
		n := v.Snapshot
		if n.LeaseID != "lease-1" || n.Lease.ID != "lease-1" || n.Environment.ID != "env-1" || n.Plugin.ID != "plg-a" ||
			n.Worker.ID != "wrk-a" || n.Control.Revision != 1 || n.Malformed != nil {
			t.Fatalf("got %+v", n)
		}
		asked := s.asked.Load()
		for range 100 {
			if again := s.view("lease-1"); again.Snapshot != n || !again.Fresh {
				t.Fatal("a confirmed snapshot was made anew")
			}
		}
		if got := s.asked.Load() - asked; got != 0 {
			t.Errorf("%d store reads for a confirmed snapshot", got)
		}
	})
}

func TestAnAbsentLeaseIsAbsentUntilItIsWritten(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *backend) {
		s := newScene(t, b, Options{})
		v := s.view("lease-2")
		if !v.Fresh || v.Snapshot.Lease != nil || v.Snapshot.Malformed != nil || v.Snapshot.Control == nil {
			t.Fatalf("got %+v", v)
		}
		asked := s.asked.Load()
		if s.view("lease-2"); s.asked.Load() != asked {
			t.Error("absence was not remembered")
		}
		b.set(Key{authz.KindLease, "lease-2"}, leaseOf("lease-2", 1, "active"))
		s.eventually("the new lease is seen", func() bool { return s.view("lease-2").Snapshot.Lease != nil })
	})
}

func TestAPlainWriteIsSeenAndTold(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *backend) {
		s := newScene(t, b, Options{})
		s.Retain("lease-1")
		before := s.view("lease-1")
		b.set(leaseKey, leaseOf("lease-1", 4, "revoked"))
		s.told("lease-1")
		v := s.view("lease-1")
		if v.Snapshot.Lease.Status != "revoked" || !v.Fresh || v.Snapshot == before.Snapshot {
			t.Errorf("got %+v", v.Snapshot.Lease)
		}
		if v.Snapshot.Plugin != before.Snapshot.Plugin || before.Snapshot.Lease.Status != "active" {
			t.Error("another record was touched")
		}
	})
}

func TestAWriteIsSeenWithoutAnybodyRetainingTheLease(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *backend) {
		s := newScene(t, b, Options{})
		s.view("lease-1")
		b.set(leaseKey, leaseOf("lease-1", 4, "revoked"))
		s.eventually("the revocation is seen", func() bool { return s.view("lease-1").Snapshot.Lease.Status == "revoked" })
	})
}

func TestEveryRecordOfASnapshotIsFollowed(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *backend) {
		s := newScene(t, b, Options{})
		s.Retain("lease-1")
		s.view("lease-1")
		for _, c := range []struct {
			key  Key
			text string
			is   func(*authz.Snapshot) bool
		}{
			{envKey, strings.NewReplacer("active", "archived", `"revision":1`, `"revision":2`).Replace(goodEnvironment), func(n *authz.Snapshot) bool { return n.Environment.Status == "archived" }},
			{pluginKey, strings.NewReplacer("ready", "disabled", `"revision":5`, `"revision":6`).Replace(goodPlugin), func(n *authz.Snapshot) bool { return n.Plugin.Status == "disabled" }},
			{workerKey, strings.NewReplacer("9000", "9001", `"revision":2`, `"revision":3`).Replace(goodWorker), func(n *authz.Snapshot) bool { return n.Worker.URL == "http://127.0.0.1:9001" }},
			{ControlKey, strings.NewReplacer("true", "false", `"revision":1`, `"revision":2`).Replace(goodControl), func(n *authz.Snapshot) bool { return n.Control.Revision == 2 }},
		} {
			b.set(c.key, c.text)
			s.told("lease-1")
			if n := s.view("lease-1").Snapshot; !c.is(n) {
				t.Errorf("%s: got %+v", c.key, n)
			}
		}
		b.del(workerKey)
		s.told("lease-1")
		if n := s.view("lease-1").Snapshot; n.Worker != nil || n.Malformed != nil {
			t.Errorf("got %+v", n)
		}
	})
}

func TestADeletedLeaseIsAbsentAtOnce(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *backend) {
		s := newScene(t, b, Options{})
		s.Retain("lease-1")
		s.view("lease-1")
		b.del(leaseKey)
		s.told("lease-1")
		if v := s.view("lease-1"); v.Snapshot.Lease != nil || v.Snapshot.Malformed != nil || !v.Fresh {
			t.Errorf("got %+v", v)
		}
	})
}

func TestAMalformedRecordIsNotReplacedByItsLastGoodVersion(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *backend) {
		s := newScene(t, b, Options{})
		s.Retain("lease-1")
		s.view("lease-1")
		for _, text := range []string{goodLease[:40], "null", "[]", strings.Repeat(" ", MaxText) + goodLease, `{"id":"lease-2"}`} {
			b.set(leaseKey, text)
			s.eventually("the malformed record is seen", func() bool { return malformed(s.view("lease-1")) == "[lease]" })
			if n := s.view("lease-1").Snapshot; n.Lease != nil || n.Plugin != nil {
				t.Fatalf("got %+v", n)
			}
		}
		b.set(leaseKey, goodLease)
		s.eventually("the good record is back", func() bool { return s.view("lease-1").Snapshot.Lease != nil })
	})
}

func TestOnlyTheNeededKindsCountAsMalformed(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *backend) {
		s := newScene(t, b, Options{})
		for _, k := range []Key{envKey, pluginKey, workerKey, ControlKey} {
			b.set(k, "{")
		}
		b.set(Key{authz.KindLease, "lease-2"}, `{"id":"lease-2","tenantId":"acme","status":"active","revision":1,"pin":{"pluginId":"../plg-a","workerId":"a b"}}`)
		v := s.view("lease-1")
		s.eventually("the malformed records are seen", func() bool {
			v = s.view("lease-1")
			return malformed(v) == "[lease control environment plugin]" || malformed(v) == "[control environment plugin]"
		})
		if v.Snapshot.Worker != nil {
			t.Error("a malformed worker was joined")
		}
		if v := s.view("lease-2"); malformed(v) != "[control]" || v.Snapshot.Lease == nil {
			t.Errorf("a lease that leads nowhere needs nothing more: %+v", v.Snapshot)
		}
	})
}

func TestARevisionNeverGoesBack(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *backend) {
		s := newScene(t, b, Options{})
		s.Retain("lease-1")
		step := func(text, want string) {
			t.Helper()
			if text == "" {
				b.del(leaseKey)
			} else {
				b.set(leaseKey, text)
			}
			s.eventually(want, func() bool {
				n := s.view("lease-1").Snapshot
				got := "absent"
				if n.Lease != nil {
					got = fmt.Sprintf("%d %s", n.Lease.Revision, n.Lease.Status)
				} else if n.Malformed != nil {
					got = malformed(s.view("lease-1"))
				}
				return got == want
			})
		}
		step(leaseOf("lease-1", 7, "revoked"), "7 revoked")
		step(leaseOf("lease-1", 6, "active"), "[lease]") // older
		step(leaseOf("lease-1", 7, "active"), "[lease]") // the same, and not the same
		step(leaseOf("lease-1", 7, "revoked"), "7 revoked")
		step("", "absent")
		step(leaseOf("lease-1", 6, "active"), "[lease]") // a deletion keeps the mark
		step(leaseOf("lease-1", 7, "revoked"), "7 revoked")
		step(`{"id":"lease-1","tenantId":"acme","status":"","revision":99}`, "[lease]") // raises nothing
		step(leaseOf("lease-1", 8, "active"), "8 active")
	})
}

func TestAnIdenticalRewriteAndAnUnrelatedRecordChangeNothing(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *backend) {
		s := newScene(t, b, Options{})
		s.Retain("lease-1")
		before := s.view("lease-1").Snapshot
		b.set(leaseKey, goodLease)
		b.set(leaseKey, strings.ReplaceAll(goodLease, ",", " ,\n"))
		b.set(ControlKey, goodControl)
		b.set(Key{authz.KindLease, "lease-2"}, leaseOf("lease-2", 1, "active"))
		b.set(Key{authz.KindPlugin, "plg-b"}, `{"id":"plg-b","status":"ready","revision":1}`)
		s.notTold("lease-3")
		s.eventually("everything is read", func() bool { return s.view("lease-1").Fresh })
		if s.view("lease-1").Snapshot != before {
			t.Error("an identical rewrite made another snapshot")
		}
	})
}

func TestWhatWasWipedIsAbsent(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *backend) {
		s := newScene(t, b, Options{})
		s.Retain("lease-1")
		s.view("lease-1")
		for _, k := range []Key{leaseKey, envKey, pluginKey, workerKey, ControlKey} {
			b.del(k)
		}
		s.eventually("everything is absent", func() bool {
			n := s.view("lease-1").Snapshot
			return n.Lease == nil && n.Control == nil && n.Plugin == nil && n.Worker == nil && n.Environment == nil && n.Malformed == nil
		})
	})
}

func TestAnOutageIsNeverAnAbsence(t *testing.T) {
	onEveryStoreAlone(t, func(t *testing.T, b *backend) {
		s := newScene(t, b, Options{MaxAge: 5 * time.Second})
		s.Retain("lease-1")
		before := s.view("lease-1")
		b.outage()
		s.eventually("the outage is noticed", func() bool { return !s.Stats().Up })
		if v := s.view("lease-2"); v.Fresh || v.Snapshot != nil || v.Err == nil {
			t.Fatalf("a lease never seen: %+v", v)
		}
		if v := s.view("lease-1"); v.Snapshot != before.Snapshot || !v.Fresh {
			t.Fatalf("what was confirmed decides until its age: %+v", v)
		}
		s.told("lease-1") // it turned stale
		if v := s.view("lease-1"); v.Fresh || v.Err == nil || v.Snapshot != before.Snapshot {
			t.Fatalf("got %+v", v)
		}
		if s.Ready() == nil {
			t.Error("ready while nothing is confirmed")
		}
		b.recover()
		for k, text := range map[Key]string{leaseKey: goodLease, envKey: goodEnvironment, pluginKey: goodPlugin, workerKey: goodWorker, ControlKey: goodControl} {
			b.set(k, text)
		}
		s.eventually("it is fresh again", func() bool {
			v := s.view("lease-1")
			return v.Fresh && v.Snapshot.Lease != nil && v.Snapshot.Worker != nil
		})
		s.told("lease-1")
		s.eventually("a lease never seen is absent now", func() bool { v := s.view("lease-2"); return v.Fresh && v.Snapshot.Lease == nil })
		if s.Stats().Resyncs == 0 {
			t.Error("no resync was counted")
		}
	})
}

func TestAStaticRecordStandsInPlaceOfTheStores(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *backend) {
		static := &authz.Record{Kind: authz.KindWorker, ID: "wrk-a", PluginID: "plg-a", URL: "http://static"}
		s := newScene(t, b, Options{Override: func(kind authz.Kind, id string) (*authz.Record, bool) {
			if kind == authz.KindWorker && id == "wrk-a" {
				return static, true
			}
			return nil, kind == authz.KindWorker
		}})
		if v := s.view("lease-1"); v.Snapshot.Worker != static || !v.Fresh {
			t.Errorf("got %+v", v.Snapshot.Worker)
		}
		b.set(Key{authz.KindLease, "lease-2"}, strings.ReplaceAll(leaseOf("lease-2", 1, "active"), "wrk-a", "wrk-b"))
		b.set(Key{authz.KindWorker, "wrk-b"}, strings.ReplaceAll(goodWorker, "wrk-a", "wrk-b"))
		s.eventually("the lease is seen", func() bool { return s.view("lease-2").Snapshot.Lease != nil })
		if v := s.view("lease-2"); v.Snapshot.Worker != nil {
			t.Errorf("the store's worker was used: %+v", v.Snapshot.Worker)
		}
	})
}

func TestPutComparesAndSets(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *backend) {
		ctx := context.Background()
		put := func(revision int, status string, expect Expect, want error) {
			t.Helper()
			r, err := b.Put(ctx, leaseKey, []byte(leaseOf("lease-1", revision, status)), expect)
			if !errors.Is(err, want) || (err == nil) != (r != nil) {
				t.Errorf("revision %d %s: got %v, want %v", revision, status, err, want)
			}
		}
		at := func(n int64) Expect { return &n }
		put(3, "active", at(1), ErrPrecondition)
		b.set(leaseKey, leaseOf("lease-1", 1, "active"))
		put(3, "active", at(1), nil)
		put(2, "active", nil, ErrOlder)
		put(3, "revoked", nil, ErrConflict)
		put(3, "active", nil, nil)
		put(4, "active", at(2), ErrPrecondition)
		put(4, "active", at(3), nil)
		if _, err := b.Put(ctx, leaseKey, []byte("{"), nil); err == nil {
			t.Error("a malformed record was put")
		}
		if _, err := b.Put(ctx, Key{authz.KindLease, "../x"}, []byte(goodLease), nil); !errors.Is(err, ErrKey) {
			t.Errorf("got %v", err)
		}
		if got, err := b.Get(ctx, leaseKey); err != nil || got.Record.Revision != 4 || got.Fault != nil {
			t.Errorf("got %+v, %v", got, err)
		}
		b.set(leaseKey, `{"revision":99}`)
		if got, err := b.Get(ctx, leaseKey); err != nil || got.Record != nil || got.Fault == nil || string(got.Text) != `{"revision":99}` {
			t.Errorf("got %+v, %v", got, err)
		}
		put(1, "active", at(99), ErrPrecondition)
		put(1, "active", nil, nil) // what is malformed may be repaired
		if err := b.Delete(ctx, leaseKey, at(7)); !errors.Is(err, ErrPrecondition) {
			t.Errorf("got %v", err)
		}
		if err := b.Delete(ctx, leaseKey, at(1)); err != nil {
			t.Errorf("got %v", err)
		}
		if err := b.Delete(ctx, leaseKey, nil); !errors.Is(err, ErrNotFound) {
			t.Errorf("got %v", err)
		}
		if _, err := b.Get(ctx, leaseKey); !errors.Is(err, ErrNotFound) {
			t.Errorf("got %v", err)
		}
	})
}

func TestOneOfManyWritersOfOneRevisionWins(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *backend) {
		const writers = 8
		won := make(chan bool, writers)
		for i := range writers {
			go func() {
				_, err := b.Put(context.Background(), leaseKey, []byte(leaseOf("lease-1", 1, fmt.Sprint("s", i))), nil)
				if err != nil && !errors.Is(err, ErrConflict) {
					t.Error(err)
				}
				won <- err == nil
			}()
		}
		winners := 0
		for range writers {
			if <-won {
				winners++
			}
		}
		if winners != 1 {
			t.Errorf("%d writers won", winners)
		}
	})
}

func TestListNamesTheRecordsOfAKind(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *backend) {
		ctx := context.Background()
		list := func(kind authz.Kind) []string {
			t.Helper()
			ids, err := b.List(ctx, kind)
			if err != nil {
				t.Fatal(err)
			}
			return ids
		}
		b.set(envKey, "{")
		for _, kind := range Kinds() {
			if ids := list(kind); len(ids) != 0 && kind != authz.KindEnvironment {
				t.Errorf("%s: got %q", kind, ids)
			}
		}
		b.set(Key{authz.KindLease, "b"}, leaseOf("b", 1, "active"))
		b.set(Key{authz.KindLease, "a"}, "malformed")
		b.set(ControlKey, goodControl)
		if got := list(authz.KindLease); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("got %q", got)
		}
		if got := list(authz.KindControl); !slices.Equal(got, []string{""}) {
			t.Errorf("got %q", got)
		}
	})
}
