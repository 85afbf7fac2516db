package snapshot

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sluice/internal/snapshot/redistest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func redisBackend(t *testing.T) *backend {
	b, _ := redisOn(t, redistest.Start(t))
	return b
}

func redisOn(t *testing.T, server *redistest.Server) (*backend, *RedisStore) {
	t.Helper()
	b := redisBackendOf(t, RedisOptions{Addresses: []string{server.Addr}, KeyPrefix: "sluice:"}, server.Client)
	b.outage, b.recover = server.Down, server.Up
	return b, b.Store.(*RedisStore)
}

func redisScene(t *testing.T, opt Options, args ...string) (*scene, *redistest.Server) {
	t.Helper()
	server := redistest.Start(t, args...)
	b, _ := redisOn(t, server)
	return newScene(t, b, opt), server
}

// commands returns how often each command was called on the server.
func commands(t *testing.T, server *redistest.Server) map[string]int {
	t.Helper()
	info, err := server.Client.Info(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for line := range strings.Lines(info) {
		var calls int
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
		if _, err := fmt.Sscanf(rest, "calls=%d", &calls); ok && err == nil {
			counts[name] = calls
		}
	}
	return counts
}

func (s *scene) do(server *redistest.Server, args ...any) {
	s.t.Helper()
	if err := server.Client.Do(context.Background(), args...).Err(); err != nil {
		s.t.Fatalf("%v: %v", args, err)
	}
}

func TestAFlushIsSeen(t *testing.T) {
	for _, command := range [][]any{{"FLUSHALL"}, {"FLUSHDB"}, {"FLUSHALL", "ASYNC"}} {
		s, server := redisScene(t, Options{})
		s.Retain("lease-1")
		s.view("lease-1")
		s.do(server, command...)
		s.told("lease-1")
		if v := s.view("lease-1"); v.Snapshot.Lease != nil || v.Snapshot.Control != nil || !v.Fresh {
			t.Errorf("%v: got %+v", command, v)
		}
		s.set(leaseKey, goodLease)
		s.told("lease-1")
	}
}

func TestEveryWayOfChangingAKeyIsSeen(t *testing.T) {
	s, server := redisScene(t, Options{})
	s.Retain("lease-1")
	s.view("lease-1")
	absent := func(why string) {
		t.Helper()
		s.eventually(why, func() bool { n := s.view("lease-1").Snapshot; return n.Lease == nil && n.Malformed == nil })
		s.do(server, "SET", "sluice:lease:lease-1", goodLease)
		s.eventually("it is back", func() bool { return s.view("lease-1").Snapshot.Lease != nil })
	}
	s.do(server, "DEL", "sluice:lease:lease-1")
	absent("deleted")
	s.do(server, "UNLINK", "sluice:lease:lease-1")
	absent("unlinked")
	s.do(server, "RENAME", "sluice:lease:lease-1", "elsewhere")
	absent("renamed")
	s.do(server, "MOVE", "sluice:lease:lease-1", 5)
	absent("moved to another database")
	s.do(server, "PEXPIRE", "sluice:lease:lease-1", 30)
	absent("expired")
	s.do(server, "SET", "sluice:lease:lease-1", goodLease, "PX", 30)
	absent("written to expire")
	s.do(server, "EVAL", "return redis.call('DEL', KEYS[1])", 1, "sluice:lease:lease-1")
	absent("deleted by a script")
}

func TestAnExpiredRecordIsNotUsedThoughRedisHasNotSaidSo(t *testing.T) {
	s, server := redisScene(t, Options{}, "--enable-debug-command", "yes")
	s.do(server, "DEBUG", "SET-ACTIVE-EXPIRE", 0) // nothing is deleted, and pushed, until it is looked at
	s.Retain("lease-1")
	s.view("lease-1")
	s.do(server, "SET", "sluice:lease:lease-1", leaseOf("lease-1", 4, "active"), "PX", 200)
	s.told("lease-1")
	if v := s.view("lease-1"); v.Snapshot.Lease == nil || v.Snapshot.Lease.Revision != 4 {
		t.Fatalf("got %+v", v)
	}
	s.told("lease-1")
	if v := s.view("lease-1"); v.Snapshot.Lease != nil || !v.Fresh {
		t.Errorf("got %+v", v)
	}
}

func TestAKeyOfAnotherTypeIsMalformed(t *testing.T) {
	s, server := redisScene(t, Options{})
	for _, command := range [][]any{
		{"RPUSH", "sluice:lease:lease-1", goodLease},
		{"HSET", "sluice:lease:lease-1", "a", goodLease},
		{"SADD", "sluice:lease:lease-1", goodLease},
		{"XADD", "sluice:lease:lease-1", "*", "a", goodLease},
		{"SET", "sluice:lease:lease-1", ""},
	} {
		s.del(leaseKey)
		s.do(server, command...)
		s.eventually("it is malformed", func() bool { return malformed(s.view("lease-1")) == "[lease]" })
	}
}

func TestAChangeWhileTheTrackingConnectionIsKilledIsSeen(t *testing.T) {
	s, server := redisScene(t, Options{})
	for _, id := range []string{"lease-1", "lease-2"} {
		s.set(Key{"lease", id}, leaseOf(id, 4, "active"))
		s.Retain(id)
	}
	s.eventually("both are read", func() bool {
		one, two := s.view("lease-1").Snapshot.Lease, s.view("lease-2").Snapshot.Lease
		return one != nil && one.Revision == 4 && two != nil && two.Revision == 4
	})
	s.allTold("lease-3")
	unmoved := s.view("lease-2").Snapshot
	// Both in one transaction: nobody is told of the write.
	tx := server.Client.TxPipeline()
	tx.Do(context.Background(), "CLIENT", "KILL", "ID", trackingID(t, server))
	tx.Set(context.Background(), "sluice:lease:lease-1", leaseOf("lease-1", 5, "revoked"), 0)
	if _, err := tx.Exec(context.Background()); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	s.told("lease-1")
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	if v := s.view("lease-1"); v.Snapshot.Lease.Status != "revoked" || !v.Fresh {
		t.Errorf("got %+v", v.Snapshot.Lease)
	}
	if s.view("lease-2").Snapshot != unmoved {
		t.Error("a lease that did not change was joined anew")
	}
	s.eventually("it tracks again", func() bool { return s.Stats().Resyncs == 1 })
	if s.view("lease-2").Snapshot != unmoved {
		t.Error("a lease that did not change was joined anew by the resync")
	}
	if s.Stats().Resyncs != 1 || len(s.changes) > 0 {
		t.Errorf("%d resyncs, %d more changes told", s.Stats().Resyncs, len(s.changes))
	}
}

// trackingID finds the connection that tracks, among the server's.
func trackingID(t *testing.T, server *redistest.Server) string {
	t.Helper()
	list, err := server.Client.ClientList(context.Background()).Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(list) {
		if strings.Contains(line, "name=sluice-tracking") {
			if !strings.Contains(line, "resp=3") || !strings.Contains(line, "flags=tB") {
				t.Errorf("it does not track by broadcast in RESP3: %s", line)
			}
			return strings.Fields(strings.TrimPrefix(line, "id="))[0]
		}
	}
	t.Fatalf("nothing tracks: %s", list)
	return ""
}

func TestAFrozenRedisMakesNoRequestWait(t *testing.T) {
	s, server := redisScene(t, Options{MaxAge: 2 * time.Second})
	s.Retain("lease-1")
	before := s.view("lease-1")
	server.Freeze()
	defer server.Thaw()
	var held, never []time.Duration
	for frozen := time.Now(); time.Since(frozen) < 3*time.Second; {
		start := time.Now()
		v := s.Snapshot(context.Background(), "lease-1")
		end := time.Now()
		held = append(held, end.Sub(start))
		if oldest, youngest := end.Sub(v.Confirmed), start.Sub(v.Confirmed); v.Fresh && youngest > 2*time.Second || !v.Fresh && oldest <= 2*time.Second {
			t.Fatalf("fresh %v at an age between %s and %s", v.Fresh, youngest, oldest)
		}
		if v.Snapshot != before.Snapshot {
			t.Fatal("another snapshot")
		}
		start = time.Now()
		unseen := s.Snapshot(context.Background(), fmt.Sprintf("lease-%d", start.UnixNano()))
		never = append(never, time.Since(start))
		if unseen.Fresh || unseen.Snapshot != nil || unseen.Err == nil {
			t.Fatalf("got %+v", unseen)
		}
	}
	waited(t, "a held lease", held, 100*time.Millisecond)
	waited(t, "a lease never seen", never, 600*time.Millisecond)
	s.told("lease-1")
	if s.view("lease-1").Fresh || s.Ready() == nil || s.Stats().Up {
		t.Error("it is still trusted")
	}
	server.Thaw()
	s.eventually("it is fresh again", func() bool { return s.view("lease-1").Fresh })
	s.told("lease-1")
}

// waited holds the times that requests took against a bound: half of them keep
// to it whatever else the machine does, and none takes seconds.
func waited(t *testing.T, who string, times []time.Duration, bound time.Duration) {
	t.Helper()
	slices.Sort(times)
	if median, most := times[len(times)/2], times[len(times)-1]; median > bound || most > 3*time.Second {
		t.Errorf("%s waited %s, %s at most", who, median, most)
	}
}

func TestARestartedRedisIsReadAgain(t *testing.T) {
	s, server := redisScene(t, Options{})
	s.Retain("lease-1")
	s.view("lease-1")
	server.Down()
	server.Up()
	s.told("lease-1") // it is empty now
	if v := s.view("lease-1"); v.Snapshot.Lease != nil || !v.Fresh {
		t.Fatalf("got %+v", v)
	}
	s.set(leaseKey, leaseOf("lease-1", 2, "active"))
	s.told("lease-1")
	if v := s.view("lease-1"); malformed(v) != "[lease]" {
		t.Errorf("an older revision came back with the restart: %+v", v.Snapshot)
	}
}

func TestConcurrentMissesOfOneLeaseShareOneRead(t *testing.T) {
	s, server := redisScene(t, Options{})
	s.eventually("it was looked for rebases", func() bool { return commands(t, server)["getrange"] == 1 })
	before := commands(t, server)
	var all sync.WaitGroup
	for range 500 {
		all.Go(func() {
			if v := s.view("lease-1"); !v.Fresh || v.Snapshot.Worker == nil {
				t.Errorf("got %+v", v)
			}
		})
	}
	all.Wait()
	after := commands(t, server)
	if got := after["getrange"] - before["getrange"]; got != 5 {
		t.Errorf("%d records were read, the snapshot has 5", got)
	}
}

func TestAConfirmedSnapshotCostsNoCommand(t *testing.T) {
	s, server := redisScene(t, Options{})
	s.eventually("what is asked at the start was asked", func() bool {
		asked := commands(t, server)
		return asked["getrange"] == 1 && asked["acl|dryrun"] == len(excess)
	})
	s.view("lease-1")
	s.view("no-lease")
	before := commands(t, server)
	for range 10000 {
		s.view("lease-1")
		s.view("no-lease")
	}
	after := commands(t, server)
	for name, n := range after {
		if n != before[name] && name != "ping" && name != "role" && name != "info" {
			t.Errorf("%s was called %d times", name, n-before[name])
		}
	}
}

func TestALoginThatIsRefusedIsNeverAnAbsence(t *testing.T) {
	server := redistest.Start(t)
	b, _ := redisOn(t, server)
	ctx := context.Background()
	server.Client.Do(ctx, "ACL", "SETUSER", "reader", "on", ">secret", "~sluice:*", "+getrange", "+pttl", "+hello", "+ping", "+client|tracking", "+client|setname")
	open := func(user, password string) *Cache {
		store, err := NewRedisStore(RedisOptions{Addresses: []string{server.Addr}, KeyPrefix: "sluice:", Username: user, Password: password})
		if err != nil {
			t.Fatal(err)
		}
		c, err := NewCache(Options{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		runCtx, cancel := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() { _ = c.Run(runCtx); close(ended) }()
		t.Cleanup(func() { cancel(); <-ended; store.Close() })
		return c
	}
	b.set(leaseKey, goodLease)
	if v := open("reader", "wrong").Snapshot(ctx, "lease-1"); v.Fresh || v.Snapshot != nil || strings.Contains(v.Err.Error(), "wrong") {
		t.Errorf("got %+v", v)
	}
	if v := open("reader", "secret").Snapshot(ctx, "lease-1"); !v.Fresh || v.Snapshot.Lease == nil {
		t.Errorf("a user with the least rights: %+v", v)
	}
	// Rights that are lost while the gateway runs.
	c := open("reader", "secret")
	c.Snapshot(ctx, "lease-1")
	server.Client.Do(ctx, "ACL", "SETUSER", "reader", "-getrange")
	if v := c.Snapshot(ctx, "lease-2"); v.Fresh || v.Snapshot != nil || v.Err == nil {
		t.Errorf("got %+v", v)
	}
}

// deaf is a feed that nobody listens to.
type deaf struct{}

func (deaf) Up()               {}
func (deaf) Changed(...Key)    {}
func (deaf) Confirm(time.Time) {}
func (deaf) Down(error)        {}

func TestAServerThatIsAwayIsTriedTwiceASecondAndNotMuchOftener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries []time.Time
		away := &tracker{
			store: &RedisStore{opt: RedisOptions{Addresses: []string{"store"}}}, feed: deaf{}, log: slog.New(slog.DiscardHandler),
			find: func(context.Context) (*layout, error) {
				tries = append(tries, time.Now())
				return nil, errBroken
			},
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		away.run(ctx)
		if tries[1] != tries[0] {
			t.Errorf("the second try came after %s", tries[1].Sub(tries[0]))
		}
		for i := 1; i < len(tries); i++ {
			if pause := tries[i].Sub(tries[i-1]); pause > trackPauseMax {
				t.Errorf("a pause of %s", pause)
			}
		}
		if n := len(tries); n > 4*60+10 {
			t.Errorf("%d tries in a minute", n)
		}
	})
}
