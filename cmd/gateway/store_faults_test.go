package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"sluice/internal/snapshot/redistest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/redis/go-redis/v9"
)

// faultScene is a gateway over a Redis that things happen to, with two leases:
// lease-1, which is revoked meanwhile, and lease-2, whose channel must not
// notice.
type faultScene struct {
	*scene
	t      testing.TB
	writer redis.Cmdable // another client than the gateway's
}

// newFaultScene writes the records by writer; the gateway starts with serve.
func newFaultScene(t testing.TB, writer redis.Cmdable) *faultScene {
	s := &faultScene{scene: newScene(t), t: t, writer: writer}
	s.fill()
	return s
}

// fill writes every record, as at first.
func (s *faultScene) fill() {
	s.t.Helper()
	s.set("control", `{"duplexEnabled": true, "revision": 1}`)
	s.set("plugin:plg-a", `{"id": "plg-a", "status": "ready", "revision": 1, "environmentDrivers": [{"driverKey": "box", "kind": "sandbox_provider", "sandboxCapabilities": {"duplexCommandStream": true}}]}`)
	s.set("worker:wrk-a", fmt.Sprintf(`{"id": "wrk-a", "pluginId": "plg-a", "url": %q, "revision": 1}`, s.url))
	s.writeLease("lease-1", "active", 1)
	s.writeLease("lease-2", "active", 1)
}

