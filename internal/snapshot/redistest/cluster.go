package redistest

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Node is one redis-server on a TCP port of its own.
type Node struct {
	*Server
	// Port it listens on, and Address with the host.
	Port    string
	Address string
}

// StartNode starts a server on a free port of 127.0.0.1.
func StartNode(t testing.TB, args ...string) *Node {
	t.Helper()
	return startNode(t, FreePort(t), args...)
}

func startNode(t testing.TB, port string, args ...string) *Node {
	t.Helper()
	return &Node{
		Server: Start(t, append([]string{"--bind", "127.0.0.1", "--port", port}, args...)...),
		Port:   port, Address: net.JoinHostPort("127.0.0.1", port),
	}
}

// FreePort is a port that nobody listened on a moment ago, nor on the bus's
// port of a cluster node beside it.
func FreePort(t testing.TB) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		l.Close()
		if port > 50000 {
			continue // the bus is at port+10000
		}
		bus, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port+10000))
		if err != nil {
			continue
		}
		bus.Close()
		return strconv.Itoa(port)
	}
	t.Fatal("no free port")
	return ""
}

// Cluster is a cluster of three masters, and replicas of the first ones.
type Cluster struct {
	Masters  []*Node
	Replicas []*Node // the i-th is one of the i-th master
	// Client is another client than the one under test.
	Client *redis.ClusterClient

	t testing.TB
}

// ClusterOptions say how a cluster is to be.
type ClusterOptions struct {
	// Replicas is how many of the masters have one.
	Replicas int
	// Announce, when set, is the port that clients are sent to for a node that
	// listens on port.
	Announce func(port string) string
	// Args are further options of redis-server.
	Args []string
}

// NodeTimeout is after how long a cluster or a sentinel takes a silent server
// for down.
const NodeTimeout = time.Second

// StartCluster starts a cluster and waits until all of it agrees.
func StartCluster(t testing.TB, opt ClusterOptions) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	for i := range 3 + opt.Replicas {
		port := FreePort(t)
		args := append([]string{
			"--cluster-enabled", "yes", "--cluster-node-timeout", strconv.Itoa(int(NodeTimeout.Milliseconds())),
			"--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0",
		}, opt.Args...)
		if opt.Announce != nil {
			n, _ := strconv.Atoi(port)
			args = append(args, "--cluster-announce-ip", "127.0.0.1",
				"--cluster-announce-port", opt.Announce(port), "--cluster-announce-bus-port", strconv.Itoa(n+10000))
		}
		node := startNode(t, port, args...)
		if i < 3 {
			c.Masters = append(c.Masters, node)
		} else {
			c.Replicas = append(c.Replicas, node)
		}
	}
	c.form()
	var seeds []string
	for _, n := range c.Masters {
		seeds = append(seeds, n.Address)
	}
	c.Client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: seeds, DisableIdentity: true})
	t.Cleanup(func() { c.Client.Close() })
	return c
}

// form makes one cluster of the nodes: redis-cli --cluster create in a tenth
// of its time.
func (c *Cluster) form() {
	c.t.Helper()
	for i, m := range c.Masters {
		c.Do(m, "CLUSTER", "ADDSLOTSRANGE", 16384*i/3, 16384*(i+1)/3-1)
		c.Do(m, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
	}
	for _, n := range c.Nodes()[1:] {
		// By the first node's own port: what it announces is for clients.
		port, _ := strconv.Atoi(c.Masters[0].Port)
		c.Do(n, "CLUSTER", "MEET", "127.0.0.1", port, port+10000)
	}
	c.eventually("every node knows every other", func() bool {
		for _, n := range c.Nodes() {
			nodes := n.Client.ClusterNodes(context.Background()).Val()
			if strings.Count(nodes, "\n") != len(c.Nodes()) || strings.Contains(nodes, "handshake") {
				return false
			}
		}
		return true
	})
	for i, r := range c.Replicas {
		c.Do(r, "CLUSTER", "REPLICATE", c.ID(c.Masters[i]))
	}
	c.Settled()
}

// Settled waits until every node finds the cluster in order, and every
// replica hears its master.
func (c *Cluster) Settled() {
	c.t.Helper()
	c.eventually("the cluster stands", func() bool {
		for _, n := range c.Nodes() {
			info := n.Client.ClusterInfo(context.Background()).Val()
			if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_size:3") {
				return false
			}
		}
		for _, r := range c.Replicas {
			if !strings.Contains(r.Client.Info(context.Background(), "replication").Val(), "master_link_status:up") {
				return false
			}
		}
		return true
	})
}

// Nodes are the masters and then the replicas.
func (c *Cluster) Nodes() []*Node { return append(append([]*Node(nil), c.Masters...), c.Replicas...) }

// ID is what the cluster calls a node.
func (c *Cluster) ID(n *Node) string {
	return c.Do(n, "CLUSTER", "MYID").(string)
}

// Do runs a command on one node.
func (c *Cluster) Do(n *Node, args ...any) any {
	c.t.Helper()
	v, err := n.Client.Do(context.Background(), args...).Result()
	if err != nil {
		c.t.Fatalf("%v: %v", args, err)
	}
	return v
}

// Owner is the master, by its place, that serves a key.
func (c *Cluster) Owner(key string) int {
	c.t.Helper()
	slot := int(c.Do(c.Masters[0], "CLUSTER", "KEYSLOT", key).(int64))
	for i := range c.Masters {
		if slot < 16384*(i+1)/3 {
			return i
		}
	}
	return 0
}

func (c *Cluster) eventually(what string, is func() bool) { eventually(c.t, what, is) }

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30s: %s", what)
		}
	}
}
