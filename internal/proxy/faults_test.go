package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"sluice/internal/authz"
	"sluice/internal/channel"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Faults that users of neighbouring gateways have reported, shown on real
// sockets. docs/faults.md says where the other kinds are shown.

func TestAnUpgradeIsTakenBesideKeepAlive(t *testing.T) {
	g := startGateway(t, echoes(t))
	for _, connection := range []string{"keep-alive, Upgrade", "Upgrade,keep-alive", "keep-alive\r\nConnection: upgrade"} {
		c, br := open(t, g.address, strings.Replace(websocketHead, "Connection: Upgrade", "Connection: "+connection, 1))
		c.Write(wireFrame(opBinary, true, []byte("hello")))
		if _, payload, err := readFrame(br); err != nil || string(payload) != "hello" {
			t.Errorf("%q: %q, %v", connection, payload, err)
		}
	}
}

func TestAWordThatOnlyLooksLikeUpgradeIsNone(t *testing.T) {
	saw := make(chan http.Header, 1)
	worker := listen(t, func(c net.Conn) {
		if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			saw <- r.Header
			io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
		}
	})
	g := startGateway(t, worker)
	_, br := dialRaw(t, g.address, strings.Replace(websocketHead, "Connection: Upgrade", "Connection: notupgrade", 1))
	wantStatus(t, br, 426, "UPGRADE_REQUIRED")
	_, br = dialRaw(t, g.address, "POST /v1/leases/lease-1/execute HTTP/1.1\r\nHost: gateway\r\nConnection: notupgrade\r\nUpgrade: websocket\r\nNotupgrade: x\r\n\r\n")
	if answer, err := http.ReadResponse(br, nil); err != nil || answer.StatusCode != 204 {
		t.Fatalf("answered %v, %v", answer, err)
	}
	if h := <-saw; h.Get("Upgrade") != "" || h.Get("Notupgrade") != "" {
		t.Errorf("the worker got %v", h)
	}
}

// After a refused upgrade neither connection is ever used for what the caller
// sends behind it.
func TestAWorkerThatRefusesAnUpgradeGetsNothingMore(t *testing.T) {
	for _, answer := range []int{400, 403, 426, 500} {
		t.Run(fmt.Sprint(answer), func(t *testing.T) {
			rest := make(chan []byte, 1)
			worker := listen(t, func(c net.Conn) {
				br := bufio.NewReader(c)
				if _, err := http.ReadRequest(br); err != nil {
					return
				}
				fmt.Fprintf(c, "HTTP/1.1 %d No\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nno", answer)
				b, _ := io.ReadAll(br) // it keeps the connection
				rest <- b
			})
			g := startGateway(t, worker)
			c, br := dialRaw(t, g.address, websocketHead)
			got, err := http.ReadResponse(br, nil)
			if err != nil || got.StatusCode != answer || !got.Close {
				t.Fatalf("answered %v, %v", got, err)
			}
			io.Copy(io.Discard, got.Body)
			io.WriteString(c, "GET /internal HTTP/1.1\r\nHost: worker\r\n\r\n")
			if b, _ := io.ReadAll(br); len(b) > 0 {
				t.Errorf("the caller got %q", b)
			}
			if b := <-rest; len(b) > 0 {
				t.Errorf("the worker got %q", b)
			}
		})
	}
}

func TestASwitchThatNobodyAskedForIsNoTunnel(t *testing.T) {
	for name, head := range map[string]string{
		"with an upgrade": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"without":         "HTTP/1.1 101 Switching Protocols\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			rest := make(chan []byte, 2)
			worker := listen(t, func(c net.Conn) {
				br := bufio.NewReader(c)
				if _, err := http.ReadRequest(br); err != nil {
					return
				}
				io.WriteString(c, head)
				b, _ := io.ReadAll(br)
				rest <- b
			})
			g := startGateway(t, worker)
			for _, ask := range []string{"POST /v1/leases/lease-1/execute", "GET /v1/leases/lease-1/output"} {
				_, br := dialRaw(t, g.address, ask+" HTTP/1.1\r\nHost: gateway\r\n\r\n")
				wantStatus(t, br, 502, "WORKER_BAD_GATEWAY")
				if b := <-rest; len(b) > 0 {
					t.Errorf("%s: the worker got %q", ask, b)
				}
			}
		})
	}
}

