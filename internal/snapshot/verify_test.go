package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sluice/internal/authz"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// memoryBackend is a memoryStore that can stand behind a Verifier.
type memoryBackend struct{ *memoryStore }

func (m memoryBackend) Replace(_ context.Context, k Key, text []byte, judge func(Value) error) error {
	if err := judge(m.values[k]); err != nil {
		return err
	}
	m.set(k, string(text))
	return nil
}

func (m memoryBackend) Remove(_ context.Context, k Key, judge func(Value) error) error {
	if err := judge(m.values[k]); err != nil {
		return err
	}
	m.set(k, "")
	return nil
}

func (m memoryBackend) List(context.Context, authz.Kind) ([]string, error) { return nil, nil }

// keysFile is a keys file of a test.
type keysFile struct {
	t    testing.TB
	path string
	*Keys
}

func keysOf(t testing.TB, entries ...KeyEntry) *keysFile {
	t.Helper()
	f := &keysFile{t: t, path: filepath.Join(t.TempDir(), "keys.yaml")}
	f.write(entries...)
	var err error
	if f.Keys, err = OpenKeys(f.path); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *keysFile) write(entries ...KeyEntry) {
	f.t.Helper()
	text, err := json.Marshal(entries) // which is YAML
	if err != nil {
		f.t.Fatal(err)
	}
	f.writeText(string(text))
}

