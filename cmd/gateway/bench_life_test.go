package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// wideLimits let a benchmark open what it wants.
const wideLimits = `channels: {open_rate_per_caller: 100000000, max_per_lease: 100000, max_per_tenant: 100000, max_open: 100000}`

// crowd is many channels through a gateway process, over leases of a Redis.
type crowd struct {
	*redisScene
	b *testing.B
}

func newCrowd(b *testing.B, leases, each int) *crowd {
	b.Helper()
	raiseFileLimit(b)
	c := &crowd{redisScene: newRedisScene(b), b: b}
	for i := range leases {
		c.write(i, "active", 1)
	}
	c.start(wideLimits, `telemetry: {log: {decisions: false}}`)
	var wg sync.WaitGroup
	for i := range leases {
		wg.Go(func() {
			for range each {
				if _, _, err := c.open(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
		if i%16 == 15 {
			wg.Wait()
		}
	}
	wg.Wait()
	if b.Failed() {
		b.FailNow()
	}
	return c
}

// write puts lease i and returns when the call began and how long it took.
func (c *crowd) write(i int, status string, revision int) (began time.Time, took time.Duration) {
	c.b.Helper()
	id := fmt.Sprintf("crowd-%d", i)
	text := c.leaseText(id, fields{"status": status, "revision": revision})
	began = time.Now()
	if err := c.redis.Client.Set(context.Background(), "sluice:lease:"+id, text, 0).Err(); err != nil {
		c.b.Fatal(err)
	}
	return began, time.Since(began)
}

// open opens a channel into lease i.
func (c *crowd) open(i int) (net.Conn, *bufio.Reader, error) {
	conn, err := openRaw(c.address, crowdHead(i))
	if err != nil {
		return nil, nil, err
	}
	c.b.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Time{})
	return conn, bufio.NewReaderSize(conn, 256), nil
}

func crowdHead(i int) string {
	return strings.Replace(openHead, "lease-1", fmt.Sprintf("crowd-%d", i), 1)
}

// BenchmarkRevocation measures, among 5,000 open channels, how long after the
// store call began a caller sees its channel close, as a multiple of that
// call's own time.
func BenchmarkRevocation(b *testing.B) {
	const leases, each, spare = 500, 10, 10000
	c := newCrowd(b, leases, each)
	var one, hundred []float64
	next := spare
	for b.Loop() {
		for range 50 { // one lease, one channel
			next++
			c.write(next, "active", 1)
			_, br, err := c.open(next)
			if err != nil {
				b.Fatal(err)
			}
			began, call := c.write(next, "revoked", 2)
			if _, err := br.ReadByte(); err != nil {
				b.Fatal(err)
			}
			one = append(one, time.Since(began).Seconds()/call.Seconds())
		}
		for range 5 { // one lease, a hundred channels
			next++
			c.write(next, "active", 1)
			var closed sync.WaitGroup
			for range 100 {
				_, br, err := c.open(next)
				if err != nil {
					b.Fatal(err)
				}
				closed.Go(func() { _, _ = br.ReadByte() })
			}
			time.Sleep(50 * time.Millisecond)
			began, call := c.write(next, "revoked", 2)
			closed.Wait()
			hundred = append(hundred, time.Since(began).Seconds()/call.Seconds())
		}
	}
	b.ReportMetric(median(one), "x-store-call-one(<=3)")
	b.ReportMetric(median(hundred), "x-store-call-last-of-100(<=20)")
}

// BenchmarkPolicySwap measures how many evaluations a swap with 5,000 open
// channels costs, against one for each channel.
func BenchmarkPolicySwap(b *testing.B) {
	const leases, each = 500, 10
	raiseFileLimit(b)
	c := &crowd{redisScene: newRedisScene(b), b: b}
	for i := range leases {
		c.write(i, "active", 1)
	}
	c.scene.write("rules/team.rego", "package sluice.custom\n")
	c.start(wideLimits, `telemetry: {log: {decisions: false}}`, `policies: {path: rules}`)
	for i := range leases {
		for range each {
			if _, _, err := c.open(i); err != nil {
				b.Fatal(err)
			}
		}
	}
	evaluations := func() float64 {
		var n float64
		_, _ = fmt.Sscan(c.metric(`sluice_decision_duration_seconds_count{phase="recheck"}`), &n)
		return n
	}
	round := 0
	var ratios []float64
	for b.Loop() {
		round++
		before := evaluations()
		c.scene.write("rules/team.rego", fmt.Sprintf("package sluice.custom\n\n# edit %d\ndeny contains \"never\" if input.snapshot.lease.id == \"never-%d\"\n", round, round))
		reloads := fmt.Sprint(round + 1)
		c.eventually("the swap is done", func() bool { return c.metric(`sluice_policy_reloads_total{result="loaded"}`) == reloads })
		last := -1.0
		c.eventually("the rechecks are done", func() bool {
			time.Sleep(300 * time.Millisecond)
			now := evaluations()
			done := now == last && now > before
			last = now
			return done
		})
		ratios = append(ratios, (last-before)/(leases*each))
	}
	b.ReportMetric(median(ratios), "evaluations/channel(<=0.2)")
}

// BenchmarkChurn revokes 10,000 leases while others open and close, and counts
// what was lost, a channel that stayed, and what was wrong, one that ended
// without cause; then nothing may be left.
func BenchmarkChurn(b *testing.B) {
	const revocations, leases = 10_000, 64
	c := newCrowd(b, leases, 4)
	var lost, wrong atomic.Int64
	goroutines, descriptors := c.goroutines(), c.descriptors()
	revision := 10
	for b.Loop() {
		ended := make(chan struct{})
		var callers, revokers sync.WaitGroup
		for i := range 8 { // into leases that nobody revokes
			callers.Go(func() {
				for n := i; ; n++ {
					select {
					case <-ended:
						return
					default:
					}
					conn, err := openRaw(c.address, crowdHead(n%leases))
					if err != nil {
						wrong.Add(1)
						continue
					}
					_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
					if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
						wrong.Add(1)
					}
					_ = conn.Close()
				}
			})
		}
		for i := range 16 {
			revokers.Go(func() {
				lease := leases + i
				for n := range revocations / 16 {
					c.write(lease, "active", revision+2*n)
					conn, err := openRaw(c.address, crowdHead(lease))
					for try := 0; err != nil && try < 100; try++ { // the record is on its way
						conn, err = openRaw(c.address, crowdHead(lease))
					}
					if err != nil {
						wrong.Add(1)
						continue
					}
					c.write(lease, "revoked", revision+2*n+1)
					_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
					frame := make([]byte, 4)
					if _, err := io.ReadFull(conn, frame); err != nil || frame[0] != 0x88 || int(frame[2])<<8|int(frame[3]) != 1008 {
						lost.Add(1)
					}
					_ = conn.Close()
				}
			})
		}
		revokers.Wait()
		close(ended)
		callers.Wait()
		revision += 2 * revocations
	}
	c.eventually("all is as it was", func() bool {
		return c.goroutines() <= goroutines+8 && c.descriptors() <= descriptors+8
	})
	b.ReportMetric(float64(lost.Load()), "lost(0)")
	b.ReportMetric(float64(wrong.Load()), "wrong(0)")
	b.ReportMetric(c.goroutines()-goroutines, "goroutines-left")
	b.ReportMetric(float64(c.descriptors()-descriptors), "descriptors-left")
}

func (c *crowd) goroutines() (n float64) {
	_, _ = fmt.Sscan(c.metric("go_goroutines"), &n)
	return n
}

// BenchmarkLargeMessages compares 64 KiB messages echoed through the gateway
// with httputil.ReverseProxy and, where it is installed, nginx with 64 KiB
// buffers, in turn in one run.
func BenchmarkLargeMessages(b *testing.B) {
	worker := echo64K(b)
	g := startBench(b, fmt.Sprintf(`workers: {link: static, static: [{id: wrk-a, pluginId: plg-a, url: "http://%s", methods: [duplexChannelOpen, duplexChannelWrite, duplexChannelStop, duplexChannelClose]}]}`, worker))
	peers := map[string]string{"httputil": httputilProxy(b, worker)}
	if nginx, err := exec.LookPath("nginx"); err == nil {
		peers["nginx"] = nginxProxy(b, nginx, worker)
	}
	ratios := map[string][]float64{}
	for b.Loop() {
		const messages = 2000
		gateway := pump64K(b, g.address, messages)
		for name, address := range peers {
			ratios[name] = append(ratios[name], pump64K(b, address, messages).Seconds()/gateway.Seconds())
		}
	}
	for name, list := range ratios {
		b.ReportMetric(median(list), "x-"+name)
	}
}

// echo64K answers an upgrade and then sends back what it gets.
func echo64K(b *testing.B) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				br := bufio.NewReader(c)
				if _, err := http.ReadRequest(br); err != nil {
					return
				}
				_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
				// A client's frame with a zero mask, sent back as a server's: its
				// head is four bytes shorter.
				const frame = 14 + 64<<10
				buf := make([]byte, 4*frame)
				have := copy(buf, must(br.Peek(br.Buffered())))
				for {
					n, err := c.Read(buf[have:])
					if err != nil {
						return
					}
					have += n
					sent := 0
					for ; have-sent >= frame; sent += frame {
						copy(buf[sent+4:], buf[sent:sent+10])
						buf[sent+5] &^= 0x80
						if _, err := c.Write(buf[sent+4 : sent+frame]); err != nil {
							return
						}
					}
					have = copy(buf, buf[sent:have])
				}
			}()
		}
	}()
	return l.Addr().String()
}