// The time-out of the handshake is not one of the channel, and nobody who is
// silent loses a channel, though it is judged again all the while.
func TestASilentChannelOutlivesTheHandshakesTimeOutAndIsJudgedAgain(t *testing.T) {
	g := startGateway(t, echoes(t), func(s *Settings, l *channel.Limits) {
		s.HandshakeTimeout, l.RecheckInterval = 100*time.Millisecond, 50*time.Millisecond
	})
	c, br := open(t, g.address, websocketHead)
	rechecks := func() (n int) {
		g.decides.mu.Lock()
		defer g.decides.mu.Unlock()
		for _, phase := range g.decides.asked {
			if phase == authz.Recheck {
				n++
			}
		}
		return n
	}
	for deadline := time.Now().Add(20 * time.Second); rechecks() < 10; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("judged again %d times", rechecks())
		}
	}
	c.Write(wireFrame(opBinary, true, []byte("still here")))
	if _, payload, err := readFrame(br); err != nil || string(payload) != "still here" {
		t.Errorf("%q, %v", payload, err)
	}
}

// heap is what this process holds on its heap.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Who does not read slows its sender down, and costs a buffer.
func TestManyWhoDoNotReadHoldABufferEach(t *testing.T) {
	const many = 100
	flood := bytes.Repeat(wireFrame(opBinary, false, make([]byte, 1000)), 60)
	worker := listen(t, func(c net.Conn) {
		r, _ := switches(t, c)
		for r != nil { // and never reads
			if _, err := c.Write(flood); err != nil {
				return
			}
		}
	})
	g := startGateway(t, worker)
	before := heap()
	masked := bytes.Repeat(wireFrame(opBinary, true, make([]byte, 1000)), 60)
	for range many {
		c, _ := open(t, g.address, websocketHead)
		go func() {
			for { // and never reads
				if _, err := c.Write(masked); err != nil {
					return
				}
			}
		}()
	}
	waitUntilStuck(t, g)
	if grown := int64(heap()) - int64(before); grown > many*2*bufferSize+maxBursts*burstSize {
		t.Errorf("%d channels hold %d MiB", many, grown>>20)
	}
	g.decides.set(denies(authz.CodeDuplexDenied))
	since := time.Now()
	g.register.LeaseChanged("lease-1")
	for range many {
		if s := g.summary(t); s.Ending.Why != channel.Revoked {
			t.Errorf("recorded %+v", s.Ending)
		}
	}
	if took := time.Since(since); took > 3*time.Second {
		t.Errorf("stuck channels were cut after %v", took)
	}
}

// A frame may say that it is as long as it likes.
func TestTheLengthThatAFrameAnnouncesCostsNothing(t *testing.T) {
	announced := []byte{final | opBinary, 0x80 | 127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}
	got := make(chan int, 1)
	worker := listen(t, func(c net.Conn) {
		if r, br := switches(t, c); r != nil {
			n, _ := io.CopyN(io.Discard, br, int64(len(announced))+1<<20)
			got <- int(n)
			io.Copy(io.Discard, br)
		}
	})
	g := startGateway(t, worker)
	before := heap()
	c, _ := open(t, g.address, websocketHead+string(announced))
	c.Write(make([]byte, 1<<20))
	if n := <-got; n != len(announced)+1<<20 {
		t.Errorf("the worker got %d bytes", n)
	}
	if grown := int64(heap()) - int64(before); grown > 8<<20 {
		t.Errorf("it cost %d MiB", grown>>20)
	}
	limited := startGateway(t, worker, func(_ *Settings, l *channel.Limits) { l.MaxMessageBytes = 1 << 20 })
	_, br := open(t, limited.address, websocketHead+string(announced))
	if code, _ := readClose(t, br); code != 1009 {
		t.Errorf("beyond the limit: closed with %d", code)
	}
}