func (f *keysFile) writeText(text string) {
	f.t.Helper()
	if err := os.WriteFile(f.path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func entriesOf(keys []*SigningKey) []KeyEntry {
	var entries []KeyEntry
	for _, k := range keys {
		entries = append(entries, k.Entry())
	}
	return entries
}

// asked is a Verifier at one moment, over a store of one value.
type asked struct {
	*Verifier
	store *memoryStore
}

func verifierOn(t testing.TB, now time.Time, keys ...*SigningKey) asked {
	t.Helper()
	return verifierBy(t, now, VerifierOptions{}, entriesOf(keys)...)
}

func verifierBy(t testing.TB, now time.Time, opt VerifierOptions, entries ...KeyEntry) asked {
	t.Helper()
	m := newMemoryStore()
	opt.Keys, opt.Now = keysOf(t, entries...).Keys, func() time.Time { return now }
	v, err := NewVerifier(memoryBackend{m}, opt)
	if err != nil {
		t.Fatal(err)
	}
	return asked{v, m}
}

// ask returns what becomes of a text that stands under a key.
func (a asked) ask(k Key, text string) Value {
	a.store.values[k] = Value{Found: true, Text: []byte(text)}
	values, err := a.Read(context.Background(), []Key{k})
	if err != nil {
		panic(err)
	}
	return values[0]
}

func TestAVerifierPassesOnWhatIsNoText(t *testing.T) {
	a := verifierOn(t, time.Unix(1800000000, 0), someKey(t, "EdDSA", ""))
	a.store.values = map[Key]Value{
		envKey: {Found: true, Odd: "is no string value"}, pluginKey: {Err: errBroken},
	}
	got, err := a.Read(context.Background(), []Key{leaseKey, envKey, pluginKey})
	if err != nil || got[0].Found || got[1].Odd != "is no string value" || !errors.Is(got[2].Err, errBroken) {
		t.Errorf("got %+v, %v", got, err)
	}
	a.store.fail(errBroken)
	if _, err := a.Read(context.Background(), []Key{leaseKey}); !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
}

func TestAKeySignsInItsWindow(t *testing.T) {
	k := someKey(t, "EdDSA", "")
	e := k.Entry()
	e.NotBefore, e.NotAfter = "2027-01-15T08:00:00Z", "2027-01-15T08:10:00Z"
	from, to := time.Unix(1800000000, 0), time.Unix(1800000600, 0)
	for _, c := range []struct {
		name string
		now  time.Time
		life time.Duration // default an hour
		want string
		ttl  time.Duration
	}{
		{"with an exp before its end", to.Add(-time.Minute), 30 * time.Second, "", 30*time.Second - time.Millisecond},
		{"before", from.Add(-time.Second), 0, "which is not in force before 2027-01-15T08:00:00Z", time.Second - time.Millisecond},
		{"from its first moment", from, 0, "", to.Sub(from) - time.Millisecond},
		{"to its last", to.Add(-1), 0, "", 1},
		{"not at its end", to, 0, "which is out of force since 2027-01-15T08:10:00Z", 0},
	} {
		compact := handmade(k.private, headerOf(k, leaseKey, c.now.Truncate(time.Second), or(c.life, time.Hour)).json(), goodLease)
		got := verifierBy(t, c.now, VerifierOptions{}, e).ask(leaseKey, compact)
		if (c.want == "") != (got.Odd == "") || !strings.Contains(got.Odd, c.want) || got.TTL != c.ttl {
			t.Errorf("%s: got %q for %s, want %q for %s", c.name, got.Odd, got.TTL, c.want, c.ttl)
		}
	}
}

func TestTheStoresOwnExpiryCountsWhenItIsSooner(t *testing.T) {
	now := time.Unix(1800000000, 0)
	k := someKey(t, "EdDSA", "")
	a := verifierOn(t, now, k)
	compact := handmade(k.private, headerOf(k, leaseKey, now, time.Minute).json(), goodLease)
	for ttl, want := range map[time.Duration]time.Duration{0: time.Minute - time.Millisecond, time.Second: time.Second, time.Hour: time.Minute - time.Millisecond} {
		a.store.values[leaseKey] = Value{Found: true, Text: []byte(compact), TTL: ttl}
		if got, _ := a.Read(context.Background(), []Key{leaseKey}); got[0].TTL != want {
			t.Errorf("%s: got %s, want %s", ttl, got[0].TTL, want)
		}
	}
}

func TestATenantsKeySpeaksForItsTenantAlone(t *testing.T) {
	now := time.Unix(1800000000, 0)
	k := someKey(t, "ES256", "acme")
	a := verifierOn(t, now, k)
	for _, c := range []struct {
		name string
		at   Key
		text string
		want string
	}{
		{"its lease", leaseKey, goodLease, ""},
		{"its environment", envKey, goodEnvironment, ""},
		{"another's lease", leaseKey, strings.Replace(goodLease, `"acme"`, `"evil"`, 1), "is signed with a key of tenant acme, and is another tenant's"},
		{"another's environment", envKey, strings.Replace(goodEnvironment, `"acme"`, `"Acme"`, 1), "is signed with a key of tenant acme, and is another tenant's"},
		{"a plugin", pluginKey, goodPlugin, "which signs leases and environments alone"},
		{"its own worker", workerKey, strings.Replace(goodWorker, `{`, `{"tenantId":"acme",`, 1), "which signs leases and environments alone"},
		{"the control record", ControlKey, goodControl, "which signs leases and environments alone"},
		{"a plugin that is malformed", pluginKey, "{", "which signs leases and environments alone"},
	} {
		got := a.ask(c.at, handmade(k.private, headerOf(k, c.at, now, time.Hour).json(), c.text))
		if (c.want == "") != (got.Odd == "") || !strings.Contains(got.Odd, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got.Odd, c.want)
		}
		if c.want == "" && got.Tenant != "acme" {
			t.Errorf("%s: is handed on as %q's", c.name, got.Tenant)
		}
	}
}

func TestWhatIsNotSignedIsTakenOnlyWhereThatIsAllowed(t *testing.T) {
	now := time.Unix(1800000000, 0)
	k, foreign := someKey(t, "EdDSA", ""), someKey(t, "EdDSA", "")
	a := verifierBy(t, now, VerifierOptions{AllowUnsigned: true}, k.Entry())
	if got := a.ask(leaseKey, goodLease); got.Odd != "" || string(got.Text) != goodLease || got.TTL != 0 {
		t.Errorf("got %+v", got)
	}
	if got := a.ask(leaseKey, handmade(k.private, headerOf(k, leaseKey, now, time.Minute).json(), goodLease)); got.Odd != "" || string(got.Text) != goodLease {
		t.Errorf("got %+v", got)
	}
	for _, text := range []string{handmade(foreign.private, headerOf(foreign, leaseKey, now, time.Minute).json(), goodLease), "null", "", "a.b.c"} {
		if got := a.ask(leaseKey, text); got.Odd == "" {
			t.Errorf("%q was taken", text)
		}
	}
}

// signedScene is a cache over signed records, in a bubble.
type signedScene struct {
	*Cache
	m     *memoryStore
	keys  *keysFile
	key   *SigningKey
	told  func() string
	state func() string // of lease-1, such as "fresh active"
}

func signedBubble(t *testing.T, test func(t *testing.T, s *signedScene)) {
	t.Helper()
	key := someKey(t, "EdDSA", "")
	keys := keysOf(t, key.Entry())
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryStore()
		s := &signedScene{m: m, keys: keys, key: key}
		v, err := NewVerifier(memoryBackend{m}, VerifierOptions{Keys: keys.Keys})
		if err != nil {
			t.Fatal(err)
		}
		changes := make(chan string, 1000)
		s.Cache, err = NewCache(Options{Store: v, OnChange: oneByOne(func(id string) { changes <- id })})
		if err != nil {
			t.Fatal(err)
		}
		s.told = func() string {
			synctest.Wait()
			var ids []string
			for len(changes) > 0 {
				ids = append(ids, <-changes)
			}
			return strings.Join(ids, " ")
		}
		s.state = func() string { return stateOf(see(s.Cache)) }
		for k, text := range map[Key]string{
			leaseKey: goodLease, envKey: goodEnvironment, pluginKey: goodPlugin, workerKey: goodWorker, ControlKey: goodControl,
		} {
			m.set(k, s.sign(k, text, time.Hour))
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { _ = s.Run(ctx); close(ended) }()
		go func() { // a store that confirms without a pause, and tells of nothing by itself
			<-m.ready
			m.feed.Up()
			for ctx.Err() == nil {
				m.feed.Confirm(time.Now())
				time.Sleep(time.Second)
			}
		}()
		synctest.Wait()
		test(t, s)
		cancel()
		<-ended
		time.Sleep(time.Second)
	})
}

