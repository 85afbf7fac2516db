package main

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"sluice/internal/worker/sample"
	"sync/atomic"
	"testing"
	"time"
)

// taken is what one end of a channel got: how much, and when the last of it
// came.
type taken struct {
	bytes atomic.Int64
	last  atomic.Int64 // since the epoch, in nanoseconds
}

func (k *taken) from(r io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			k.last.Store(time.Now().UnixNano())
			k.bytes.Add(int64(n))
		}
		if err != nil {
			return
		}
	}
}

// pour writes a frame again and again until the connection is gone, whatever the
// other end says.
func pour(w io.Writer, frame []byte) {
	for {
		if _, err := w.Write(frame); err != nil {
			return
		}
		time.Sleep(time.Millisecond) // the processors are others' too
	}
}

// obstinate is a worker whose WebSockets send without pause and listen to no
// close frame.
type obstinate struct {
	*sample.Worker
	took map[string]*taken // by lease
	done map[string]chan struct{}
}

func (o *obstinate) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	lease := r.Header.Get("Sluice-Lease-Id")
	if r.Header.Get("Upgrade") != "websocket" {
		o.Worker.ServeHTTP(rw, r)
		return
	}
	conn, buffered, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		return
	}
	defer close(o.done[lease])
	defer conn.Close()
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n", base64.StdEncoding.EncodeToString(sum[:]))
	poured := make(chan struct{})
	go func() {
		defer close(poured)
		pour(conn, append([]byte{0x82, 100}, make([]byte, 100)...))
	}()
	o.took[lease].from(buffered)
	_ = conn.Close()
	<-poured
}

// Seen from outside, with a caller and a worker that go on whatever they are
// told: once a lease is revoked in the store, no byte comes through that is later
// than the bound, in neither direction; and another lease's go on.
func TestNoByteComesThroughOnceTheBoundIsOver(t *testing.T) {
	t.Parallel()
	leases := []string{"lease-1", "lease-2", "lease-3", "lease-4"}
	worker := &obstinate{Worker: sample.New(document("wrk-a", "plg-a", "g1")), took: map[string]*taken{}, done: map[string]chan struct{}{}}
	for _, lease := range leases {
		worker.took[lease], worker.done[lease] = &taken{}, make(chan struct{})
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: worker, ReadHeaderTimeout: bound}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	s := newRedisScene(t)
	s.set("worker:wrk-a", fmt.Sprintf(`{"id": "wrk-a", "pluginId": "plg-a", "url": "http://%s", "revision": 2}`, listener.Addr()))
	for _, lease := range leases[2:] {
		s.set("lease:"+lease, s.leaseText(lease, nil))
	}
	s.start(`channels: {open_rate_per_caller: 100000, revocation_bound: 5s}`)
	for _, lease := range leases {
		s.eventually("the lease is held", func() bool { return s.get("alice", "/v1/leases/"+lease+"/capabilities").StatusCode == 200 })
	}

	// The first two are HTTP/1.1's, the others streams of one HTTP/2 connection.
	callers, gone := map[string]*taken{}, map[string]chan struct{}{}
	over2 := callHTTP2(t, s.address)
	for i, lease := range leases {
		var channel io.ReadWriter
		if i < 2 {
			channel = s.upgraded(lease)
		} else {
			stream, err := over2.request(":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":authority", "gateway",
				":path", "/v1/leases/"+lease+"/duplex", "authorization", "Bearer token-of-alice", "sec-websocket-version", "13")
			if err != nil {
				t.Fatal(err)
			}
			if answer := stream.head(); field(answer, ":status") != "200" {
				t.Fatalf("answered %v", answer)
			}
			channel = stream
		}
		took, over := &taken{}, make(chan struct{})
		callers[lease], gone[lease] = took, over
		go func() {
			defer close(over)
			took.from(channel)
		}()
		go pour(channel, append([]byte{0x82, 0x80 | 100, 0, 0, 0, 0}, make([]byte, 100)...))
	}
	flows := func(lease string) {
		t.Helper()
		toWorker, toCaller := worker.took[lease].bytes.Load(), callers[lease].bytes.Load()
		s.eventually("both directions of "+lease+" flow", func() bool {
			return worker.took[lease].bytes.Load() > toWorker+2000 && callers[lease].bytes.Load() > toCaller+2000
		})
	}
	for _, lease := range leases {
		flows(lease)
	}

	since := time.Now()
	revoked := []string{"lease-1", "lease-3"}
	for _, lease := range revoked {
		s.set("lease:"+lease, s.leaseText(lease, fields{"status": "revoked", "revision": 2}))
	}
	for _, lease := range revoked {
		for what, end := range map[string]chan struct{}{"the worker's connection": worker.done[lease], "the caller's": gone[lease]} {
			select {
			case <-end:
			case <-time.After(2 * bound):
				t.Fatalf("%s: %s is still there", lease, what)
			}
		}
		for what, took := range map[string]*taken{"the worker": worker.took[lease], "the caller": callers[lease]} {
			if late := time.Unix(0, took.last.Load()).Sub(since); late > bound {
				t.Errorf("%s: %s got something %v after the revocation", lease, what, late)
			}
		}
		// What the gateway counted is what came, and no more is on its way.
		end := s.ended(lease).Custom.Sluice.Ended
		if end.Why != "revoked" || end.BytesToWorker < worker.took[lease].bytes.Load()-200 || end.BytesToCaller < callers[lease].bytes.Load()-200 {
			t.Errorf("%s: recorded %+v; the worker got %d bytes, the caller %d", lease, end, worker.took[lease].bytes.Load(), callers[lease].bytes.Load())
		}
	}
	s.within(since)
	s.eventually("the revocations are measured", func() bool { return s.metric("sluice_revocation_delay_seconds_count") == "2" })
	flows("lease-2")
	flows("lease-4")
}

// upgraded is a WebSocket whose frames are the test's own.
func (s *scene) upgraded(lease string) io.ReadWriter {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprintf(conn, "GET /v1/leases/%s/duplex HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer token-of-alice\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", lease)
	_ = conn.SetReadDeadline(time.Now().Add(bound))
	br := bufio.NewReader(conn)
	if answer, err := http.ReadResponse(br, nil); err != nil || answer.StatusCode != 101 {
		s.t.Fatalf("answered %+v, %v", answer, err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	return struct {
		io.Reader
		io.Writer
	}{br, conn}
}
