package snapshot

import (
	"context"
	"fmt"
	"runtime"
	"sluice/internal/authz"
	"sluice/internal/snapshot/redistest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// benchCache is a running cache over a Redis with n leases, all held.
func benchCache(b *testing.B, n int) (*Cache, *redis.Client) {
	b.Helper()
	server := redistest.StartNode(b)
	ctx, cancel := context.WithCancel(context.Background())
	pipe := server.Client.Pipeline()
	for k, text := range map[Key]string{envKey: goodEnvironment, pluginKey: goodPlugin, workerKey: goodWorker, ControlKey: goodControl} {
		pipe.Set(ctx, "sluice:"+k.String(), text, 0)
	}
	for i := range n {
		pipe.Set(ctx, "sluice:lease:"+benchLease(i), leaseOf(benchLease(i), 1, "active"), 0)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		b.Fatal(err)
	}
	store, err := NewRedisStore(RedisOptions{Addresses: []string{server.Address}, KeyPrefix: "sluice:"})
	if err != nil {
		b.Fatal(err)
	}
	c, err := NewCache(Options{Store: store})
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = c.Run(ctx); close(ended) }()
	b.Cleanup(func() { cancel(); <-ended; store.Close() })
	for i := range n {
		if v := c.Snapshot(ctx, benchLease(i)); !v.Fresh || v.Snapshot.Lease == nil {
			b.Fatalf("got %+v", v)
		}
	}
	client := redis.NewClient(&redis.Options{Addr: server.Address, DisableIdentity: true})
	b.Cleanup(func() { client.Close() })
	return c, client
}

func benchLease(i int) string { return fmt.Sprint("lease-", i) }

// BenchmarkHit measures a confirmed snapshot, beside a GET of go-redis on the
// same machine in the same run: "hits/GET" is how many hits one GET costs.
func BenchmarkHit(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c, client := benchCache(b, n)
			ctx := context.Background()
			ids := inARow(n)
			const gets = 5000
			start := time.Now()
			for range gets {
				if err := client.Get(ctx, "sluice:lease:lease-1").Err(); err != nil {
					b.Fatal(err)
				}
			}
			get := time.Since(start) / gets
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if v := c.Snapshot(ctx, ids[i]); !v.Fresh {
					b.Fatal("not fresh")
				}
				if i++; i == n {
					i = 0
				}
			}
			hit := float64(b.Elapsed()) / float64(b.N)
			b.ReportMetric(float64(get)/hit, "hits/GET")
		})
	}
}

// inARow is the ids of n leases, in an order that no cache of the processor's
// foresees, in texts that stand in a row: what a request brings is at hand.
func inARow(n int) []string {
	ids := make([]string, n)
	var text strings.Builder
	for i := range ids {
		text.WriteString(benchLease(i * 7919 % n))
	}
	for i, rest := 0, text.String(); i < n; i++ {
		length := len(benchLease(i * 7919 % n))
		ids[i], rest = rest[:length], rest[length:]
	}
	return ids
}

// BenchmarkHitAmongOtherWork measures a confirmed snapshot as a busy gateway
// finds it, and beside it, in the same run, the least that a cache can do: a
// read through a Go map of the same ids. Since the last request for that lease
// the processor's caches have had other work; BenchmarkHit's loop over 1,000
// leases, by contrast, keeps all of them in those caches, and over 100,000 it
// cannot.
//
// ns/op is the other work's; the hit's is "ns/hit", the map's "ns/map".
func BenchmarkHitAmongOtherWork(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c, _ := memoryCache(b, n)
			ctx := context.Background()
			least := map[string]*[128]byte{}
			for i := range n {
				c.Snapshot(ctx, benchLease(i))
				least[benchLease(i)] = &[128]byte{1}
			}
			ids := inARow(n)
			work := make([]uint64, 64<<20/8) // more than the caches hold
			var hits, reads time.Duration
			const together = 32
			for round := 0; b.Loop(); round++ {
				some := ids[round*together%(n-together):][:together]
				otherWork(work, some)
				start := time.Now()
				for _, id := range some {
					if v := c.Snapshot(ctx, id); !v.Fresh {
						b.Fatal("not fresh")
					}
				}
				hits += time.Since(start)
				otherWork(work, some)
				start = time.Now()
				for _, id := range some {
					if least[id][0] != 1 {
						b.Fatal("lost")
					}
				}
				reads += time.Since(start)
			}
			each := float64(b.N * together)
			b.ReportMetric(float64(hits)/each, "ns/hit")
			b.ReportMetric(float64(reads)/each, "ns/map")
		})
	}
}

