package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sluice/internal/authz"
	"sluice/internal/snapshot"
	"sluice/internal/snapshot/redistest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// place is a store under test, and how a gateway reads it.
type place struct {
	store store
	read  func(key) (string, bool)
	wipe  func()
}

// places are the stores that a publisher can publish to.
var places = map[string]func(*testing.T) place{
	"redis": func(t *testing.T) place {
		server := redistest.Start(t)
		return place{
			store: &redisStore{server.Client, "sluice:"},
			read: func(k key) (string, bool) {
				text, err := server.Client.Get(t.Context(), "sluice:"+k.String()).Result()
				return text, err == nil
			},
			wipe: func() { server.Client.FlushAll(t.Context()) },
		}
	},
	"directory": func(t *testing.T) place {
		d := directory{t.TempDir()}
		return place{
			store: d,
			read: func(k key) (string, bool) {
				text, err := os.ReadFile(d.name(k))
				return string(text), err == nil
			},
			wipe: func() {
				_ = os.RemoveAll(filepath.Join(d.path, "leases"))
				_ = os.RemoveAll(filepath.Join(d.path, ".removed"))
			},
		}
	},
}

func inEachPlace(t *testing.T, test func(*testing.T, place)) {
	for name, start := range places {
		t.Run(name, func(t *testing.T) { test(t, start(t)) })
	}
}

var lease1 = key{"lease", "lease-1"}

func text(revision int64, status string) []byte {
	return fmt.Appendf(nil, `{"id":"lease-1","tenantId":"acme","status":%q,"revision":%d}`, status, revision)
}

// mustHold checks what stands under lease-1; an empty status is nothing.
func mustHold(t *testing.T, p place, revision int64, status string) {
	t.Helper()
	got, found := p.read(lease1)
	if status == "" {
		if found {
			t.Errorf("the store holds %s", got)
		}
		return
	}
	if strings.TrimSpace(got) != string(text(revision, status)) {
		t.Errorf("the store holds %q, want %s at revision %d", got, status, revision)
	}
}

func TestAnOlderVersionNeverComesOverANewerOne(t *testing.T) {
	inEachPlace(t, func(t *testing.T, p place) {
		ctx := t.Context()
		if err := p.store.put(ctx, lease1, 10, text(10, "revoked")); err != nil {
			t.Fatal(err)
		}
		if err := p.store.put(ctx, lease1, 9, text(9, "active")); !errors.Is(err, errOlder) {
			t.Errorf("answered %v", err)
		}
		if err := p.store.remove(ctx, lease1, 9); !errors.Is(err, errOlder) {
			t.Errorf("answered %v", err)
		}
		mustHold(t, p, 10, "revoked")
	})
}

func TestTheSameVersionAgainIsFineAndAnotherRecordOfItIsNot(t *testing.T) {
	inEachPlace(t, func(t *testing.T, p place) {
		ctx := t.Context()
		spelt := []byte(`{"revision": 10, "status": "active", "tenantId": "acme", "id": "lease-1"}`)
		for _, same := range [][]byte{text(10, "active"), text(10, "active"), spelt} {
			if err := p.store.put(ctx, lease1, 10, same); err != nil {
				t.Error(err)
			}
		}
		for _, err := range []error{p.store.put(ctx, lease1, 10, text(10, "revoked")), p.store.remove(ctx, lease1, 10)} {
			if !errors.Is(err, errConflict) {
				t.Errorf("answered %v", err)
			}
		}
		mustHold(t, p, 10, "active")
	})
}

