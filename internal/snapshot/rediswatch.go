package snapshot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Watch implements Store: it holds the tracking connections.
func (s *RedisStore) Watch(ctx context.Context, feed Feed, every time.Duration) error {
	t := &tracker{
		store: s, feed: feed, find: s.findOne,
		interval: min(s.opt.Ping, every), timeout: s.opt.PingTimeout, log: s.opt.Log,
	}
	switch {
	case s.opt.MasterName != "":
		sentinels := newSentinels(s)
		defer sentinels.close()
		t.find = sentinels.find
	case s.cluster():
		t.find = (&clusterFinder{store: s}).find
	}
	t.run(ctx)
	return nil
}

// findOne is for a single server. It may be a replica, whose word is worth
// something only while it hears its master.
func (s *RedisStore) findOne(context.Context) (*layout, error) {
	return &layout{masters: s.opt.Addresses, ask: []string{"ROLE"}, judge: judgeListens, lenient: true}, nil
}

// judgeListens wants a master, or a replica that is connected to one.
func judgeListens(_ string, answer respValue) error {
	switch role := roleOf(answer); {
	case role == "master":
		return nil
	case role == "slave" && len(answer.items) > 3 && answer.items[3].text == "connected":
		return nil
	case role == "slave":
		return errors.New("it is a replica that does not hear its master")
	default:
		return fmt.Errorf("its role is %.20q", role)
	}
}

// judgeMaster wants a master.
func judgeMaster(_ string, answer respValue) error {
	if role := roleOf(answer); role != "master" {
		return fmt.Errorf("it is not the master: its role is %.20q", role)
	}
	return nil
}

func roleOf(answer respValue) string {
	if len(answer.items) == 0 {
		return ""
	}
	return answer.items[0].text
}

// clusterFinder finds the masters of a cluster.
type clusterFinder struct {
	store *RedisStore
	last  []string // the masters that were found last
}

// find asks the nodes that are known, all at once, and believes the first that
// answers; in the epoch every master must agree.
func (f *clusterFinder) find(ctx context.Context) (*layout, error) {
	ctx, cancel := context.WithTimeout(ctx, redisDial+redisCall)
	defer cancel()
	asked := slices.Clone(f.last)
	for _, address := range f.store.opt.Addresses {
		if !slices.Contains(asked, address) {
			asked = append(asked, address)
		}
	}
	type answer struct {
		topology *topology
		err      error
	}
	answers := make(chan answer, len(asked))
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for _, address := range asked {
		all.Go(func() {
			t, err := f.store.askTopology(ctx, address)
			answers <- answer{t, err}
		})
	}
	var errs []error
	for range asked {
		a := <-answers
		if a.err == nil {
			f.last = a.topology.addresses()
			return f.store.clusterLayout(a.topology), nil
		}
		errs = append(errs, a.err)
	}
	return nil, fmt.Errorf("find the masters of the cluster: %w", errors.Join(errs...))
}

// askTopology asks one node. One whose cluster does not stand is not believed.
func (s *RedisStore) askTopology(ctx context.Context, address string) (*topology, error) {
	opt := s.single(address)
	opt.PoolSize, opt.MaxRetries = 1, -1
	node := redis.NewUniversalClient(opt)
	defer node.Close()
	text, err := node.ClusterNodes(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	return parseTopology(text, address, s.opt.TLS != nil)
}

// clusterLayout has every master of t tracked, and asked with each ping for
// its own view of the cluster: one that sees other masters, or no longer is
// one, ends the epoch.
func (s *RedisStore) clusterLayout(t *topology) *layout {
	return &layout{
		masters: t.addresses(),
		client:  func() *trackedClient { return s.clusterClient(t) },
		ask:     []string{"CLUSTER", "NODES"},
		judge: func(address string, answer respValue) error {
			now, err := parseTopology(strings.TrimPrefix(answer.text, "txt:"), address, s.opt.TLS != nil)
			if err != nil {
				return err
			}
			if err := t.differs(now); err != nil {
				return err
			}
			if !now.rules() {
				return errors.New("it is no master of the cluster")
			}
			if c := s.tracked.Load(); c != nil && c.routes != nil {
				c.routes(now)
			}
			return nil
		},
	}
}

// clusterClient reads from the masters of t alone: it takes who serves which
// slot from what they said, and connects nowhere else, wherever it is sent.
func (s *RedisStore) clusterClient(t *topology) *trackedClient {
	masters := t.addresses()
	opt := s.universal(masters).Cluster()
	dial := s.dialer(s.opt.TLS)
	opt.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		for _, master := range masters {
			if address == master || address == withoutLoopback(master) {
				return dial(ctx, network, master)
			}
		}
		return nil, fmt.Errorf("%s is not tracked", address)
	}
	var routes atomic.Pointer[topology]
	routes.Store(t)
	opt.ClusterSlots = func(context.Context) ([]redis.ClusterSlot, error) { return routes.Load().routes(), nil }
	client := redis.NewClusterClient(opt)
	return &trackedClient{
		UniversalClient: client,
		routes: func(now *topology) {
			if !routes.Load().sameRoutes(now) {
				routes.Store(now)
				client.ReloadState(context.Background())
			}
		},
	}
}

// withoutLoopback is what go-redis makes of a master on this machine, when it
// does not know which machine told it so.
func withoutLoopback(address string) string {
	host, port, _ := net.SplitHostPort(address)
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return address
	}
	return net.JoinHostPort("", port)
}