// otherWork fills the processor's caches with something else, and then with
// the ids that a request brings.
func otherWork(work []uint64, ids []string) {
	sum := uint64(0)
	for i := range work {
		work[i]++
	}
	for _, id := range ids {
		sum += uint64(id[0])
	}
	work[0] += sum
}

// BenchmarkHitOneLease measures the same lease from every processor.
func BenchmarkHitOneLease(b *testing.B) {
	c, _ := benchCache(b, 1)
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if v := c.Snapshot(context.Background(), "lease-0"); !v.Fresh {
				b.Error("not fresh")
			}
		}
	})
}

// BenchmarkChange measures from a plain SET to OnChange.
func BenchmarkChange(b *testing.B) {
	server := redistest.Start(b)
	ctx, cancel := context.WithCancel(context.Background())
	store, err := NewRedisStore(RedisOptions{Addresses: []string{server.Addr}, KeyPrefix: "sluice:"})
	if err != nil {
		b.Fatal(err)
	}
	told := make(chan string, 1)
	c, err := NewCache(Options{Store: store, OnChange: oneByOne(func(id string) { told <- id })})
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = c.Run(ctx); close(ended) }()
	b.Cleanup(func() { cancel(); <-ended; store.Close() })
	c.Snapshot(ctx, "lease-1")
	c.Retain("lease-1")
	revision := 1
	for b.Loop() {
		server.Client.Set(ctx, "sluice:lease:lease-1", leaseOf("lease-1", revision, "active"), 0)
		<-told
		revision++
	}
}

// memoryCache is a running cache over n leases in memory.
func memoryCache(b *testing.B, n int, onChange ...func(string)) (*Cache, *memoryStore) {
	b.Helper()
	m := newMemoryStore()
	for k, text := range map[Key]string{envKey: goodEnvironment, pluginKey: goodPlugin, workerKey: goodWorker, ControlKey: goodControl} {
		m.set(k, text)
	}
	for i := range n {
		m.set(Key{authz.KindLease, benchLease(i)}, leaseOf(benchLease(i), 1, "active"))
	}
	opt := Options{Store: m, MaxAge: time.Hour}
	if len(onChange) > 0 {
		opt.OnChange = oneByOne(onChange[0])
	}
	c, err := NewCache(opt)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { _ = c.Run(ctx); close(ended) }()
	b.Cleanup(func() { cancel(); <-ended })
	<-m.ready
	m.feed.Up()
	m.feed.Confirm(time.Now())
	return c, m
}

// BenchmarkControlChange measures one change that touches 10,000 retained
// leases, until the last was told.
func BenchmarkControlChange(b *testing.B) {
	const n = 10_000
	told := make(chan string, n)
	c, m := memoryCache(b, n, func(id string) { told <- id })
	for i := range n {
		c.Snapshot(context.Background(), benchLease(i))
		c.Retain(benchLease(i))
	}
	revision := 2
	for b.Loop() {
		m.put(ControlKey, fmt.Sprintf(`{"duplexEnabled":true,"revision":%d}`, revision))
		for range n {
			<-told
		}
		revision++
	}
}

func BenchmarkDecode(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(authz.KindLease, "lease-1", []byte(goodLease), nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMemory reports what a held lease takes beside its record's text.
func BenchmarkMemory(b *testing.B) {
	const n = 100_000
	for b.Loop() {
		var before, after runtime.MemStats
		c, m := memoryCache(b, n)
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range n {
			c.Snapshot(context.Background(), benchLease(i))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		s := c.Stats()
		if s.Leases != n {
			b.Fatalf("got %+v", s)
		}
		b.ReportMetric((float64(after.HeapAlloc)-float64(before.HeapAlloc)-float64(s.Bytes))/n, "B/lease")
		runtime.KeepAlive(m)
	}
}