func TestWhatWasRemovedDoesNotComeBackByALateChange(t *testing.T) {
	inEachPlace(t, func(t *testing.T, p place) {
		ctx := t.Context()
		for _, err := range []error{
			p.store.put(ctx, lease1, 1, text(1, "active")), p.store.remove(ctx, lease1, 3), p.store.remove(ctx, lease1, 3),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		mustHold(t, p, 0, "")
		for revision, want := range map[int64]error{2: errOlder, 3: errConflict} {
			if err := p.store.put(ctx, lease1, revision, text(revision, "active")); !errors.Is(err, want) {
				t.Errorf("version %d: answered %v", revision, err)
			}
		}
		mustHold(t, p, 0, "")
		if err := p.store.put(ctx, lease1, 4, text(4, "active")); err != nil {
			t.Error(err)
		}
		mustHold(t, p, 4, "active")
	})
}

func TestManyPublishersInAnyOrderComeToTheNewestVersion(t *testing.T) {
	inEachPlace(t, func(t *testing.T, p place) {
		const newest = 40
		var wg sync.WaitGroup
		for range 4 {
			order := rand.Perm(newest + 1)
			wg.Go(func() {
				for _, n := range order {
					revision, err := int64(n), error(nil)
					if revision%5 == 3 {
						err = p.store.remove(t.Context(), lease1, revision)
					} else {
						err = p.store.put(t.Context(), lease1, revision, text(revision, "active"))
					}
					if err != nil && !errors.Is(err, errOlder) {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		mustHold(t, p, newest, "active")
	})
}

func TestWhatIsNoRecordIsReplaced(t *testing.T) {
	for _, was := range []string{"", "{", "[]", `{"revision": "9"}`, `{"revision": 9.5}`, `{"status": "active"}`} {
		if write, err := judge(stored{text: []byte(was)}, 0, text(0, "active")); !write || err != nil {
			t.Errorf("over %q: %v, %v", was, write, err)
		}
	}
}

// scene is a publisher that follows a file.
type scene struct {
	*publisher
	place
	file string
	log  bytes.Buffer
}

func newScene(t *testing.T, p place) *scene {
	s := &scene{place: p, file: filepath.Join(t.TempDir(), "outbox.jsonl")}
	s.publisher = &publisher{
		source: &outbox{path: s.file}, store: p.store, latest: map[key]change{}, pending: map[key]bool{},
		poll: time.Millisecond, resync: 10 * time.Millisecond, log: slog.New(slog.NewTextHandler(&s.log, nil)),
	}
	return s
}

// write appends to the file, and has a round read it.
func (s *scene) write(t *testing.T, words string) error {
	t.Helper()
	f, err := os.OpenFile(s.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(words)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return s.round(t.Context())
}

func row(version int64, state string) string {
	return fmt.Sprintf(`{"table": "leases", "id": "lease-1", "version": %d, "row": {"tenant_id": "acme", "state": %q}}`+"\n", version, state)
}

func status(t *testing.T, s *scene) string {
	t.Helper()
	got, found := s.read(lease1)
	if !found {
		return ""
	}
	r, err := snapshot.Decode(authz.KindLease, "lease-1", []byte(got), nil)
	if err != nil {
		t.Fatalf("a gateway cannot read %s: %v", got, err)
	}
	return fmt.Sprintf("%s %d", r.Status, r.Revision)
}

func TestChangesAreFollowedTwiceAndOutOfOrder(t *testing.T) {
	inEachPlace(t, func(t *testing.T, p place) {
		s := newScene(t, p)
		for _, step := range []struct{ words, want string }{
			{row(1, "active"), "active 1"},
			{row(1, "active"), "active 1"},
			{row(3, "revoked") + row(2, "active"), "revoked 3"},
			{row(1, "active"), "revoked 3"},
			{`{"table": "leases", "id": "lease-1", "version": 4, "row": null}` + "\n", ""},
			{row(2, "active"), ""},
			{row(5, "active")[:30], ""},
			{row(5, "active")[30:], "active 5"},
		} {
			if err := s.write(t, step.words); err != nil {
				t.Errorf("after %q: %v", step.words, err)
			}
			if got := status(t, s); got != step.want {
				t.Errorf("after %q the lease is %q, want %q", step.words, got, step.want)
			}
		}
	})
}

func TestARowThatCannotBeReadTakesItsRightAway(t *testing.T) {
	inEachPlace(t, func(t *testing.T, p place) {
		s := newScene(t, p)
		_ = s.write(t, row(1, "active"))
		err := s.write(t, `{"table": "leases", "id": "lease-1", "version": 2, "row": {"tenant_id": "acme", "state": "active", "expires": "2026-01-01"}}`+"\n")
		if err != nil || !strings.Contains(s.log.String(), `unknown field \"expires\"`) {
			t.Errorf("%v, logged %s", err, &s.log)
		}
		if got := status(t, s); got != "" {
			t.Errorf("the lease is still %s", got)
		}
	})
}

func TestWhatIsNoChangeStopsTheSource(t *testing.T) {
	s := newScene(t, places["directory"](t))
	for _, words := range []string{row(1, "active") + "nonsense\n", row(2, "active")} {
		if err := s.write(t, words); err == nil || !strings.Contains(err.Error(), "at byte") {
			t.Errorf("answered %v", err)
		}
	}
	if got := status(t, s); got != "active 1" {
		t.Errorf("the lease is %s", got)
	}
}

func TestAnIDThatIsNoneNamesNoFile(t *testing.T) {
	for _, c := range []change{
		{Table: "leases", ID: "../../etc/x", Version: 1},
		{Table: "leases", Version: 1},
		{Table: "settings", ID: "x", Version: 1},
		{Table: "users", ID: "x", Version: 1},
		{Table: "leases", ID: "x", Version: -1},
		{Table: "leases", ID: "a:b", Version: 1},
	} {
		if k, text, err := record(c); k != (key{}) || text != nil || err == nil {
			t.Errorf("%+v became %v %s", c, k, text)
		}
	}
}

func TestAFlushedStoreIsFilledAgain(t *testing.T) {
	inEachPlace(t, func(t *testing.T, p place) {
		s := newScene(t, p)
		if err := s.write(t, row(7, "active")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.run(ctx) }()
		p.wipe()
		for deadline := time.Now().Add(20 * time.Second); status(t, s) != "active 7"; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the record did not come back")
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestAStoreThatIsOutOfReachGetsEverythingLater(t *testing.T) {
	server := redistest.Start(t)
	s := newScene(t, place{
		store: &redisStore{server.Client, "sluice:"},
		read: func(k key) (string, bool) {
			text, err := server.Client.Get(t.Context(), "sluice:"+k.String()).Result()
			return text, err == nil
		},
	})
	server.Down()
	if err := s.write(t, row(1, "active")); err == nil {
		t.Error("a store that is down was published to")
	}
	server.Up()
	if err := s.round(t.Context()); err != nil {
		t.Error(err)
	}
	if got := status(t, s); got != "active 1" {
		t.Errorf("the lease is %q", got)
	}
}

// The sample's rows as a gateway reads them.
func TestTheSampleIsWellFormed(t *testing.T) {
	dir := t.TempDir()
	if err := run(t.Context(), []string{"-once", "-from", "outbox.jsonl", "-to", dir}, os.Stderr); err != nil {
		t.Fatal(err)
	}
	store, err := snapshot.NewFileStore(snapshot.FileOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range snapshot.Kinds() {
		ids, err := store.List(t.Context(), kind)
		if err != nil || len(ids) != 1 {
			t.Fatalf("%s: %v, %v", kind, ids, err)
		}
		record, err := store.Get(t.Context(), snapshot.Key{Kind: kind, ID: ids[0]})
		if err != nil || record.Fault != nil {
			t.Errorf("%s %s: %v, %v", kind, ids[0], err, record.Fault)
		}
	}
}

func TestWrongUsageIsRefused(t *testing.T) {
	for _, args := range [][]string{{}, {"-to", "http://x"}, {"-nonsense"}} {
		if err := run(t.Context(), args, new(bytes.Buffer)); err == nil {
			t.Errorf("%v was taken", args)
		}
	}
}
