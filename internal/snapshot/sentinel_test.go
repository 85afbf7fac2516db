package snapshot

import (
	"context"
	"fmt"
	"sluice/internal/snapshot/redistest"
	"strings"
	"sync"
	"testing"
	"time"
)

var sharedReplicated = sync.OnceValue(func() *redistest.Replicated { return redistest.StartReplicated(shared) })

// sentinelBackend is a corner of a master that the tests of the contract share.
func sentinelBackend(t *testing.T) *backend {
	return sentinelOn(t, sharedReplicated(), strings.ReplaceAll(t.Name(), "/", "-")+":")
}

func ownSentinelBackend(t *testing.T) *backend {
	r := redistest.StartReplicated(t)
	b := sentinelOn(t, r, "sluice:")
	// Two of three do not answer: whoever names the master now may be wrong.
	b.outage = func() {
		r.KillSentinel(0)
		r.KillSentinel(1)
	}
	b.recover = func() {
		r.StartSentinel(0)
		r.StartSentinel(1)
	}
	return b
}

func sentinelOn(t *testing.T, r *redistest.Replicated, prefix string) *backend {
	t.Helper()
	return redisBackendOf(t, RedisOptions{Addresses: r.Sentinels, MasterName: redistest.MasterName, KeyPrefix: prefix}, r.Master.Client)
}

func TestAFailoverBySentinelsIsFollowedAndNeverBackwards(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t)
	s := newScene(t, sentinelOn(t, r, "sluice:"), Options{MaxAge: 3 * time.Second})
	ctx := context.Background()
	s.set(Key{"lease", "lease-2"}, leaseOf("lease-2", 1, "active"))
	for _, id := range []string{"lease-1", "lease-2"} {
		s.eventually("it is read", func() bool { v := s.view(id); return v.Fresh && v.Snapshot.Lease != nil })
		s.Retain(id)
	}
	// The replica misses the revoke: it is frozen until its master is lost.
	r.Replica.Freeze()
	s.set(leaseKey, leaseOf("lease-1", 4, "revoked"))
	s.eventually("the revocation is seen", func() bool { return s.view("lease-1").Snapshot.Lease.Status == "revoked" })
	r.Master.Down()
	r.Replica.Thaw()
	r.Promoted()
	// What the replica missed may have reached its socket before the end:
	// take it back, as a replica that had lagged would have it.
	if err := r.Replica.Client.Set(ctx, "sluice:lease:lease-1", goodLease, 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.eventually("the new master is tracked", func() bool { return s.Stats().Up && s.tracks(r.Replica.Address) })
	s.eventually("the lease from before the revocation is malformed", func() bool {
		v := s.view("lease-1")
		return v.Fresh && malformed(v) == "[lease]"
	})
	if v := s.view("lease-2"); v.Snapshot.Lease == nil || !v.Fresh {
		t.Errorf("got %+v", v)
	}
}