func (s *signedScene) sign(k Key, text string, life time.Duration) string {
	return handmade(s.key.private, headerOf(s.key, k, time.Now(), life).json(), text)
}

func stateOf(v authz.View) string {
	switch n := v.Snapshot; {
	case !v.Fresh:
		return "stale"
	case n.Malformed != nil:
		return malformed(v)
	case n.Lease == nil:
		return "absent"
	case n.Worker == nil:
		return n.Lease.Status + " without worker"
	default:
		return n.Lease.Status
	}
}

func TestASignedRecordIsMalformedFromItsExpOnWithoutAnybodySayingSo(t *testing.T) {
	signedBubble(t, func(t *testing.T, s *signedScene) {
		s.m.put(leaseKey, s.sign(leaseKey, goodLease, time.Minute))
		exp := time.Now().Add(time.Minute)
		s.Retain("lease-1")
		if got := s.state(); got != "active" {
			t.Fatalf("got %s", got)
		}
		s.told()
		time.Sleep(time.Until(exp) - 2*time.Millisecond)
		if got := s.told() + s.state(); got != "active" {
			t.Errorf("before exp: got %s", got)
		}
		time.Sleep(time.Until(exp))
		if got := s.told(); got != "lease-1" {
			t.Errorf("at exp: told of %q", got)
		}
		if got := s.state(); got != "[lease]" {
			t.Errorf("at exp: got %s", got)
		}
	})
}

