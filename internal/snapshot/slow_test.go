package snapshot

import (
	"context"
	"fmt"
	"io"
	"net"
	"sluice/internal/snapshot/redistest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// dribble has a server write the answers to reads of records in pieces of one
// byte, a pause before each; and the others as they are.
func (s *scripted) dribble(pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write = func(c net.Conn, answer string) {
		if pause == 0 || !strings.HasPrefix(answer, "$") && !strings.HasPrefix(answer, ":") {
			_, _ = io.WriteString(c, answer)
			return
		}
		for i := range len(answer) {
			select {
			case <-s.ended:
				return
			case <-time.After(pause):
			}
			if _, err := io.WriteString(c, answer[i:i+1]); err != nil {
				return
			}
		}
	}
}

func TestAStoreThatAnswersAByteASecondHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	server := script(t)
	c, _ := cacheOn(t, Options{MaxAge: time.Minute}, RedisOptions{Addresses: []string{server.address}})
	ctx := t.Context()
	awaitFresh(t, c, "lease-1")
	server.dribble(time.Second)
	server.change(leaseKey, leaseOf("lease-1", 9, "revoked"))
	var held, never []time.Duration
	for range 5 {
		start := time.Now()
		// Until the change is told the lease stands as it was confirmed.
		if v := c.Snapshot(ctx, "lease-1"); v.Snapshot == nil || v.Snapshot.Lease.Status != "active" {
			t.Errorf("got %+v", v)
		}
		held = append(held, time.Since(start))
		start = time.Now()
		if v := c.Snapshot(ctx, "lease-2"); v.Fresh || v.Snapshot != nil || v.Err == nil {
			t.Errorf("got %+v", v)
		}
		never = append(never, time.Since(start))
	}
	waited(t, "a held lease", held, time.Second)
	waited(t, "a lease never seen", never, time.Second)
	server.dribble(0)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if v := c.Snapshot(ctx, "lease-1"); v.Fresh && v.Snapshot.Lease.Status == "revoked" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the revocation is not seen once the store answers")
		}
	}
}

// awaitFresh waits until a lease is read.
func awaitFresh(t *testing.T, c *Cache, id string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		v := c.Snapshot(t.Context(), id)
		if v.Fresh && v.Snapshot.Lease != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not read: %+v", id, v)
		}
	}
}

// An answer that comes after its question was given up is not taken for the
// answer to the next question.
func TestALateAnswerIsNoAnswerToALaterQuestion(t *testing.T) {
	t.Parallel()
	server := script(t)
	const leases = 20
	id := func(i int) string { return fmt.Sprint("lease-", i) }
	for i := range leases {
		server.change(Key{"lease", id(i)}, leaseOf(id(i), i+1, fmt.Sprint("s", i)))
	}
	c, store := cacheOn(t, Options{}, RedisOptions{Addresses: []string{server.address}, PoolSize: 1})
	awaitFresh(t, c, id(0))
	late := make(chan struct{})
	var waiting atomic.Int32
	server.mu.Lock()
	server.write = func(c net.Conn, answer string) {
		if strings.Contains(answer, `"s1"`) {
			waiting.Add(1)
			select {
			case <-late:
			case <-server.ended:
			}
		}
		_, _ = io.WriteString(c, answer)
	}
	server.mu.Unlock()
	if v := c.Snapshot(t.Context(), id(1)); v.Fresh || v.Snapshot != nil {
		t.Errorf("got %+v", v)
	}
	if waiting.Load() == 0 {
		t.Fatal("nothing was asked")
	}
	close(late) // every answer that was awaited comes now, along with the next ones
	for i := range leases {
		values, err := store.Read(t.Context(), []Key{{"lease", id(i)}, {"lease", id((i + 7) % leases)}})
		if err != nil {
			t.Fatal(err)
		}
		for n, v := range values {
			if want := fmt.Sprintf(`"id":%q`, id((i+7*n)%leases)); v.Err == nil && !strings.Contains(string(v.Text), want) {
				t.Errorf("asked for %s and read %+v %s", want, v.Found, v.Text)
			}
		}
	}
	for i := range leases {
		awaitFresh(t, c, id(i))
		if v := c.Snapshot(t.Context(), id(i)); v.Snapshot.Lease.ID != id(i) || v.Snapshot.Lease.Status != fmt.Sprint("s", i) {
			t.Errorf("%s: got %+v", id(i), v.Snapshot.Lease)
		}
	}
}

// counter relays to a server, and counts the connections that stand.
type counter struct {
	address     string
	there, most atomic.Int32
}

func countConnections(t *testing.T, target string) *counter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &counter{address: l.Addr().String()}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	t.Cleanup(func() { cancel(); l.Close(); work.Wait() })
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			k.most.Store(max(k.most.Load(), k.there.Add(1)))
			work.Go(func() { k.relay(ctx, c, target) })
		}
	})
	return k
}