// A master that was demoted, or is about to be, stands and answers pings. It
// must not go on confirming.
func TestADemotedMasterConfirmsNothing(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t)
	s := newScene(t, sentinelOn(t, r, "sluice:"), Options{MaxAge: 3 * time.Second})
	s.Retain("lease-1")
	s.eventually("it is read", func() bool { v := s.view("lease-1"); return v.Fresh && v.Snapshot.Lease != nil })
	r.Failover()
	if err := r.Replica.Client.Set(context.Background(), "sluice:lease:lease-1", leaseOf("lease-1", 9, "revoked"), 0).Err(); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; {
		v := s.view("lease-1")
		if v.Snapshot.Lease != nil && v.Snapshot.Lease.Status == "revoked" {
			break
		}
		// Five seconds where the machine does nothing else.
		if time.Since(began) > 20*time.Second {
			t.Fatal("the new master's revocation is not seen")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestASingleServerThatBecameAReplicaWithoutAMasterConfirmsNothing(t *testing.T) {
	t.Parallel()
	s, server := redisScene(t, Options{MaxAge: time.Second})
	s.Retain("lease-1")
	s.eventually("it is read", func() bool { v := s.view("lease-1"); return v.Fresh && v.Snapshot.Lease != nil })
	s.do(server, "REPLICAOF", "127.0.0.1", "1")
	s.eventually("it is stale", func() bool { return !s.view("lease-1").Fresh && s.Ready() != nil })
	s.do(server, "REPLICAOF", "NO", "ONE")
	s.eventually("it is fresh", func() bool { return s.view("lease-1").Fresh })
}

// withheld shows that a held lease decides while it is young, and no longer,
// when what confirms it is withheld; and that it does again afterwards.
func (s *scene) withheld(maxAge time.Duration, pause, resume func()) {
	s.t.Helper()
	pause()
	for deadline := time.Now().Add(maxAge + 10*time.Second); ; time.Sleep(time.Millisecond) {
		asked := time.Now()
		v := s.Snapshot(s.t.Context(), "lease-1")
		answered := time.Now()
		if v.Snapshot == nil || v.Snapshot.Lease == nil || v.Fresh && asked.Sub(v.Confirmed) > maxAge || !v.Fresh && answered.Sub(v.Confirmed) <= maxAge {
			s.t.Fatalf("fresh %v, confirmed between %s and %s ago: %+v, %v", v.Fresh, asked.Sub(v.Confirmed), answered.Sub(v.Confirmed), v.Snapshot, v.Err)
		}
		if !v.Fresh {
			break
		}
		if time.Now().After(deadline) {
			s.t.Fatal("it stays fresh")
		}
	}
	s.told("lease-1")
	if s.Ready() == nil {
		s.t.Error("ready while nothing is confirmed")
	}
	resume()
	s.eventually("it is fresh again", func() bool { return s.view("lease-1").Fresh })
	s.told("lease-1")
}

// resyncs waits for another epoch after what lose does.
func (s *scene) resyncs(lose func()) {
	s.t.Helper()
	before := s.Stats().Resyncs
	lose()
	s.eventually("it begins anew", func() bool { return s.Stats().Resyncs > before })
	s.eventually("it is confirmed", func() bool { v := s.view("lease-1"); return v.Fresh && v.Snapshot.Lease != nil })
}

func TestSentinelsThatAreOutOfReach(t *testing.T) {
	t.Parallel()
	const maxAge = 3 * time.Second
	r := redistest.StartReplicated(t)
	var relays []*redistest.Relay
	var addresses []string
	for _, address := range r.Sentinels {
		relay := redistest.StartRelay(t, address)
		relays, addresses = append(relays, relay), append(addresses, relay.Address)
	}
	each := func(do func(*redistest.Relay)) func() {
		return func() {
			for _, relay := range relays {
				do(relay)
			}
		}
	}
	s := newScene(t, redisBackendOf(t, RedisOptions{
		Addresses: addresses, MasterName: redistest.MasterName, KeyPrefix: "sluice:",
	}, r.Master.Client), Options{MaxAge: maxAge})
	s.eventually("it is read", func() bool { v := s.view("lease-1"); return v.Fresh && v.Snapshot.Lease != nil })
	s.Retain("lease-1")
	s.withheld(maxAge, each((*redistest.Relay).Pause), each((*redistest.Relay).Resume))
	s.withheld(maxAge, func() {
		each(func(relay *redistest.Relay) { relay.Refuse(true) })()
		each((*redistest.Relay).Cut)()
	}, each(func(relay *redistest.Relay) { relay.Refuse(false) }))
	each((*redistest.Relay).Cut)() // they are connected to again at once
	s.set(leaseKey, leaseOf("lease-1", 9, "revoked"))
	s.eventually("a revocation is seen", func() bool { v := s.view("lease-1"); return v.Fresh && v.Snapshot.Lease.Status == "revoked" })
}

// What the sentinels name is a relay to the master.
func TestAMasterThatIsOutOfReachOfItsSentinelsClients(t *testing.T) {
	t.Parallel()
	const maxAge = 3 * time.Second
	master := redistest.StartNode(t)
	relay := redistest.StartRelay(t, master.Address)
	var addresses []string
	for range 3 {
		sentinel := script(t)
		sentinel.misbehave(func(command []string) string {
			if command[0] != "SENTINEL" {
				return ""
			}
			return fmt.Sprintf("*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%s\r\n", len(relay.Port), relay.Port)
		})
		addresses = append(addresses, sentinel.address)
	}
	s := newScene(t, redisBackendOf(t, RedisOptions{
		Addresses: addresses, MasterName: redistest.MasterName, KeyPrefix: "sluice:",
	}, master.Client), Options{MaxAge: maxAge})
	s.eventually("it is read", func() bool { v := s.view("lease-1"); return v.Fresh && v.Snapshot.Lease != nil })
	s.Retain("lease-1")
	s.withheld(maxAge, relay.Pause, relay.Resume)
	s.resyncs(relay.Cut)
	s.withheld(maxAge, func() { relay.Refuse(true); relay.Cut() }, func() { relay.Refuse(false) })
	s.set(leaseKey, leaseOf("lease-1", 9, "revoked"))
	s.eventually("a revocation is seen", func() bool { v := s.view("lease-1"); return v.Fresh && v.Snapshot.Lease.Status == "revoked" })
}