func (s *faultScene) set(key, text string) {
	s.t.Helper()
	if err := s.writer.Set(context.Background(), "sluice:"+key, text, 0).Err(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *faultScene) writeLease(id, status string, revision int) {
	s.t.Helper()
	s.set("lease:"+id, s.leaseText(id, fields{"status": status, "revision": revision}))
}

// serve starts the gateway on a Redis.
func (s *faultScene) serve(maxAge time.Duration, master string, addresses ...string) *faultScene {
	s.t.Helper()
	list, _ := json.Marshal(addresses)
	s.scene.start(`state_dir: state`, fmt.Sprintf(`store: {type: redis, max_age: %s, redis: {addresses: %s, master_name: %q}}`, maxAge, list, master))
	return s
}

// granted reports whether a channel can be opened now, and closes it.
func (s *faultScene) granted(lease string) bool {
	conn, _, err := s.connect("alice", lease)
	if err == nil {
		conn.CloseNow()
	}
	return err == nil
}

// stays shows that lease-2's channel noticed nothing.
func (s *faultScene) stays(conn *websocket.Conn) {
	s.t.Helper()
	s.echo(conn, "still here")
}

// lost shows that lease-1's channel ends because of its revocation, and that
// it is refused from now on, for good.
func (s *faultScene) lost(conn *websocket.Conn) {
	s.t.Helper()
	if e := closed(s.t, conn); e.Code != 1008 || !strings.HasPrefix(e.Reason, "DUPLEX_CHANNEL_CAPABILITY_DENIED ") {
		s.t.Errorf("closed with %d %q", e.Code, e.Reason)
	}
	s.denied("lease-1")
}

func (s *faultScene) denied(lease string, reasons ...string) {
	s.t.Helper()
	p, answer := s.refused("alice", lease)
	if answer.StatusCode != 403 || p.Code != "DUPLEX_CHANNEL_CAPABILITY_DENIED" {
		s.t.Errorf("answered %d %+v", answer.StatusCode, p)
	}
	if reason := string(s.decision(p.DecisionID).Result.Reason); len(reasons) > 0 && !slices.Contains(reasons, reason) {
		s.t.Errorf("recorded %s, want %q", reason, reasons)
	}
}

// ready is the status of a probe, and what it says.
func (s *faultScene) ready(path string) (int, map[string]any) {
	s.t.Helper()
	answer, err := http.Get("http://" + s.probes + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	var said map[string]any
	if err := json.NewDecoder(answer.Body).Decode(&said); err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, said
}

// behindRelay is a gateway whose one Redis is behind a relay.
func behindRelay(t testing.TB, maxAge time.Duration) (*faultScene, *redistest.Server, *redistest.Relay) {
	server := redistest.Start(t)
	relay := redistest.StartRelay(t, server.Addr)
	return newFaultScene(t, server.Client).serve(maxAge, "", relay.Address), server, relay
}

func TestASilentRedisDecidesUntilItsAgeThenDeniesAndRecovers(t *testing.T) {
	t.Parallel()
	const maxAge = 10 * time.Second
	s, _, relay := behindRelay(t, maxAge)
	stoodStill := watchForStandstills(t)
	conn := s.open("alice", "lease-1")
	relay.Pause()
	for range 20 { // no answer comes before Resume: nobody waits for one
		if !s.granted("lease-1") {
			t.Fatal("refused by what was confirmed a moment ago")
		}
	}
	p, answer := s.refused("alice", "lease-9") // nothing is known of it
	if answer.StatusCode != 503 || p.Code != "AUTHORIZATION_UNAVAILABLE" {
		t.Errorf("a lease never seen: answered %d %+v", answer.StatusCode, p)
	}
	if e := closed(t, conn); e.Code != 1011 || !strings.HasPrefix(e.Reason, "AUTHORIZATION_UNAVAILABLE ") {
		t.Errorf("closed with %d %q", e.Code, e.Reason)
	}
	p, answer = s.refused("alice", "lease-1")
	if answer.StatusCode != 503 || answer.Header.Get("Retry-After") == "" || s.decision(p.DecisionID).Result.Reason != "SNAPSHOT_STALE" {
		t.Errorf("answered %d %v %+v", answer.StatusCode, answer.Header, p)
	}
	s.agesAgree(maxAge)
	if status, said := s.ready("/readyz?verbose"); status != 503 || !strings.Contains(fmt.Sprint(said["not_ready"]), "store") {
		t.Errorf("ready: %d %v", status, said)
	}
	if status, _ := s.ready("/livez"); status != 200 {
		t.Errorf("live: %d", status)
	}
	if s.metric("sluice_store_up") != "0" {
		t.Errorf("sluice_store_up is %s", s.metric("sluice_store_up"))
	}
	relay.Resume()
	back := time.Now()
	s.eventually("it is granted again", func() bool { return s.granted("lease-1") })
	if took := time.Since(back); took > 5*time.Second && !stoodStill(back) {
		t.Errorf("recovery took %v", took)
	}
	if status, said := s.ready("/readyz?verbose"); status != 200 {
		t.Errorf("ready: %d %v", status, said)
	}
}

func TestARevocationIsSeenThatCameWhileTheConnectionWasCut(t *testing.T) {
	t.Parallel()
	s, _, relay := behindRelay(t, 10*time.Second)
	mine, neighbour := s.open("alice", "lease-1"), s.open("alice", "lease-2")
	before := s.metric("sluice_store_resyncs_total")
	relay.Refuse(true)
	relay.Cut()
	s.writeLease("lease-1", "revoked", 2)
	s.eventually("the loss is noticed", func() bool { return s.metric("sluice_store_up") == "0" })
	s.stays(neighbour)
	relay.Refuse(false)
	since := time.Now()
	s.lost(mine)
	s.within(since)
	s.stays(neighbour)
	if after := s.metric("sluice_store_resyncs_total"); after == before {
		t.Errorf("%s resyncs, before %s", after, before)
	}
}

func TestASlowRedisIsConfirmedByItsPings(t *testing.T) {
	t.Parallel()
	s, _, relay := behindRelay(t, 10*time.Second)
	mine, neighbour := s.open("alice", "lease-1"), s.open("alice", "lease-2")
	relay.Delay(50 * time.Millisecond)
	since := time.Now()
	s.writeLease("lease-1", "revoked", 2)
	s.lost(mine)
	s.within(since)
	s.stays(neighbour)
}

func TestAFlushEndsEverythingAndItComesBack(t *testing.T) {
	t.Parallel()
	s, server, _ := behindRelay(t, 10*time.Second)
	mine := s.open("alice", "lease-1")
	if err := server.Client.FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	s.lost(mine)
	s.fill()
	s.eventually("it is granted again", func() bool { return s.granted("lease-1") })
}

// Redis cuts a client off that does not read what it is told; what it was to
// be told is gone.
func TestAFullBufferLosesNoRevocation(t *testing.T) {
	t.Parallel()
	s, server, relay := behindRelay(t, time.Minute)
	mine, neighbour := s.open("alice", "lease-1"), s.open("alice", "lease-2")
	ctx := context.Background()
	if err := server.Client.ConfigSet(ctx, "client-output-buffer-limit", "normal 65536 0 0").Err(); err != nil {
		t.Fatal(err)
	}
	relay.Pause()
	s.writeLease("lease-1", "revoked", 2)
	tracking := func() bool {
		return strings.Contains(server.Client.ClientList(ctx).Val(), "name=sluice-tracking")
	}
	long := strings.Repeat("x", 100)
	for i := 0; tracking(); i++ {
		if i > 300 {
			t.Fatal("the buffer does not fill")
		}
		pipe := server.Client.Pipeline()
		for n := range 1000 {
			pipe.Set(ctx, fmt.Sprint("sluice:lease:", long, n), "x", 0)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
	}
	relay.Resume()
	since := time.Now()
	s.lost(mine)
	s.within(since)
	s.stays(neighbour)
}

// A replica takes over that never heard of the revocation.
func TestAReplicaThatMissedTheRevocationBringsNothingBack(t *testing.T) {
	t.Parallel()
	master := redistest.StartNode(t)
	replica := redistest.StartNode(t)
	relay := redistest.StartRelay(t, master.Address)
	s := newFaultScene(t, master.Client).serve(10*time.Second, "", relay.Address)
	mine, neighbour := s.open("alice", "lease-1"), s.open("alice", "lease-2")
	ctx := context.Background()
	if err := replica.Client.SlaveOf(ctx, "127.0.0.1", master.Port).Err(); err != nil {
		t.Fatal(err)
	}
	s.eventually("the replica has everything", func() bool {
		return strings.Contains(replica.Client.Info(ctx, "replication").Val(), "master_link_status:up")
	})
	if err := replica.Client.SlaveOf(ctx, "NO", "ONE").Err(); err != nil { // it hears no more
		t.Fatal(err)
	}
	s.writeLease("lease-1", "revoked", 2)
	s.lost(mine)
	relay.To(replica.Address)
	master.Down()
	s.eventually("the replica is tracked", func() bool {
		return strings.Contains(replica.Client.ClientList(ctx).Val(), "name=sluice-tracking") && s.metric("sluice_store_up") == "1"
	})
	s.stays(neighbour)
	s.denied("lease-1", "RECORD_MALFORMED")
	// Nor after a restart, which reads the replica alone.
	if code := s.term(); code != 0 {
		t.Errorf("exit %d", code)
	}
	s.serve(10*time.Second, "", relay.Address)
	s.denied("lease-1", "RECORD_MALFORMED")
	if !s.granted("lease-2") {
		t.Error("the neighbour is refused")
	}
	// Until the operators say so.
	out := runOK(t, "records", "rebase", "-c", filepath.Join(s.dir, "gateway.yaml"), "lease", "lease-1")
	if !strings.Contains(out, "lease:lease-1") {
		t.Errorf("printed %q", out)
	}
	s.eventually("what the replica holds counts", func() bool { return s.granted("lease-1") })
	s.logged("records rebase")
}

func TestSentinelsPromoteAReplicaAndChannelsStay(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t)
	s := newFaultScene(t, r.Master.Client).serve(20*time.Second, redistest.MasterName, r.Sentinels...)
	mine, neighbour := s.open("alice", "lease-1"), s.open("alice", "lease-2")
	s.refusesTheStoreAsWorker(r.Master.Address)
	r.Replica.Freeze()
	s.writeLease("lease-1", "revoked", 2)
	s.lost(mine)
	r.Master.Down()
	r.Replica.Thaw()
	r.Promoted()
	// What was on its way may have arrived: the replica that lagged has it not.
	s.writer = r.Replica.Client
	s.writeLease("lease-1", "active", 1)
	s.eventually("the new master is tracked", func() bool {
		return strings.Contains(r.Replica.Client.ClientList(context.Background()).Val(), "name=sluice-tracking") && s.metric("sluice_store_up") == "1"
	})
	s.denied("lease-1", "RECORD_MALFORMED")
	s.stays(neighbour)
	since := time.Now()
	s.writeLease("lease-2", "revoked", 2)
	if e := closed(t, neighbour); e.Code != 1008 {
		t.Errorf("closed with %d %q", e.Code, e.Reason)
	}
	s.within(since)
}

// refusesTheStoreAsWorker shows that a record cannot send a caller to the store's
// own server, though nobody configured its address.
func (s *faultScene) refusesTheStoreAsWorker(address string) {
	s.t.Helper()
	s.set("worker:wrk-store", fmt.Sprintf(`{"id": "wrk-store", "pluginId": "plg-a", "url": "http://%s", "revision": 1}`, address))
	pin := fields{"driver": "sandbox", "pluginId": "plg-a", "driverKey": "box", "workerId": "wrk-store"}
	s.set("lease:lease-store", s.leaseText("lease-store", fields{"pin": pin}))
	p, answer := s.refused("alice", "lease-store")
	if d := s.decision(p.DecisionID); answer.StatusCode != 503 || !strings.Contains(d.Custom.Sluice.Fault, "its store's") {
		s.t.Errorf("answered %d %+v, recorded %+v", answer.StatusCode, p, d)
	}
}

// clusterBehindRelays has a relay in front of each node, to which the cluster
// itself sends its clients.
func clusterBehindRelays(t testing.TB, replicas int) (*redistest.Cluster, map[string]*redistest.Relay) {
	relays := map[string]*redistest.Relay{}
	c := redistest.StartCluster(t, redistest.ClusterOptions{Replicas: replicas, Announce: func(port string) string {
		relays[port] = redistest.StartRelay(t, "127.0.0.1:"+port)
		return relays[port].Port
	}})
	return c, relays
}

func TestAClusterThatLosesAMasterGoesOn(t *testing.T) {
	t.Parallel()
	c, relays := clusterBehindRelays(t, 1)
	first := relays[c.Masters[1].Port]
	s := newFaultScene(t, c.Client).serve(20*time.Second, "", first.Address, relays[c.Masters[2].Port].Address)
	// A lease of each master, and one whose master is to be lost.
	of := func(master int) string {
		for i := 0; ; i++ {
			if id := fmt.Sprint("lease-of-", i); c.Owner("sluice:lease:"+id) == master {
				s.writeLease(id, "active", 1)
				return id
			}
		}
	}
	lost, kept := of(0), of(1)
	mine, neighbour := s.open("alice", lost), s.open("alice", kept)

	// The connection to one master is cut, and its lease revoked meanwhile.
	relay := relays[c.Masters[0].Port]
	relay.Refuse(true)
	relay.Cut()
	c.Do(c.Masters[0], "SET", "sluice:lease:"+lost, s.leaseText(lost, fields{"status": "revoked", "revision": 2}))
	s.eventually("the loss is noticed", func() bool { return s.metric("sluice_store_up") == "0" })
	relay.Refuse(false)
	if e := closed(t, mine); e.Code != 1008 {
		t.Errorf("closed with %d %q", e.Code, e.Reason)
	}
	s.stays(neighbour)

	// The master is lost, its replica promoted.
	c.Masters[0].Down()
	s.eventually("the replica takes over", func() bool {
		return c.Replicas[0].Client.Set(context.Background(), "sluice:lease:"+lost, s.leaseText(lost, nil), 0).Err() == nil
	})
	s.eventually("it is tracked", func() bool {
		_, said := s.ready("/readyz?verbose")
		return strings.Contains(fmt.Sprint(said["store"]), relays[c.Replicas[0].Port].Address) && s.metric("sluice_store_up") == "1"
	})
	s.stays(neighbour)
	s.denied(lost, "RECORD_MALFORMED")
	c.Do(c.Replicas[0], "SET", "sluice:lease:"+lost, s.leaseText(lost, fields{"revision": 3}))
	s.eventually("a newer revision there is seen", func() bool { return s.granted(lost) })
	since := time.Now()
	c.Do(c.Masters[1], "SET", "sluice:lease:"+kept, s.leaseText(kept, fields{"status": "revoked", "revision": 2}))
	if e := closed(t, neighbour); e.Code != 1008 {
		t.Errorf("closed with %d %q", e.Code, e.Reason)
	}
	s.within(since)
}

func TestAChangeThroughOneGatewayIsEnforcedByTheOther(t *testing.T) {
	t.Parallel()
	server := redistest.StartNode(t)
	b := newFaultScene(t, server.Client).serve(10*time.Second, "", server.Address)
	a := &faultScene{scene: newScene(t), t: t, writer: server.Client}
	a.serve(10*time.Second, "", server.Address)
	mine, neighbour := b.open("alice", "lease-1"), b.open("alice", "lease-2")
	since := time.Now()
	if status, _, text := a.operator("PUT", "/v1/records/lease/lease-1", a.leaseText("lease-1", fields{"status": "revoked", "revision": 2})); status != 200 {
		t.Fatalf("answered %d %s", status, text)
	}
	b.lost(mine)
	b.within(since)
	b.stays(neighbour)
	a.denied("lease-1", "LEASE_NOT_ACTIVE")
	// And a rebase: what both saw is forgotten by both.
	b.writeLease("lease-1", "active", 1)
	for _, s := range []*faultScene{a, b} {
		s.eventually("the older revision is malformed", func() bool {
			p, _ := s.refused("alice", "lease-1")
			return s.decision(p.DecisionID).Result.Reason == "RECORD_MALFORMED"
		})
	}
	runOK(t, "records", "rebase", "-c", filepath.Join(a.dir, "gateway.yaml"), "--all")
	for _, s := range []*faultScene{a, b} {
		s.eventually("it is granted", func() bool { return s.granted("lease-1") })
	}
	b.stays(neighbour)
}

func TestDamagedRevisionMarksKeepTheGatewayFromStarting(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.configure(`state_dir: state`)
	s.write("state/revisions", "")
	got := runWith(t, "", "serve", "-c", filepath.Join(s.dir, "gateway.yaml"))
	if got.code != exitUsage || !strings.Contains(got.stderr, "revision marks are damaged") || !strings.Contains(got.stderr, "state_dir") {
		t.Errorf("exit %d: %s", got.code, got.stderr)
	}
}

func TestRebaseWantsToKnowWhat(t *testing.T) {
	for _, args := range [][]string{{}, {"lease"}, {"lease", "../x"}, {"--all", "lease", "lease-1"}, {"control", "x"}, {"rebase"}} {
		got := runWith(t, "", append([]string{"records", "rebase"}, args...)...)
		if got.code != exitUsage || got.stderr == "" {
			t.Errorf("%q: exit %d: %s", args, got.code, got.stderr)
		}
	}
}
