package snapshot

import (
	"context"
	"sluice/internal/snapshot/redistest"
	"testing"
	"time"
)

// A name, or a proxy of TCP, comes to lead to another server. Of the
// connections to the old one, which still runs, only the tracking one breaks:
// what the others read, nobody would tell the changes of.
func TestReadsFollowTheTrackingToAnotherServer(t *testing.T) {
	t.Parallel()
	before, after := redistest.Start(t), redistest.Start(t)
	ctx := context.Background()
	for _, s := range []*redistest.Server{before, after} {
		for k, text := range map[Key]string{leaseKey: goodLease, envKey: goodEnvironment, pluginKey: goodPlugin, workerKey: goodWorker, ControlKey: goodControl} {
			s.Client.Set(ctx, "sluice:"+k.String(), text, 0)
		}
	}
	relay := redistest.StartRelay(t, before.Addr)
	b := redisBackendOf(t, RedisOptions{Addresses: []string{relay.Address}, KeyPrefix: "sluice:"}, after.Client)
	s := newScene(t, b, Options{MaxAge: 2 * time.Second})
	s.Retain("lease-1")
	s.eventually("it is read", func() bool { return s.view("lease-1").Fresh })
	relay.To(after.Addr)
	s.set(leaseKey, leaseOf("lease-1", 4, "revoked"))
	if err := before.Client.Do(ctx, "CLIENT", "KILL", "ID", trackingID(t, before)).Err(); err != nil {
		t.Fatal(err)
	}
	revoked := func() bool {
		v := s.view("lease-1")
		return v.Fresh && v.Snapshot.Lease.Status == "revoked"
	}
	s.eventually("what changed there is seen", revoked)
	s.set(leaseKey, leaseOf("lease-1", 5, "active"))
	s.eventually("and what changes next", func() bool { return !revoked() })
}