// pump64K echoes messages of 64 KiB, a few under way at a time.
func pump64K(b *testing.B, address string, messages int) time.Duration {
	b.Helper()
	c, err := openRaw(address, openHead)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	frame := append([]byte{0x82, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}, make([]byte, 64<<10)...)
	started := time.Now()
	go func() {
		for range messages {
			if _, err := c.Write(frame); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 256<<10)
	for left := messages * (10 + 64<<10); left > 0; {
		n, err := c.Read(buf)
		if err != nil {
			b.Fatal(err)
		}
		left -= n
	}
	return time.Since(started)
}

func httputilProxy(b *testing.B, worker string) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := httputilServer(worker)
	go func() { _ = server.Serve(l) }()
	b.Cleanup(func() { server.Close() })
	return l.Addr().String()
}

func httputilServer(worker string) *http.Server {
	target := &url.URL{Scheme: "http", Host: worker}
	return &http.Server{Handler: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}}
}

// httputilMain is a reverse proxy as a process of its own, until its standard
// input ends.
func httputilMain(worker string) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 1
	}
	fmt.Println(l.Addr())
	go func() { _ = httputilServer(worker).Serve(l) }()
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

func nginxProxy(b *testing.B, nginx, worker string) string {
	b.Helper()
	dir, port := b.TempDir(), freePort(b)
	conf := fmt.Sprintf(`daemon off; pid %[1]s/pid; error_log /dev/null; worker_processes 1; events { worker_connections 512; }
http { access_log off; client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
server { listen 127.0.0.1:%[2]s; location / { proxy_pass http://%[3]s; proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection "upgrade";
proxy_buffer_size 64k; proxy_buffers 8 64k; proxy_read_timeout 1h; } } }`, dir, port, worker)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(nginx, "-c", file, "-p", dir)
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for range 100 {
		if c, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			c.Close()
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return "127.0.0.1:" + port
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
