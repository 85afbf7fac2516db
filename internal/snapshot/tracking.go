package snapshot

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// tracker holds the tracking connections to all masters of a store: RESP3
// client-side tracking in broadcast mode on the prefix. Redis pushes the name
// of every key of the prefix that was written, deleted, expired or evicted,
// whoever did it.
//
// Pings run on the same connection, one at a time: when one is answered,
// whatever was pushed before it was sent has been read, for both travel in
// one stream. (Redis pushes at the end of the event loop's round in which a
// write ran; with only one ping under way, a ping cannot be answered in a
// round that had begun before it was sent.) With each ping the server is asked
// what it is, so that one that is no longer the master does not confirm.
//
//	      the masters are found,         null push (FLUSHALL): a new epoch
//	      every one tracks                   +-----+
//	(down) ----------------------> (up) -----+     |
//	   ^                             |  ^          |
//	   |   any error, an unanswered  |  +----------+
//	   |   ping, other masters than  |
//	   +-----  these, its end  ------+
//
// An epoch is one for all masters: a change at any of them must be heard, so
// what happens to one connection happens to all.
type tracker struct {
	store    *RedisStore
	find     func(ctx context.Context) (*layout, error)
	feed     Feed
	interval time.Duration
	timeout  time.Duration
	log      *slog.Logger
	// rights says that the user's rights were checked.
	rights bool
}

// layout is the masters of an epoch.
type layout struct {
	masters []string // addresses, sorted
	// client reads from these masters alone; nil, for one master: from where the
	// tracking connection leads, which an address may no longer do.
	client func() *trackedClient
	// ask is what a server is asked along with each ping, nil for nothing, and
	// judge says why the answer means that it confirms nothing.
	ask   []string
	judge func(address string, answer respValue) error
	// lenient says that a server may refuse to be asked.
	lenient bool
	// beside runs beside the connections and confirms like one; nil: nothing does.
	beside func(ctx context.Context, part Feed) error
}

const (
	trackPauseMin = 50 * time.Millisecond
	trackPauseMax = 500 * time.Millisecond
	reportAgain   = 10 * time.Second // after a loss was logged, when something else is wrong now
)

// run begins one epoch after the other, until ctx ends. The first attempt
// after a loss is made at once.
func (t *tracker) run(ctx context.Context) {
	pause := time.Duration(0)
	var reported string // what was wrong when it was last logged; empty: nothing was
	var at time.Time
	for ctx.Err() == nil {
		wasUp, err := t.epoch(ctx)
		if ctx.Err() != nil {
			return
		}
		t.feed.Down(err)
		if wasUp {
			pause, reported = 0, ""
		}
		if why := fmt.Sprint(err); reported == "" || why != reported && time.Since(at) > reportAgain {
			t.log.Warn("connection to the record store lost", "address", strings.Join(t.store.opt.Addresses, " "), "error", err)
			reported, at = why, time.Now()
		}
		sleep(ctx, pause/2+rand.N(pause/2+1))
		pause = min(max(2*pause, trackPauseMin), trackPauseMax)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// epoch tracks the masters that there are until it can no longer; wasUp says
// that it did. It returns when all that it started has ended.
func (t *tracker) epoch(ctx context.Context) (wasUp bool, err error) {
	l, err := t.find(ctx)
	if err != nil {
		return false, err
	}
	if l.client != nil {
		t.store.readFrom(l.client())
	}
	names := l.masters
	if l.beside != nil {
		names = append(names[:len(names):len(names)], "sentinels")
	}
	all := newGather(t.feed, names)
	t.store.running.Store(all)
	defer all.end()
	g, ctx := errgroup.WithContext(ctx)
	for i, address := range l.masters {
		g.Go(func() error {
			err := t.session(ctx, l, address, all.part(i))
			if len(l.masters) > 1 {
				err = fmt.Errorf("%s: %w", address, err)
			}
			return err
		})
	}
	if !t.rights {
		g.Go(func() error {
			t.rights = t.store.checkRights(ctx, l.masters[0])
			return nil
		})
	}
	if l.beside != nil {
		g.Go(func() error { return l.beside(ctx, all.part(len(l.masters))) })
	}
	err = g.Wait()
	return all.wasUp(), err
}

// session is one connection's life. It returns, with an error, when the
// connection is closed and all that used it has ended.
func (t *tracker) session(ctx context.Context, l *layout, address string, part Feed) error {
	options := t.store.single(address).Simple()
	server := redis.NewClient(options) // which only completes its options
	defer server.Close()
	options = server.Options()
	dialCtx, cancel := context.WithTimeout(ctx, redisDial)
	// What is read here has bounds of its own: an invalidation may name any number of keys.
	conn, err := dialerWithoutBounds(t.store.opt.TLS)(dialCtx, options.Network, options.Addr)
	cancel()
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()

	s := &trackSession{
		tracker: t, layout: l, address: address, feed: part, options: options, conn: conn, answered: make(chan struct{}, 1),
	}
	s.reader = &respReader{
		r:      bufio.NewReaderSize(conn, 16<<10),
		longer: len(t.store.opt.KeyPrefix) + len(ControlKey.Kind) + maxID + 64,
		keep:   maxAnswer,
	}
	if err := s.open(); err != nil {
		return err
	}
	if l.client == nil {
		t.store.readFrom(t.store.clientAt(address, conn.RemoteAddr()))
	}
	t.log.Info("connected to the record store", "address", address)
	part.Up()

	ended := make(chan struct{})
	pings := make(chan struct{})
	go func() {
		defer close(pings)
		s.ping(ended)
	}()
	err = s.listen()
	close(ended)
	conn.Close()
	<-pings
	return err
}

// maxAnswer bounds what a server says of itself: some thousand nodes of a
// cluster.
const maxAnswer = 1 << 20

// readFrom has the cache's reads made by client from now on. Every epoch has one
// of its own: a connection of before may lead to a server that the same address
// no longer leads to, and that nobody tracks.
func (s *RedisStore) readFrom(client *trackedClient) {
	if old := s.tracked.Swap(client); old != nil {
		_ = old.Close()
	}
}

// clientAt reads from the server at remote, whatever its address leads to now.
func (s *RedisStore) clientAt(address string, remote net.Addr) *trackedClient {
	opt := s.single(address).Simple()
	secure := s.opt.TLS
	if host, _, err := net.SplitHostPort(opt.Addr); err == nil && secure != nil && secure.ServerName == "" {
		secure = secure.Clone()
		secure.ServerName = host
	}
	dial := s.dialer(secure)
	opt.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dial(ctx, remote.Network(), remote.String())
	}
	return &trackedClient{UniversalClient: redis.NewClient(opt)}
}