func (k *counter) relay(ctx context.Context, c net.Conn, target string) {
	defer c.Close()
	server, err := net.Dial("unix", target)
	if err != nil {
		k.there.Add(-1)
		return
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { c.Close(); server.Close() })()
	back := make(chan struct{})
	go func() {
		defer close(back)
		_, _ = io.Copy(c, server)
		c.Close()
	}()
	_, _ = io.Copy(server, c) // until the client leaves, whatever the server does
	k.there.Add(-1)
	server.Close()
	<-back
}

// callStore counts the calls of Read, and those at a time.
type callStore struct {
	*RedisStore
	calls, there, most atomic.Int32
}

func (s *callStore) Read(ctx context.Context, keys []Key) ([]Value, error) {
	s.calls.Add(1)
	if n := s.there.Add(1); n > s.most.Load() {
		s.most.Store(n)
	}
	defer s.there.Add(-1)
	return s.RedisStore.Read(ctx, keys)
}

// crowd is a cache over a Redis with many retained leases.
func crowd(t *testing.T, leases int) (*Cache, *callStore, *counter, *redistest.Server) {
	t.Helper()
	server := redistest.Start(t)
	k := countConnections(t, server.Addr)
	b := redisBackendOf(t, RedisOptions{Addresses: []string{k.address}, KeyPrefix: "sluice:"}, server.Client)
	store := &callStore{RedisStore: b.Store.(*RedisStore)}
	b.Store = store
	pipe := server.Client.Pipeline()
	for i := range leases {
		id := fmt.Sprint("lease-", i)
		pipe.Set(t.Context(), "sluice:lease:"+id, leaseOf(id, 3, "active"), 0)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	for k, text := range map[Key]string{envKey: goodEnvironment, pluginKey: goodPlugin, workerKey: goodWorker, ControlKey: goodControl} {
		b.set(k, text)
	}
	c, err := NewCache(Options{Store: store, MaxAge: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { _ = c.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	for i := range leases {
		c.Retain(fmt.Sprint("lease-", i))
	}
	for deadline := time.Now().Add(30 * time.Second); !allConfirmed(c, leases); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the leases are not read")
		}
	}
	return c, store, k, server
}

// connections that a store may have: its pool's and the one that tracks. One
// that is left and the one in its place may stand at the same time.
const connectionsAtMost = 2 * (8 + 1)

func TestAResyncOfManyLeasesReadsThemTogether(t *testing.T) {
	t.Parallel()
	const leases = 3000
	c, store, k, server := crowd(t, leases)
	k.most.Store(k.there.Load())
	store.most.Store(0)
	calls, before := store.calls.Load(), commands(t, server)
	if err := server.Client.Do(t.Context(), "CLIENT", "KILL", "ID", trackingID(t, server)).Err(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); c.Stats().Resyncs == 0 || !allConfirmed(c, leases); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the leases are not read again")
		}
	}
	after := commands(t, server)
	// Each record once; one that a busy machine let go is asked for again.
	if n := after["getrange"] - before["getrange"]; n < leases || n > 2*leases {
		t.Errorf("%d leases cost %d reads", leases, n)
	}
	if n := store.calls.Load() - calls; n > 2*leases/batchSize+20 {
		t.Errorf("%d leases cost %d calls", leases, n)
	}
	if n := store.most.Load(); n > loaders {
		t.Errorf("%d calls at a time", n)
	}
	if n := k.most.Load(); n > connectionsAtMost {
		t.Errorf("%d connections", n)
	}
}

// allConfirmed reports that every lease of a crowd is at hand.
func allConfirmed(c *Cache, leases int) bool {
	for i := range leases {
		if _, ok := c.hit(fmt.Sprint("lease-", i)); !ok {
			return false
		}
	}
	return true
}

func TestAFrozenRedisIsNotConnectedToWithoutEnd(t *testing.T) {
	t.Parallel()
	c, store, k, server := crowd(t, 100)
	k.most.Store(k.there.Load())
	calls := store.calls.Load()
	server.Freeze()
	defer server.Thaw()
	var all sync.WaitGroup
	frozen := time.Now()
	for i := range 50 {
		all.Go(func() {
			for n := 0; time.Since(frozen) < 4*time.Second; n++ {
				if v := c.Snapshot(t.Context(), fmt.Sprint("unseen-", i, "-", n)); v.Fresh {
					t.Errorf("got %+v", v)
				}
				c.Snapshot(t.Context(), "lease-1")
				time.Sleep(time.Millisecond)
			}
		})
	}
	all.Wait()
	took := time.Since(frozen)
	// A read that is not answered takes 300ms; where nothing is tracked nothing is read.
	if n := store.calls.Load() - calls; float64(n) > loaders*(2+took.Seconds()/0.3) {
		t.Errorf("%d calls in %s", n, took)
	}
	if n := k.most.Load(); n > connectionsAtMost {
		t.Errorf("%d connections at a time", n)
	}
	server.Thaw()
	awaitFresh(t, c, "lease-1")
	for deadline := time.Now().Add(10 * time.Second); k.there.Load() > 8+1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are left", k.there.Load())
		}
	}
	if s := c.Stats(); s.Absent > 8192 || s.Leases > 100 {
		t.Errorf("held are %+v", s)
	}
}
