package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// MasterName is what the sentinels call the master.
const MasterName = "records"

// Replicated is a master, a replica of it, and three sentinels that watch
// them.
type Replicated struct {
	Master, Replica *Node
	// Sentinels are their addresses.
	Sentinels []string

	t       testing.TB
	configs []string
	procs   []*exec.Cmd
}

// StartReplicated starts all of it and waits until every sentinel knows the
// others and the replica.
func StartReplicated(t testing.TB, args ...string) *Replicated {
	t.Helper()
	r := &Replicated{t: t}
	args = append([]string{"--repl-diskless-sync-delay", "0"}, args...)
	r.Master = StartNode(t, args...)
	r.Replica = StartNode(t, append([]string{"--replicaof", "127.0.0.1 " + r.Master.Port}, args...)...)
	eventually(t, "the replica hears its master", func() bool {
		return strings.Contains(r.Replica.Client.Info(context.Background(), "replication").Val(), "master_link_status:up")
	})
	for range 3 {
		r.addSentinel()
	}
	t.Cleanup(func() {
		for i := range r.procs {
			r.KillSentinel(i)
		}
	})
	for _, address := range r.Sentinels {
		r.watches(address)
	}
	return r
}

func (r *Replicated) addSentinel() {
	r.t.Helper()
	dir, err := os.MkdirTemp("", "sentinel")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { os.RemoveAll(dir) })
	config := filepath.Join(dir, "sentinel.conf")
	i := len(r.procs)
	r.configs, r.procs, r.Sentinels = append(r.configs, config), append(r.procs, nil), append(r.Sentinels, "")
	for range 5 { // a free port may be somebody else's by the time it is used
		port := FreePort(r.t)
		text := fmt.Sprintf("port %s\nbind 127.0.0.1\ndir %s\nsentinel monitor %s 127.0.0.1 %s 2\n"+
			"sentinel down-after-milliseconds %s %d\nsentinel failover-timeout %s 10000\n",
			port, dir, MasterName, r.Master.Port, MasterName, NodeTimeout.Milliseconds(), MasterName)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			r.t.Fatal(err)
		}
		r.Sentinels[i] = net.JoinHostPort("127.0.0.1", port)
		r.StartSentinel(i)
		if r.serves(i) {
			return
		}
		r.KillSentinel(i)
	}
	r.t.Fatal("no sentinel starts")
}

// serves waits a while for the i-th sentinel to answer for this master.
func (r *Replicated) serves(i int) bool {
	c := redis.NewSentinelClient(&redis.Options{Addr: r.Sentinels[i], DisableIdentity: true})
	defer c.Close()
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if m := c.Master(context.Background(), MasterName).Val(); m["port"] == r.Master.Port {
			return true
		}
	}
	return false
}

// StartSentinel starts the i-th sentinel again after KillSentinel.
func (r *Replicated) StartSentinel(i int) {
	r.t.Helper()
	cmd := exec.Command("redis-server", r.configs[i], "--sentinel")
	if err := cmd.Start(); err != nil {
		r.t.Fatalf("start a sentinel: %v", err)
	}
	r.procs[i] = cmd
}

// KillSentinel kills the i-th sentinel, if it runs.
func (r *Replicated) KillSentinel(i int) {
	if cmd := r.procs[i]; cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		r.procs[i] = nil
	}
}

// watches waits until the sentinel at address knows the two others and the
// replica.
func (r *Replicated) watches(address string) {
	r.t.Helper()
	c := redis.NewSentinelClient(&redis.Options{Addr: address, DisableIdentity: true})
	defer c.Close()
	ctx := context.Background()
	eventually(r.t, "the sentinels know each other", func() bool {
		m := c.Master(ctx, MasterName).Val()
		return m["num-other-sentinels"] == "2" && m["num-slaves"] == "1"
	})
}

// Failover has the sentinels promote the replica, whatever the master does,
// and waits until they name it.
func (r *Replicated) Failover() {
	r.t.Helper()
	c := redis.NewSentinelClient(&redis.Options{Addr: r.Sentinels[0], DisableIdentity: true})
	defer c.Close()
	eventually(r.t, "a failover begins", func() bool { return c.Failover(context.Background(), MasterName).Err() == nil })
	r.Promoted()
}

// Promoted waits until the first sentinel names the replica as the master.
func (r *Replicated) Promoted() {
	r.t.Helper()
	c := redis.NewSentinelClient(&redis.Options{Addr: r.Sentinels[0], DisableIdentity: true})
	defer c.Close()
	eventually(r.t, "the replica is the master", func() bool {
		pair := c.GetMasterAddrByName(context.Background(), MasterName).Val()
		return len(pair) == 2 && pair[1] == r.Replica.Port
	})
}