func TestARecordThatIsSignedAgainIsTheSame(t *testing.T) {
	signedBubble(t, func(t *testing.T, s *signedScene) {
		s.Retain("lease-1")
		before := see(s.Cache)
		for range 5 {
			time.Sleep(30 * time.Minute)
			for k, text := range map[Key]string{
				leaseKey: goodLease, envKey: goodEnvironment, pluginKey: goodPlugin, workerKey: goodWorker, ControlKey: goodControl,
			} {
				s.m.put(k, s.sign(k, text, time.Hour))
			}
			if got := s.told(); got != "" {
				t.Fatalf("told of %q", got)
			}
		}
		if after := see(s.Cache); after.Snapshot != before.Snapshot || !after.Fresh {
			t.Errorf("got %+v", after)
		}
		s.m.put(leaseKey, s.sign(leaseKey, leaseOf("lease-1", 2, "active"), time.Hour))
		if got := s.told() + " " + s.state(); got != "lease-1 [lease]" {
			t.Errorf("an older revision, signed anew: got %s", got)
		}
	})
}

func TestAKeyThatIsGoneTakesWhatItSignedAlongAtOnce(t *testing.T) {
	signedBubble(t, func(t *testing.T, s *signedScene) {
		other := someKey(t, "ES256", "")
		s.Retain("lease-1")
		if got := s.state(); got != "active" {
			t.Fatalf("got %s", got)
		}
		step := func(what, want string, entries ...KeyEntry) {
			t.Helper()
			s.keys.write(entries...)
			time.Sleep(250 * time.Millisecond)
			s.told()
			if got := s.state(); got != want {
				t.Errorf("%s: got %s, want %s", what, got, want)
			}
		}
		replaced := other.Entry()
		replaced.Kid = s.key.entry.Kid
		late := s.key.Entry()
		late.NotBefore = time.Now().Add(time.Minute).UTC().Format(time.RFC3339)
		tenants := s.key.Entry()
		tenants.TenantID = "acme"
		step("another key beside it", "active", s.key.Entry(), other.Entry())
		step("removed", "[lease control]", other.Entry())
		step("back", "active", s.key.Entry())
		step("replaced under its kid", "[lease control]", replaced)
		step("back", "active", s.key.Entry())
		step("made a tenant's", "[control plugin]", tenants)
		step("back", "active", s.key.Entry())
		step("none at all", "[lease control]")
		step("back", "active", s.key.Entry())
		s.keys.writeText("- {kid: x")
		time.Sleep(time.Second)
		if got := s.told() + s.state(); got != "active" {
			t.Errorf("a bad file: got %s", got)
		}
		if err := os.Remove(s.keys.path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := s.told() + s.state(); got != "active" {
			t.Errorf("no file: got %s", got)
		}
		step("in force in a minute", "[lease control]", late)
		time.Sleep(time.Minute)
		if got := s.told() + " " + s.state(); got != "lease-1 active" {
			t.Errorf("a minute later: got %s", got)
		}
	})
}

func TestChangedKeysBeginNoEpochWhileTheStoreIsDown(t *testing.T) {
	signedBubble(t, func(t *testing.T, s *signedScene) {
		s.Retain("lease-1")
		s.state()
		s.m.feed.Down(errBroken)
		s.keys.write()
		time.Sleep(time.Second)
		if s.Stats().Up {
			t.Error("the store is up")
		}
		s.m.feed.Up()
		s.told()
		if got := s.state(); got != "[lease control]" {
			t.Errorf("got %s", got)
		}
	})
}

func TestATenantsOwnLeaseIsServedByATenantsOwnWorkerAlone(t *testing.T) {
	signedBubble(t, func(t *testing.T, s *signedScene) {
		acme := someKey(t, "EdDSA", "acme")
		s.keys.write(s.key.Entry(), acme.Entry())
		time.Sleep(time.Second)
		s.Retain("lease-1")
		byAcme := func() string {
			return handmade(acme.private, headerOf(acme, leaseKey, time.Now(), time.Hour).json(), goodLease)
		}
		step := func(what string, k Key, text, want string) {
			t.Helper()
			s.m.put(k, text)
			s.told()
			if got := s.state(); got != want {
				t.Errorf("%s: got %s, want %s", what, got, want)
			}
		}
		shared := func(revision string) string {
			return strings.Replace(goodWorker, `"revision":2`, `"revision":`+revision, 1)
		}
		tenants := func(id, revision string) string {
			return strings.Replace(shared(revision), `{`, `{"tenantId":"`+id+`",`, 1)
		}
		step("signed by the installation, shared worker", leaseKey, s.sign(leaseKey, goodLease, time.Hour), "active")
		step("the same record, signed by the tenant", leaseKey, byAcme(), "active without worker")
		step("the tenant's worker", workerKey, s.sign(workerKey, tenants("acme", "3"), time.Hour), "active")
		step("another tenant's worker", workerKey, s.sign(workerKey, tenants("evil", "4"), time.Hour), "active without worker")
		step("a shared worker again", workerKey, s.sign(workerKey, shared("5"), time.Hour), "active without worker")
		step("signed by the installation again", leaseKey, s.sign(leaseKey, goodLease, time.Hour), "active")
	})
}

func TestWhoseKeySignedALeaseIsPartOfWhatIsKnownOfIt(t *testing.T) {
	signedBubble(t, func(t *testing.T, s *signedScene) {
		acme := someKey(t, "EdDSA", "acme")
		s.keys.write(s.key.Entry(), acme.Entry())
		time.Sleep(time.Second)
		if got := s.state(); got != "active" {
			t.Fatalf("got %s", got)
		}
		s.m.feed.Down(errBroken)
		s.m.set(leaseKey, handmade(acme.private, headerOf(acme, leaseKey, time.Now(), time.Hour).json(), goodLease))
		s.m.mu.Lock()
		s.m.values[workerKey] = Value{Err: errBroken}
		s.m.mu.Unlock()
		s.m.feed.Up()
		if got := s.state(); got != "stale" {
			t.Errorf("the lease is the tenant's now, and its worker cannot be read: got %s", got)
		}
	})
}

func TestAStaticWorkerServesNoTenantsOwnLease(t *testing.T) {
	v := &value{record: &authz.Record{TenantID: "acme"}, tenant: "acme"}
	static := &value{record: &authz.Record{ID: "wrk-a"}, fixed: true}
	if s := assemble("lease-1", &[roles]*value{roleLease: v, roleWorker: static}); s.Worker != nil {
		t.Errorf("got %+v", s.Worker)
	}
}

func TestPutComparesWhatIsSigned(t *testing.T) {
	ctx := context.Background()
	now := time.Unix(1800000000, 0)
	k, foreign, acme := someKey(t, "EdDSA", ""), someKey(t, "EdDSA", ""), someKey(t, "ES256", "acme")
	a := verifierOn(t, now, k, acme)
	signed := func(by *SigningKey, revision int, status string, at time.Time) string {
		return handmade(by.private, headerOf(by, leaseKey, at, time.Hour).json(), leaseOf("lease-1", revision, status))
	}
	put := func(what, text string, expect Expect, want error) {
		t.Helper()
		if r, err := a.Put(ctx, leaseKey, []byte(text), expect); !errors.Is(err, want) || (err == nil) != (r != nil) {
			t.Errorf("%s: got %v, want %v", what, err, want)
		}
	}
	at := func(n int64) Expect { return &n }
	put("unsigned", leaseOf("lease-1", 1, "active"), nil, ErrMalformed)
	put("signed by nobody known", signed(foreign, 1, "active", now), nil, ErrMalformed)
	put("expired", signed(k, 1, "active", now.Add(-time.Hour)), nil, ErrMalformed)
	put("to come", signed(k, 1, "active", now.Add(time.Minute)), nil, ErrMalformed)
	put("malformed inside", handmade(k.private, headerOf(k, leaseKey, now, time.Hour).json(), "{"), nil, ErrMalformed)
	if _, err := a.Get(ctx, leaseKey); !errors.Is(err, ErrNotFound) {
		t.Fatalf("something was written: %v", err)
	}
	put("good", signed(k, 3, "active", now), nil, nil)
	put("older", signed(k, 2, "active", now), nil, ErrOlder)
	put("the same revision, other content", signed(k, 3, "revoked", now), nil, ErrConflict)
	put("the same, signed by another", signed(acme, 3, "active", now.Add(-time.Second)), nil, nil)
	put("the wrong revision expected", signed(k, 4, "active", now), at(2), ErrPrecondition)
	put("the revision expected", signed(k, 4, "active", now), at(3), nil)

	got, err := a.Get(ctx, leaseKey)
	if err != nil || got.Record.Revision != 4 || string(got.Text) != leaseOf("lease-1", 4, "active") || !strings.HasPrefix(string(got.Signed), "eyJ") {
		t.Errorf("got %+v, %v", got, err)
	}
	// What has expired was seen by gateways all the same.
	a.store.set(leaseKey, signed(k, 7, "revoked", now.Add(-2*time.Hour)))
	if got, err := a.Get(ctx, leaseKey); err != nil || got.Record != nil || got.Fault == nil || !strings.Contains(got.Fault.Error(), "has expired") {
		t.Errorf("got %+v, %v", got, err)
	}
	put("older than an expired one", signed(k, 6, "active", now), nil, ErrOlder)
	put("newer than an expired one", signed(k, 8, "active", now), at(7), nil)
	// What nobody signed holds nobody up.
	a.store.set(leaseKey, leaseOf("lease-1", 1000, "active"))
	put("over what is unsigned", signed(k, 9, "active", now), nil, nil)
	a.store.set(leaseKey, signed(foreign, 1000, "active", now))
	put("over what a stranger signed", signed(k, 10, "active", now), nil, nil)

	if err := a.Delete(ctx, leaseKey, at(9)); !errors.Is(err, ErrPrecondition) {
		t.Errorf("got %v", err)
	}
	if err := a.Delete(ctx, leaseKey, at(10)); err != nil {
		t.Errorf("got %v", err)
	}
	if err := a.Delete(ctx, leaseKey, nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if _, err := a.Put(ctx, Key{authz.KindLease, "../x"}, nil, nil); !errors.Is(err, ErrKey) {
		t.Errorf("got %v", err)
	}
	if _, err := a.Get(ctx, Key{authz.KindLease, "../x"}); !errors.Is(err, ErrKey) {
		t.Errorf("got %v", err)
	}
}

// Who signs for one tenant can take another's record away, as whoever writes to
// the store can; that must not last once the right one is written again.
func TestATenantsKeyRaisesNoMarkOfAnothersRecord(t *testing.T) {
	signedBubble(t, func(t *testing.T, s *signedScene) {
		other := someKey(t, "EdDSA", "other")
		s.keys.write(s.key.Entry(), other.Entry())
		time.Sleep(time.Second)
		s.Retain("lease-1")
		s.state()
		highest := strings.NewReplacer(`"tenantId":"acme"`, `"tenantId":"other"`, `"revision":3`, `"revision":9223372036854775807`)
		s.m.put(leaseKey, handmade(other.private, headerOf(other, leaseKey, time.Now(), time.Hour).json(), highest.Replace(leaseOf("lease-1", 3, "active"))))
		s.told()
		if v := see(s.Cache); len(v.Snapshot.Malformed) != 1 {
			t.Errorf("another tenant's record: got %+v", v.Snapshot)
		}
		s.m.put(leaseKey, s.sign(leaseKey, leaseOf("lease-1", 4, "active"), time.Hour))
		s.told()
		if v := see(s.Cache); v.Snapshot.Lease == nil || v.Snapshot.Lease.Revision != 4 {
			t.Errorf("written again: got %+v, %s", v.Snapshot, s.entries[leaseKey].value.fault)
		}
	})
}
