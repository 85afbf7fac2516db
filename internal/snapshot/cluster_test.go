package snapshot

import (
	"context"
	"fmt"
	"sluice/internal/snapshot/redistest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// processTB lets what tests share end with the process.
type processTB struct {
	testing.TB
	mu   sync.Mutex
	ends []func()
}

func (*processTB) Helper() {}

func (p *processTB) Cleanup(end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ends = append(p.ends, end)
}

func (*processTB) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (*processTB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (p *processTB) end() {
	for i := len(p.ends) - 1; i >= 0; i-- {
		p.ends[i]()
	}
	p.ends = nil
}

var (
	shared        = &processTB{}
	sharedCluster = sync.OnceValue(func() *redistest.Cluster {
		return redistest.StartCluster(shared, redistest.ClusterOptions{})
	})
)

// clusterBackend is a corner of a cluster that the tests of the contract share.
func clusterBackend(t *testing.T) *backend {
	return clusterOn(t, sharedCluster(), strings.ReplaceAll(t.Name(), "/", "-")+":")
}

// ownClusterBackend is a cluster that a test may break.
func ownClusterBackend(t *testing.T) *backend {
	c := redistest.StartCluster(t, redistest.ClusterOptions{})
	b := clusterOn(t, c, "sluice:")
	one := c.Masters[c.Owner("sluice:"+leaseKey.String())]
	b.outage = one.Down
	b.recover = func() {
		one.Up()
		c.Settled()
	}
	return b
}

func clusterOn(t *testing.T, c *redistest.Cluster, prefix string) *backend {
	t.Helper()
	var seeds []string
	for _, n := range c.Masters {
		seeds = append(seeds, n.Address)
	}
	return redisBackendOf(t, RedisOptions{Addresses: seeds, KeyPrefix: prefix}, c.Client)
}

// redisBackendOf is a store, and what another client writes there.
func redisBackendOf(t *testing.T, opt RedisOptions, other redis.Cmdable) *backend {
	t.Helper()
	opt.Ping = 50 * time.Millisecond
	store, err := NewRedisStore(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	ctx := context.Background()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	return &backend{
		Store: store, records: store,
		set: func(k Key, text string) { check(other.Set(ctx, opt.KeyPrefix+k.String(), text, 0).Err()) },
		del: func(k Key) { check(other.Del(ctx, opt.KeyPrefix+k.String()).Err()) },
	}
}

// clusterScene is a cache over a cluster of its own.
func clusterScene(t *testing.T, opt Options, how redistest.ClusterOptions) (*scene, *redistest.Cluster) {
	t.Helper()
	c := redistest.StartCluster(t, how)
	return newScene(t, clusterOn(t, c, "sluice:"), opt), c
}

// spread are leases that stand on different masters, one on each.
func (s *scene) spread(c *redistest.Cluster) (ids []string) {
	for i := range c.Masters {
		for n := 0; ; n++ {
			id := "lease-" + strings.Repeat("x", i+1) + string(rune('a'+n))
			if c.Owner("sluice:lease:"+id) == i {
				s.set(Key{"lease", id}, leaseOf(id, 1, "active"))
				ids = append(ids, id)
				break
			}
		}
	}
	for _, id := range ids {
		s.eventually("it is read", func() bool { v := s.view(id); return v.Fresh && v.Snapshot.Lease != nil })
		s.Retain(id)
	}
	return ids
}

func TestAFlushOfOneMasterIsSeen(t *testing.T) {
	t.Parallel()
	s, c := clusterScene(t, Options{}, redistest.ClusterOptions{})
	ids := s.spread(c)
	for i, id := range ids {
		c.Do(c.Masters[i], "FLUSHALL")
		s.eventually("the lease is absent", func() bool { v := s.view(id); return v.Fresh && v.Snapshot.Lease == nil })
	}
}

func TestALostConnectionToOneMasterConfirmsEverythingAgain(t *testing.T) {
	t.Parallel()
	s, c := clusterScene(t, Options{}, redistest.ClusterOptions{})
	ids := s.spread(c)
	before := s.Stats().Resyncs
	for i, id := range ids {
		c.Do(c.Masters[i], "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		s.set(Key{"lease", id}, leaseOf(id, 2, "revoked"))
		s.eventually("the revocation is seen", func() bool {
			v := s.view(id)
			return v.Fresh && v.Snapshot.Lease.Status == "revoked"
		})
	}
	if s.Stats().Resyncs < before+3 {
		t.Errorf("%d resyncs, before %d", s.Stats().Resyncs, before)
	}
}

func TestAFailoverInAClusterIsFollowedAndNeverBackwards(t *testing.T) {
	t.Parallel()
	s, c := clusterScene(t, Options{MaxAge: 3 * time.Second}, redistest.ClusterOptions{Replicas: 1})
	ids := s.spread(c)
	// The replica misses the revoke: it is frozen until its master is lost.
	c.Replicas[0].Freeze()
	s.set(Key{"lease", ids[0]}, leaseOf(ids[0], 2, "revoked"))
	s.eventually("the revocation is seen", func() bool { return s.view(ids[0]).Snapshot.Lease.Status == "revoked" })
	c.Masters[0].Down()
	c.Replicas[0].Thaw()
	// What it missed may stand in its socket: have it as a replica has it that
	// lagged, as soon as it takes writes.
	s.eventually("it is the master", func() bool {
		return c.Replicas[0].Client.Set(context.Background(), "sluice:lease:"+ids[0], leaseOf(ids[0], 1, "active"), 0).Err() == nil
	})
	s.eventually("the replica is tracked", func() bool {
		return s.Stats().Up && s.tracks(c.Replicas[0].Address)
	})
	s.eventually("the lease from before the revocation is malformed", func() bool {
		v := s.view(ids[0])
		return v.Fresh && malformed(v) == "[lease]"
	})
	for _, id := range ids[1:] {
		if v := s.view(id); v.Snapshot.Lease == nil || v.Snapshot.Lease.Status != "active" {
			t.Errorf("%s: got %+v", id, v)
		}
	}
	c.Do(c.Replicas[0], "SET", "sluice:lease:"+ids[0], leaseOf(ids[0], 3, "active"))
	s.eventually("a newer revision is seen", func() bool {
		v := s.view(ids[0])
		return v.Fresh && v.Snapshot.Lease != nil && v.Snapshot.Lease.Revision == 3
	})
}

// tracks reports that the store rests on a server.
func (s *scene) tracks(address string) bool {
	for _, server := range s.backend.Store.(*RedisStore).Servers() {
		if server.Name == address && server.Tracked {
			return true
		}
	}
	return false
}

func TestSlotsThatMoveTakeTheirRecordsAlong(t *testing.T) {
	t.Parallel()
	s, c := clusterScene(t, Options{}, redistest.ClusterOptions{})
	ids := s.spread(c)
	key := "sluice:lease:" + ids[0]
	slot := c.Do(c.Masters[0], "CLUSTER", "KEYSLOT", key)
	from, to := c.Masters[0], c.Masters[1]
	c.Do(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", c.ID(from))
	c.Do(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", c.ID(to))
	c.Do(from, "MIGRATE", "127.0.0.1", to.Port, key, 0, 5000)
	s.eventually("the record is read where it is now", func() bool {
		v := s.view(ids[0])
		return v.Fresh && v.Snapshot.Lease != nil
	})
	for _, m := range []*redistest.Node{to, from, c.Masters[2]} {
		c.Do(m, "CLUSTER", "SETSLOT", slot, "NODE", c.ID(to))
	}
	s.set(Key{"lease", ids[0]}, leaseOf(ids[0], 2, "revoked"))
	s.eventually("a change there is seen", func() bool {
		v := s.view(ids[0])
		return v.Fresh && v.Snapshot.Lease != nil && v.Snapshot.Lease.Status == "revoked"
	})
}

func TestAUserWithTheLeastRightsReadsACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, redistest.ClusterOptions{})
	for _, m := range c.Masters {
		args := []any{"ACL", "SETUSER", "gateway", "on", ">secret"}
		for _, right := range strings.Fields(leastRights(t) + " +cluster|nodes") {
			args = append(args, right)
		}
		c.Do(m, args...)
	}
	b := redisBackendOf(t, RedisOptions{
		Addresses: []string{c.Masters[0].Address, c.Masters[1].Address}, KeyPrefix: "sluice:", Username: "gateway", Password: "secret",
	}, c.Client)
	s := newScene(t, b, Options{})
	s.Retain("lease-1")
	s.eventually("it is read", func() bool { v := s.view("lease-1"); return v.Fresh && v.Snapshot.Plugin != nil })
	s.set(leaseKey, leaseOf("lease-1", 9, "revoked"))
	s.eventually("a change is seen", func() bool { return s.view("lease-1").Snapshot.Lease.Status == "revoked" })
	for _, m := range c.Masters {
		if log := c.Do(m, "ACL", "LOG").([]any); len(log) > 0 {
			t.Errorf("refused: %v", log[0])
		}
	}
}
