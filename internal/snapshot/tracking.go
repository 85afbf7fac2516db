package snapshot

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
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

// trackSession is one tracking connection.
type trackSession struct {
	*tracker
	conn     net.Conn
	reader   *respReader
	sent     atomic.Pointer[time.Time] // when the ping under way was sent
	answered chan struct{}
}

// open logs in and turns tracking on.
func (s *trackSession) open() error {
	if err := s.conn.SetDeadline(time.Now().Add(s.timeout)); err != nil {
		return err
	}
	hello := []string{"HELLO", "3"}
	if s.options.Password != "" {
		user := or(s.options.Username, "default")
		hello = append(hello, "AUTH", user, s.options.Password)
	}
	if err := s.call("log in", '%', append(hello, "SETNAME", "sluice-tracking")...); err != nil {
		return err
	}
	track := []string{"CLIENT", "TRACKING", "ON", "BCAST"}
	if s.prefix != "" {
		track = append(track, "PREFIX", s.prefix)
	}
	return s.call("turn tracking on", '+', track...)
}

// call sends a command and waits for its answer, which must be of a kind.
func (s *trackSession) call(doing string, want byte, args ...string) error {
	if err := s.send(args...); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	for {
		m, err := s.reader.next(func([]string) {})
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", doing, err)
		case m.kind == '-':
			return fmt.Errorf("%s: the server answers %q", doing, m.text)
		case m.kind == '>' || m.kind == '?':
		case m.kind != want:
			return fmt.Errorf("%s: %w: an answer of kind %q", doing, errProtocol, m.kind)
		default:
			return nil
		}
	}
}

func (s *trackSession) send(args ...string) error {
	var b strings.Builder
	b.WriteString("*" + strconv.Itoa(len(args)) + "\r\n")
	for _, a := range args {
		b.WriteString("$" + strconv.Itoa(len(a)) + "\r\n" + a + "\r\n")
	}
	_, err := io.WriteString(s.conn, b.String())
	return err
}

// ping sends a ping when the last one was answered and the interval is over.
// The connection's deadline is that of the ping under way.
func (s *trackSession) ping(ended <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ended:
			return
		case <-timer.C:
		}
		now := time.Now()
		s.sent.Store(&now)
		err := s.conn.SetDeadline(now.Add(s.timeout))
		if err == nil {
			err = s.send("PING")
		}
		if err != nil {
			s.conn.Close() // which ends listen
			return
		}
		select {
		case <-ended:
			return
		case <-s.answered:
		}
		timer.Reset(max(0, s.interval-time.Since(now)))
	}
}

// listen reads what the server sends, until it cannot.
func (s *trackSession) listen() error {
	for {
		m, err := s.reader.next(s.changed)
		switch {
		case err != nil:
			return s.why(err)
		case m.kind == '>' && m.all:
			s.feed.Up()
		case m.kind == '>' || m.kind == '?':
		case m.kind == '-':
			return fmt.Errorf("the server says %q", m.text)
		case m.kind == '+' && m.text == "PONG":
			sent := s.sent.Swap(nil)
			if sent == nil {
				return fmt.Errorf("%w: an answer to no ping", errProtocol)
			}
			s.feed.Confirm(*sent)
			s.answered <- struct{}{}
		default:
			return fmt.Errorf("%w: %q %q where only pings are asked", errProtocol, m.kind, m.text)
		}
	}
}

func (s *trackSession) changed(names []string) {
	keys := make([]Key, 0, len(names))
	for _, name := range names {
		if k, ok := s.key(name); ok {
			keys = append(keys, k)
		}
	}
	if len(keys) > 0 {
		s.feed.Changed(keys...)
	}
}

func (s *trackSession) why(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("a ping was not answered for %s", s.timeout)
	}
	return err
}
