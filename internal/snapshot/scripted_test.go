package snapshot

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// scripted is a server that speaks Redis as far as a store asks it to, but for
// what a test has it answer otherwise.
type scripted struct {
	address  string
	listener net.Listener
	work     sync.WaitGroup
	ended    chan struct{}

	mu     sync.Mutex
	values map[string]string
	// answer, when set, is asked first; "" leaves the answer to the server.
	answer func(command []string) string
	// write, when set, takes an answer to its connection.
	write    func(c net.Conn, answer string)
	conns    map[net.Conn]bool // true: it tracks
	accepted atomic.Int32
}

// script starts a server that has one lease in order.
func script(t *testing.T) *scripted {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return scriptOn(t, l)
}

func scriptOn(t *testing.T, l net.Listener) *scripted {
	s := &scripted{
		address: l.Addr().String(), listener: l, ended: make(chan struct{}), conns: map[net.Conn]bool{},
		values: map[string]string{
			"sluice:lease:lease-1": goodLease, "sluice:environment:env-1": goodEnvironment, "sluice:plugin:plg-a": goodPlugin,
			"sluice:worker:wrk-a": goodWorker, "sluice:control": goodControl,
		},
	}
	s.work.Go(s.accept)
	t.Cleanup(func() {
		close(s.ended)
		l.Close()
		s.mu.Lock()
		for c := range s.conns {
			c.Close()
		}
		s.mu.Unlock()
		s.work.Wait()
	})
	return s
}

// misbehave sets how the server answers from now on; nil: as it should.
func (s *scripted) misbehave(answer func(command []string) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// change writes a record and tells of it.
func (s *scripted) change(k Key, text string) {
	name := "sluice:" + k.String()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[name] = text
	for c, tracks := range s.conns {
		if tracks {
			fmt.Fprintf(c, ">2\r\n$10\r\ninvalidate\r\n*1\r\n$%d\r\n%s\r\n", len(name), name)
		}
	}
}

func (s *scripted) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.accepted.Add(1)
		s.mu.Lock()
		s.conns[c] = false
		s.mu.Unlock()
		s.work.Go(func() {
			s.serve(c)
			c.Close()
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
		})
	}
}

func (s *scripted) serve(c net.Conn) {
	select {
	case <-s.ended:
		return
	default:
	}
	for r := bufio.NewReader(c); ; {
		command, err := readCommand(r)
		if err != nil {
			return
		}
		s.mu.Lock()
		answer, write := s.reply(command), s.write
		s.conns[c] = s.conns[c] || len(command) > 1 && strings.EqualFold(command[1], "tracking")
		if write == nil {
			_, err = io.WriteString(c, answer)
		}
		s.mu.Unlock()
		if write != nil {
			write(c, answer)
		}
		if err != nil {
			return
		}
	}
}

func (s *scripted) reply(command []string) string {
	if s.answer != nil {
		if answer := s.answer(command); answer != "" {
			return answer
		}
	}
	value, found := "", false
	if len(command) > 1 {
		value, found = s.values[command[1]]
	}
	switch command[0] {
	case "HELLO":
		return "%1\r\n+server\r\n+redis\r\n"
	case "CLIENT":
		return "+OK\r\n"
	case "PING":
		return "+PONG\r\n"
	case "ROLE":
		return "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"
	case "GETRANGE":
		return fmt.Sprintf("$%d\r\n%s\r\n", len(value), value)
	case "PTTL":
		if found {
			return ":-1\r\n"
		}
		return ":-2\r\n"
	}
	return "-ERR unknown command\r\n"
}

// readCommand reads a command, its name in capitals.
func readCommand(r *bufio.Reader) ([]string, error) {
	length := func(kind string) (int, error) {
		line, err := r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		rest, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), kind)
		if !ok {
			return 0, errProtocol
		}
		return strconv.Atoi(rest)
	}
	n, err := length("*")
	if err != nil {
		return nil, err
	}
	command := make([]string, n)
	for i := range command {
		size, err := length("$")
		if err != nil {
			return nil, err
		}
		text := make([]byte, size+2)
		if _, err := io.ReadFull(r, text); err != nil {
			return nil, err
		}
		command[i] = string(text[:size])
	}
	command[0] = strings.ToUpper(command[0])
	return command, nil
}

// cacheOn is a running cache over what answers at the addresses of redis.
func cacheOn(t *testing.T, opt Options, redis RedisOptions) (*Cache, *RedisStore) {
	t.Helper()
	redis.KeyPrefix, redis.Ping = "sluice:", 50*time.Millisecond
	store, err := NewRedisStore(redis)
	if err != nil {
		t.Fatal(err)
	}
	opt.Store = store
	c, err := NewCache(opt)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { _ = c.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended; store.Close() })
	return c, store
}
