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
)

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
