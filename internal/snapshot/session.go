package snapshot

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// trackSession is one tracking connection.
type trackSession struct {
	*tracker
	layout   *layout
	address  string
	feed     Feed
	options  *redis.Options // how to reach the server
	asks     bool           // with each ping, what the server is
	judged   bool           // since the last ping was answered
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
	if prefix := s.store.opt.KeyPrefix; prefix != "" {
		track = append(track, "PREFIX", prefix)
	}
	if err := s.call("turn tracking on", '+', track...); err != nil {
		return err
	}
	return s.probe()
}

// probe asks what the server is before anything is read from it.
func (s *trackSession) probe() error {
	if s.layout.ask == nil {
		return nil
	}
	m, err := s.answer("ask what it is", s.layout.ask...)
	switch {
	case err != nil:
		return err
	case m.kind == '-' && s.layout.lenient && refusesCommand(m.text):
		s.log.Info("the record store does not let itself be asked for its role; a replica that lost its master would go unnoticed",
			"address", s.address, "answer", m.text)
		return nil
	case m.kind == '-':
		return fmt.Errorf("ask what it is: the server answers %q", m.text)
	}
	s.asks = true
	return s.layout.judge(s.address, m.value)
}

// refusesCommand reports that a command is not for this user, or not for this
// server; any other error is about the server's state.
func refusesCommand(text string) bool {
	return strings.HasPrefix(text, "NOPERM") || strings.HasPrefix(strings.ToLower(text), "err unknown")
}

// call sends a command and waits for its answer, which must be of a kind.
func (s *trackSession) call(doing string, want byte, args ...string) error {
	m, err := s.answer(doing, args...)
	switch {
	case err != nil:
		return err
	case m.kind == '-':
		return fmt.Errorf("%s: the server answers %q", doing, m.text)
	case m.kind != want:
		return fmt.Errorf("%s: %w: an answer of kind %q", doing, errProtocol, m.kind)
	}
	return nil
}

// answer sends a command and waits for its answer. Keys that are pushed before
// are of no use yet: nothing was read.
func (s *trackSession) answer(doing string, args ...string) (respMessage, error) {
	if err := s.send(args); err != nil {
		return respMessage{}, fmt.Errorf("%s: %w", doing, err)
	}
	for {
		m, err := s.reader.next(func([]string) {})
		if err != nil {
			return m, fmt.Errorf("%s: %w", doing, err)
		}
		if m.kind != '>' && m.kind != '?' {
			return m, nil
		}
	}
}

// send sends commands in one write.
func (s *trackSession) send(commands ...[]string) error {
	var b strings.Builder
	for _, args := range commands {
		b.WriteString("*" + strconv.Itoa(len(args)) + "\r\n")
		for _, a := range args {
			b.WriteString("$" + strconv.Itoa(len(a)) + "\r\n" + a + "\r\n")
		}
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
			err = s.sendPing()
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

var pingCommand = []string{"PING"}

// sendPing asks what the server is first: when the ping is answered, that has
// been judged.
func (s *trackSession) sendPing() error {
	if s.asks {
		return s.send(s.layout.ask, pingCommand)
	}
	return s.send(pingCommand)
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
			if sent == nil || s.asks && !s.judged {
				return fmt.Errorf("%w: an answer to no ping", errProtocol)
			}
			s.judged = false
			s.feed.Confirm(*sent)
			s.answered <- struct{}{}
		case s.asks && !s.judged && m.kind != '+' && s.sent.Load() != nil:
			if err := s.layout.judge(s.address, m.value); err != nil {
				return err
			}
			s.judged = true
		default:
			return fmt.Errorf("%w: %q %q where only pings are asked", errProtocol, m.kind, m.text)
		}
	}
}

func (s *trackSession) changed(names []string) {
	keys := make([]Key, 0, len(names))
	for _, name := range names {
		if k, ok := s.store.key(name); ok {
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