// fails is a gRPC worker whose calls end in every way that has a status.
type fails struct {
	testpb.UnimplementedTestServiceServer
}

func detailed() error {
	s, err := status.New(codes.FailedPrecondition, "no, and «why» it is: 100% sure\n").WithDetails(
		&errdetails.ErrorInfo{Reason: "ITS_OWN", Domain: "worker", Metadata: map[string]string{"k": "v"}},
		&errdetails.DebugInfo{Detail: strings.Repeat("d", 2000)})
	if err != nil {
		return err
	}
	return s.Err()
}

func (fails) StreamingOutputCall(in *testpb.StreamingOutputCallRequest, stream testpb.TestService_StreamingOutputCallServer) error {
	for range in.ResponseParameters {
		if err := stream.Send(&testpb.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
	if in.ResponseType == testpb.PayloadType_COMPRESSABLE && len(in.ResponseParameters) == 0 {
		_ = stream.SendHeader(metadata.Pairs("x-head", "out"))
	}
	stream.SetTrailer(metadata.Pairs("x-tail", "out", "x-tail-bin", "\x00\xff"))
	return detailed()
}

func (fails) EmptyCall(context.Context, *testpb.Empty) (*testpb.Empty, error) { return nil, detailed() }

// What a worker's call ends with is what its caller hears, whether there were
// messages, only a head, or nothing.
func TestAGRPCStatusArrivesAsItWasSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	testpb.RegisterTestServiceServer(s, fails{})
	go s.Serve(l)
	t.Cleanup(s.Stop)
	g := startGateway(t, l.Addr().String(), func(s *Settings, _ *channel.Limits) {
		s.Routes = []Route{
			{Path: "/grpc.testing.TestService/StreamingOutputCall", Capability: "incrementalSessionOutput", Kind: authz.Stream, LeaseHeader: "x-lease"},
			{Path: "/grpc.testing.TestService/EmptyCall", Capability: "independentControlCommands", Kind: authz.PlainRequest, LeaseHeader: "x-lease"},
		}
	})
	client := func(address string) testpb.TestServiceClient {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return testpb.NewTestServiceClient(conn)
	}
	calls := map[string]func(testpb.TestServiceClient) (error, metadata.MD){
		"nothing": func(c testpb.TestServiceClient) (error, metadata.MD) {
			var tail metadata.MD
			_, err := c.EmptyCall(callContext(t), &testpb.Empty{}, grpc.Trailer(&tail))
			return err, tail
		},
	}
	for name, messages := range map[string]int{"a head": 0, "messages": 3} {
		calls[name] = func(c testpb.TestServiceClient) (error, metadata.MD) {
			stream, err := c.StreamingOutputCall(callContext(t), &testpb.StreamingOutputCallRequest{ResponseParameters: make([]*testpb.ResponseParameters, messages)})
			for err == nil {
				_, err = stream.Recv()
			}
			return err, stream.Trailer()
		}
	}
	direct, through := client(l.Addr().String()), client(g.address)
	for name, call := range calls {
		for range 20 {
			want, wantTail := call(direct)
			got, tail := call(through)
			// The head of an answer without a body is its trailers too, and
			// net/http's server adds to it.
			tail.Delete("date")
			tail.Delete("content-length")
			if !proto.Equal(status.Convert(got).Proto(), status.Convert(want).Proto()) || !maps.EqualFunc(tail, wantTail, slices.Equal) {
				t.Fatalf("behind %s: %v %v, directly %v %v", name, got, tail, want, wantTail)
			}
		}
	}
}

// One limit for a head, whoever asks for what.
func TestALargeHeadIsTakenOrRefusedEverywhereAlike(t *testing.T) {
	worker := listen(t, func(c net.Conn) {
		br := bufio.NewReaderSize(c, 1<<20)
		r, err := http.ReadRequest(br)
		switch {
		case err != nil:
		case r.Header.Get("Upgrade") != "":
			fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\n", websocketAccept(r.Header.Get("Sec-Websocket-Key")))
			io.Copy(io.Discard, br)
		default:
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	g := startGateway(t, worker)
	for size, status := range map[int]int{15 << 10: 0, 70 << 10: 431, 1 << 20: 431} {
		cookie := "Cookie: a=" + strings.Repeat("c", size) + "\r\n\r\n"
		for name, row := range map[string]struct {
			head string
			fine int
		}{
			"a WebSocket": {strings.TrimSuffix(websocketHead, "\r\n"), 101},
			"a request":   {"POST /v1/leases/lease-1/execute HTTP/1.1\r\nHost: gateway\r\n", 200},
			"a stream":    {"GET /v1/leases/lease-1/output HTTP/1.1\r\nHost: gateway\r\n", 200},
		} {
			c, err := net.Dial("tcp", g.address)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetDeadline(time.Now().Add(20 * time.Second))
			go io.WriteString(c, row.head+cookie)
			answer, err := http.ReadResponse(bufio.NewReader(c), nil)
			want := status
			if want == 0 {
				want = row.fine
			}
			if err != nil || answer.StatusCode != want {
				t.Errorf("%s with %d KiB: answered %v, %v, want %d", name, size>>10, answer, err, want)
			}
			c.Close()
		}
		h := dialH2(t, g.address)
		h.headers(1, false, append(connectHeaders("/v1/leases/lease-1/duplex"), "cookie", "a="+strings.Repeat("c", min(size, 15<<10)))...)
		if m := h.answer(1); m.PseudoValue("status") != "200" {
			t.Errorf("over HTTP/2 with 15 KiB: answered %v", m.Fields)
		}
	}
}

// descriptors are those of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestFailedHandshakesLeaveNoSocketBehind(t *testing.T) {
	answers := []string{
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "garbage\r\n\r\n", "",
		"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
	}
	turn := make(chan string, 1)
	worker := listen(t, func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			io.WriteString(c, <-turn)
		}
	})
	g := startGateway(t, worker)
	ask := func(head, answer string) {
		c, err := net.Dial("tcp", g.address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		if answer != "none" {
			turn <- answer
		}
		io.WriteString(c, head)
		io.Copy(io.Discard, c)
	}
	round := func() {
		for _, answer := range answers {
			ask(websocketHead, answer)
		}
		ask(strings.Replace(websocketHead, "13", "12", 1), "none")
		ask(strings.Replace(websocketHead, testKey, "short", 1), "none")
	}
	round()
	before := descriptors(t)
	for range 30 {
		round()
	}
	for deadline := time.Now().Add(20 * time.Second); descriptors(t) > before+2 || g.register.Len() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d descriptors, at first %d; %d channels", descriptors(t), before, g.register.Len())
		}
	}
}

// A channel from its first byte to its last: what both sides got, and the one
// record that says so.
func TestAMebibyteEachWayAndAnOrderlyEnd(t *testing.T) {
	g := startGateway(t, echoes(t))
	c, br := open(t, g.address, websocketHead)
	payload := made(func(_ byte, p []byte) []byte { return p }, 3, 1<<20)[:1<<20]
	go c.Write(wireFrame(opBinary, true, payload))
	if _, back, err := readFrame(br); err != nil || !bytes.Equal(back, payload) {
		t.Fatalf("%d bytes came back, %v", len(back), err)
	}
	c.Write(wireFrame(opClose, true, []byte{0x03, 0xe8}))
	if code, _ := readClose(t, br); code != 1000 {
		t.Errorf("closed with %d", code)
	}
	if _, err := br.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("behind the close: %v", err)
	}
	c.Close()
	s := g.summary(t)
	if s.Ending.Close != 0 || s.BytesToWorker != 14+1<<20+8 || s.BytesToCaller != 10+1<<20+4 || s.MessagesToWorker != 1 || s.MessagesToCaller != 1 {
		t.Errorf("recorded %+v", s)
	}
}
