package snapshot

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func readRESP(text string) (m respMessage, keys []string, err error) {
	p := &respReader{r: bufio.NewReaderSize(strings.NewReader(text), 4096), longer: 64}
	m, err = p.next(func(batch []string) { keys = append(keys, batch...) })
	return m, keys, err
}

func TestRESPReadsWhatATrackingConnectionCarries(t *testing.T) {
	for text, want := range map[string]string{
		"+OK\r\n":                            "+ OK",
		"-NOAUTH no\r\n":                     "- NOAUTH no",
		">2\r\n$10\r\ninvalidate\r\n_\r\n":   "> all",
		">2\r\n$10\r\ninvalidate\r\n*-1\r\n": "> all",
		">2\r\n$10\r\ninvalidate\r\n*2\r\n$1\r\na\r\n$3\r\n\r\nb\r\n":                 "> [a \r\nb]",
		">2\r\n+invalidate\r\n*1\r\n$1\r\na\r\n":                                      "> [a]",
		">2\r\n$10\r\ninvalidate\r\n*1\r\n$65\r\n" + strings.Repeat("x", 65) + "\r\n": "> []",
		">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n":                               "?",
		">0\r\n": "?",
		"%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n+modules\r\n*1\r\n%1\r\n+a\r\n:1\r\n": "%",
		":1\r\n":                    ":",
		"#t\r\n":                    "#",
		",1.5\r\n":                  ",",
		"(12345678901234567890\r\n": "(",
		"=7\r\ntxt:abc\r\n":         "=",
		"~1\r\n_\r\n":               "~",
		"*-1\r\n":                   "*",
		"$-1\r\n":                   "$",
	} {
		m, keys, err := readRESP(text)
		got := string(m.kind)
		switch {
		case err != nil:
			got = err.Error()
		case m.kind == '>' && m.all:
			got += " all"
		case m.kind == '>':
			got += fmt.Sprint(" ", keys)
		case m.text != "":
			got += " " + m.text
		}
		if got != want {
			t.Errorf("%q:\n got %q\nwant %q", text, got, want)
		}
	}
}

// room is how much f allocates.
func room(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestRESPRefusesInBoundedRoom(t *testing.T) {
	for _, text := range []string{
		"", "\n", "\r\n", "+OK\n", "OK\r\n", "$2147483647\r\n", "$-2\r\n", "*-2\r\n", "$x\r\n", "$5\r\nab\r\n", "$1\r\nabc",
		">2\r\n$10\r\ninvalidate\r\n:1\r\n", ">2\r\n:1\r\n_\r\n", ">2\r\n$10\r\ninvalidate\r\n*1\r\n:1\r\n", ">99999999999\r\n",
		strings.Repeat("*1\r\n", 10000), "+" + strings.Repeat("x", 1<<20), "%1\r\n|1\r\n", "*1073741824\r\n",
		"*1073741823\r\n", "%1073741823\r\n", "~1073741823\r\n", "$1073741823\r\n", "=1073741823\r\n", "!1073741823\r\n", ">1073741823\r\n+a\r\n",
		">2\r\n$10\r\ninvalidate\r\n*1073741823\r\n", ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1073741823\r\n", ">2\r\n$1073741823\r\n",
		"$9223372036854775807\r\n", "*9223372036854775807\r\n", "*2\r\n$1048577\r\n", strings.Repeat("*2\r\n$1000\r\n"+strings.Repeat("x", 1000)+"\r\n", 5000),
	} {
		for _, keep := range []int{0, maxAnswer} {
			var m respMessage
			var keys []string
			var err error
			p := &respReader{r: bufio.NewReaderSize(strings.NewReader(text), 4096), longer: 64, keep: keep}
			took := room(func() { m, err = p.next(func(batch []string) { keys = append(keys, batch...) }) })
			if err == nil {
				t.Errorf("%.40q: got %+v %q", text, m, keys)
			}
			if took > 4<<20 {
				t.Errorf("%.40q: it took %d bytes", text, took)
			}
		}
	}
}

func FuzzRESP(f *testing.F) {
	for _, text := range []string{"+OK\r\n", ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n", "%1\r\n+a\r\n:1\r\n", "|1\r\n+a\r\n_\r\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p := &respReader{r: bufio.NewReaderSize(bytes.NewReader(text), 512), longer: 64}
		for {
			m, err := p.next(func(keys []string) {
				for _, k := range keys {
					if len(k) > 512 {
						t.Fatal("a long text was kept")
					}
				}
			})
			if err != nil {
				return
			}
			if m.kind == 0 {
				t.Fatal("no message and no error")
			}
		}
	})
}

func TestALargeInvalidationIsHandedOnInParts(t *testing.T) {
	const n = 100_000
	var b strings.Builder
	fmt.Fprintf(&b, ">2\r\n$10\r\ninvalidate\r\n*%d\r\n", n)
	for i := range n {
		fmt.Fprintf(&b, "$6\r\n%06d\r\n", i)
	}
	p := &respReader{r: bufio.NewReader(strings.NewReader(b.String())), longer: 64}
	total := 0
	if _, err := p.next(func(keys []string) {
		if len(keys) > respBatch {
			t.Fatalf("%d keys at once", len(keys))
		}
		total += len(keys)
	}); err != nil || total != n {
		t.Errorf("%d keys, %v", total, err)
	}
}

// TestAServerThatAnswersNonsenseConfirmsNothing plays a server that is none.
func TestAServerThatAnswersNonsenseConfirmsNothing(t *testing.T) {
	for name, answer := range map[string]string{
		"errors":          "-LOADING Redis is loading the dataset in memory\r\n",
		"oks":             "+OK\r\n",
		"nulls":           "_\r\n",
		"nested arrays":   strings.Repeat("*1\r\n", 10000),
		"a huge text":     "$2147483647\r\n",
		"an endless line": "+" + strings.Repeat("x", 1<<20),
		"nothing":         "",
		"http":            "HTTP/1.1 400 Bad Request\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := filepath.Join(t.TempDir(), "s")
			listener, err := net.Listen("unix", addr)
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan struct{})
			go func() { defer close(served); answerAll(listener, answer) }()
			store, err := NewRedisStore(RedisOptions{Addresses: []string{addr}, KeyPrefix: "sluice:", PingTimeout: 200 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			c, err := NewCache(Options{Store: store})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan struct{})
			go func() { _ = c.Run(ctx); close(ended) }()
			for range 3 {
				if v := c.Snapshot(ctx, "lease-1"); v.Fresh || v.Snapshot != nil || v.Err == nil {
					t.Errorf("got %+v", v)
				}
			}
			if err := c.Ready(); err == nil {
				t.Error("ready")
			}
			values, err := store.Read(ctx, []Key{leaseKey})
			if err == nil && values[0].Err == nil {
				t.Errorf("read %+v", values[0])
			}
			cancel()
			<-ended
			store.Close()
			listener.Close()
			<-served
		})
	}
}

// answerAll gives every command of every connection the same answer.
func answerAll(listener net.Listener, answer string) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) || err != nil {
			return
		}
		go func() {
			defer conn.Close()
			r := bufio.NewReader(conn)
			for {
				line, err := r.ReadString('\n')
				if err != nil {
					return
				}
				if line[0] == '*' {
					if _, err := conn.Write([]byte(answer)); err != nil {
						return
					}
				}
			}
		}()
	}
}
