package snapshot

import (
	"bufio"
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

// tracker holds the tracking connection to one master: RESP3 client-side
// tracking in broadcast mode on the prefix. Redis pushes the name of every
// key of the prefix that was written, deleted, expired or evicted, whoever
// did it.
//
// Pings run on the same connection, one at a time: when one is answered,
// whatever was pushed before it was sent has been read, for both travel in
// one stream. (Redis pushes at the end of the event loop's round in which a
// write ran; with only one ping under way, a ping cannot be answered in a
// round that had begun before it was sent.)
//
//	      dial, HELLO 3,                 null push (FLUSHALL): a new epoch
//	      CLIENT TRACKING ON                 +-----+
//	(down) ----------------------> (up) -----+     |
//	   ^                             |  ^          |
//	   |   any error, an unanswered  |  +----------+
//	   +------- ping, its end -------+
type tracker struct {
	options  *redis.Options // how to reach the master
	prefix   string
	key      func(name string) (Key, bool)
	feed     Feed
	interval time.Duration
	timeout  time.Duration
	log      *slog.Logger
}

const (
	trackPauseMin = 50 * time.Millisecond
	trackPauseMax = 500 * time.Millisecond
)

// run connects, again and again, until ctx ends. The first attempt after a
// loss is made at once.
func (t *tracker) run(ctx context.Context) {
	pause := time.Duration(0)
	reported := false
	for ctx.Err() == nil {
		wasUp, err := t.session(ctx)
		if ctx.Err() != nil {
			return
		}
		t.feed.Down(err)
		if wasUp {
			pause, reported = 0, false
		}
		if !reported {
			t.log.Warn("connection to the record store lost", "address", t.options.Addr, "error", err)
			reported = true
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

// session is one connection's life; wasUp says that it tracked. It returns
// when the connection is closed and all that used it has ended.
func (t *tracker) session(ctx context.Context) (wasUp bool, err error) {
	dialCtx, cancel := context.WithTimeout(ctx, redisDial)
	conn, err := t.options.Dialer(dialCtx, t.options.Network, t.options.Addr)
	cancel()
	if err != nil {
		return false, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()

	s := &trackSession{tracker: t, conn: conn, answered: make(chan struct{}, 1)}
	s.reader = &respReader{
		r:      bufio.NewReaderSize(conn, 16<<10),
		longer: len(t.prefix) + len(ControlKey.Kind) + maxID + 64,
	}
	if err := s.open(); err != nil {
		return false, err
	}
	t.log.Info("connected to the record store", "address", t.options.Addr)
	t.feed.Up()

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
	return true, err
}
