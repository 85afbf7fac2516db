package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sluice/internal/authz"
	"sluice/internal/channel"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// callee is a gRPC worker.
type callee struct {
	testpb.UnimplementedTestServiceServer
	saw chan metadata.MD
}

func (c *callee) FullDuplexCall(stream testpb.TestService_FullDuplexCallServer) error {
	md, _ := metadata.FromIncomingContext(stream.Context())
	select {
	case c.saw <- md:
	default:
	}
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			stream.SetTrailer(metadata.Pairs("x-last", "word"))
			return nil
		}
		if err != nil {
			return err
		}
		if in.GetResponseStatus() != nil {
			return status.Error(codes.Code(in.ResponseStatus.Code), in.ResponseStatus.Message)
		}
		payload := in.Payload
		for _, p := range in.GetResponseParameters() {
			payload = &testpb.Payload{Body: make([]byte, p.Size)}
		}
		if err := stream.Send(&testpb.StreamingOutputCallResponse{Payload: payload}); err != nil {
			return err
		}
	}
}

func (c *callee) UnaryCall(_ context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	return &testpb.SimpleResponse{Payload: in.Payload}, nil
}

func startCallee(t testing.TB) (string, *callee) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &callee{saw: make(chan metadata.MD, 1)}
	s := grpc.NewServer()
	testpb.RegisterTestServiceServer(s, c)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
	return l.Addr().String(), c
}

// callThrough is a gRPC client of a gateway in front of a gRPC worker.
func callThrough(t testing.TB, change ...func(*Settings, *channel.Limits)) (*gateway, testpb.TestServiceClient, *callee) {
	t.Helper()
	worker, c := startCallee(t)
	g := startGateway(t, worker, append(change, func(s *Settings, _ *channel.Limits) {
		s.Routes = append(s.Routes,
			Route{Path: "/grpc.testing.TestService/FullDuplexCall", Capability: authz.DuplexCommandStream, Kind: authz.Duplex, LeaseHeader: "x-lease"},
			Route{Path: "/grpc.testing.TestService/UnaryCall", Capability: "independentControlCommands", Kind: authz.PlainRequest, LeaseHeader: "x-lease"},
			Route{Path: "/grpc.testing.TestService/UnimplementedCall", Capability: "independentControlCommands", Kind: authz.PlainRequest, LeaseHeader: "x-lease"},
		)
	})...)
	conn, err := grpc.NewClient(g.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return g, testpb.NewTestServiceClient(conn), c
}

func callContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), "x-lease", "lease-1", "sluice-subject", "root"), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func message(word string) *testpb.StreamingOutputCallRequest {
	return &testpb.StreamingOutputCallRequest{Payload: &testpb.Payload{Body: []byte(word)}}
}

func TestAGRPCCallEchoesBothWaysAndKeepsItsTrailers(t *testing.T) {
	g, client, worker := callThrough(t)
	stream, err := client.FullDuplexCall(callContext(t))
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := stream.Send(message("hello")); err != nil {
			t.Fatal(err)
		}
		if out, err := stream.Recv(); err != nil || string(out.Payload.Body) != "hello" {
			t.Fatalf("%v, %v", out, err)
		}
	}
	stream.CloseSend()
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Fatalf("ended with %v", err)
	}
	if last := stream.Trailer().Get("x-last"); len(last) != 1 || last[0] != "word" {
		t.Errorf("trailers: %v", stream.Trailer())
	}
	if md := <-worker.saw; len(md.Get("sluice-subject")) != 1 || md.Get("sluice-subject")[0] != "agent" || md.Get("sluice-lease-id")[0] != "lease-1" {
		t.Errorf("the worker saw %v", md)
	}
	if s := g.summary(t); s.Ending.Why != channel.WorkerClosed || s.BytesToWorker == 0 || s.BytesToCaller == 0 {
		t.Errorf("recorded %+v", s)
	}
}

func TestAGRPCMessageThatIsTooLargeEndsItsCall(t *testing.T) {
	g, client, _ := callThrough(t, func(_ *Settings, l *channel.Limits) { l.MaxMessageBytes = 1000 })
	for name, large := range map[string]*testpb.StreamingOutputCallRequest{
		"the caller's": message(strings.Repeat("x", 1000)),
		"the worker's": {ResponseParameters: []*testpb.ResponseParameters{{Size: 100_000}}},
	} {
		stream, err := client.FullDuplexCall(callContext(t))
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(message(strings.Repeat("x", 900)))
		if out, err := stream.Recv(); err != nil || len(out.Payload.Body) != 900 {
			t.Fatalf("%s: a smaller one came as %v, %v", name, out, err)
		}
		_ = stream.Send(large)
		_, err = stream.Recv()
		wantDetails(t, err, codes.ResourceExhausted, "MESSAGE_TOO_LARGE")
		if s := g.summary(t); s.Ending.Why != channel.TooLarge || s.MessagesToWorker > 2 {
			t.Errorf("%s: recorded %+v", name, s)
		}
	}
	// Before the worker has answered anything, the same.
	first, err := client.FullDuplexCall(callContext(t))
	if err != nil {
		t.Fatal(err)
	}
	_ = first.Send(message(strings.Repeat("x", 1000)))
	_, err = first.Recv()
	wantDetails(t, err, codes.ResourceExhausted, "MESSAGE_TOO_LARGE")
	if s := g.summary(t); s.Ending.Why != channel.TooLarge || s.BytesToWorker != 0 {
		t.Errorf("recorded %+v", s)
	}
	_, err = client.UnaryCall(callContext(t), &testpb.SimpleRequest{Payload: &testpb.Payload{Body: make([]byte, 1000)}})
	wantDetails(t, err, codes.ResourceExhausted, "MESSAGE_TOO_LARGE")
	if s := g.summary(t); !s.OfChannel() {
		t.Errorf("the end of a plain call that the gateway cut is not told: %+v", s)
	}
}

func TestAGRPCAnswerThatIsTrailersOnlyStaysOne(t *testing.T) {
	_, client, _ := callThrough(t)
	for range 50 {
		var header metadata.MD
		_, err := client.UnimplementedCall(callContext(t), &testpb.Empty{}, grpc.Header(&header))
		if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "UnimplementedCall") {
			t.Fatalf("answered %v", err)
		}
	}
	for range 50 {
		stream, err := client.FullDuplexCall(callContext(t))
		if err != nil {
			t.Fatal(err)
		}
		words := "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"
		stream.Send(&testpb.StreamingOutputCallRequest{ResponseStatus: &testpb.EchoStatus{Code: 2, Message: words}})
		if _, err := stream.Recv(); status.Code(err) != codes.Unknown || status.Convert(err).Message() != words {
			t.Fatalf("answered %v", err)
		}
	}
	out, err := client.UnaryCall(callContext(t), &testpb.SimpleRequest{Payload: &testpb.Payload{Body: bytes.Repeat([]byte("x"), 300<<10)}})
	if err != nil || len(out.Payload.Body) != 300<<10 {
		t.Errorf("%v", err)
	}
}

func TestAGRPCCallThatIsRefusedHearsItsStatus(t *testing.T) {
	g, client, worker := callThrough(t)
	for code, want := range map[authz.Code]codes.Code{
		authz.CodeDuplexDenied: codes.PermissionDenied, authz.CodeUnauthenticated: codes.Unauthenticated,
		authz.CodeRouteBusy: codes.ResourceExhausted, authz.CodeWorkerUnavailable: codes.Unavailable, authz.CodeUnavailable: codes.Unavailable,
	} {
		g.decides.set(denies(code))
		stream, err := client.FullDuplexCall(callContext(t))
		if err != nil {
			t.Fatal(err)
		}
		// The sending side stays open: the refusal does not wait for it.
		_, err = stream.Recv()
		wantDetails(t, err, want, string(code))
	}
	select {
	case md := <-worker.saw:
		t.Errorf("the worker saw %v", md)
	default:
	}
	_, err := client.EmptyCall(callContext(t), &testpb.Empty{})
	wantDetails(t, err, codes.Unimplemented, "NOT_FOUND")
}

func wantDetails(t *testing.T, err error, code codes.Code, reason string) {
	t.Helper()
	s := status.Convert(err)
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.Domain == "sluice" && info.Reason == reason && s.Code() == code {
			return
		}
	}
	t.Errorf("answered %v with details %v, want %v %s", err, s.Details(), code, reason)
}

func TestARevokedGRPCCallHearsItInItsTrailers(t *testing.T) {
	g, client, _ := callThrough(t)
	stream, err := client.FullDuplexCall(callContext(t))
	if err != nil {
		t.Fatal(err)
	}
	stream.Send(message("hello"))
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	neighbour, err := client.FullDuplexCall(callContext(t)) // on the same connection
	if err != nil {
		t.Fatal(err)
	}
	neighbour.Send(message("hello"))
	neighbour.Recv()

	allow := g.decides.answer
	first := true
	g.decides.set(func(r *authz.Request) authz.Decision {
		if first {
			first = false
			return authz.Deny(authz.CodeDuplexDenied, "TEST")
		}
		return allow(r)
	})
	g.register.LeaseChanged("lease-1")
	_, err1 := recvEither(stream, neighbour)
	wantDetails(t, err1, codes.PermissionDenied, "DUPLEX_CHANNEL_CAPABILITY_DENIED")
	if s := g.summary(t); s.Ending.Why != channel.Revoked {
		t.Errorf("recorded %+v", s.Ending)
	}
}

// recvEither returns the stream that ended; the other one must still echo.
func recvEither(a, b testpb.TestService_FullDuplexCallClient) (testpb.TestService_FullDuplexCallClient, error) {
	type end struct {
		stream testpb.TestService_FullDuplexCallClient
		err    error
	}
	ends := make(chan end, 2)
	for _, s := range []testpb.TestService_FullDuplexCallClient{a, b} {
		go func() {
			_, err := s.Recv()
			ends <- end{s, err}
		}()
	}
	ended := <-ends
	other := a
	if ended.stream == a {
		other = b
	}
	if err := other.Send(message("still here")); err != nil {
		return nil, err
	}
	if still := <-ends; still.err != nil {
		return nil, still.err
	}
	return ended.stream, ended.err
}

// h2Client speaks HTTP/2 frames to the gateway, so that what it says on the
// wire can be chosen.
type h2Client struct {
	t        testing.TB
	framer   *http2.Framer
	settings map[http2.SettingID]uint32
	credit   int64 // of the connection, beyond the usual
	encoded  bytes.Buffer
	encoder  *hpack.Encoder
}

func dialH2(t testing.TB, address string) *h2Client {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return h2Over(t, c)
}

func h2Over(t testing.TB, c net.Conn) *h2Client {
	t.Helper()
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(c, http2.ClientPreface)
	h := &h2Client{t: t, framer: http2.NewFramer(c, c), settings: map[http2.SettingID]uint32{}}
	h.encoder = hpack.NewEncoder(&h.encoded)
	h.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	h.framer.WriteSettings()
	for {
		f, err := h.framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := f.(*http2.SettingsFrame); ok && !s.IsAck() {
			s.ForeachSetting(func(s http2.Setting) error { h.settings[s.ID] = s.Val; return nil })
			h.framer.WriteSettingsAck()
			return h
		}
	}
}

func (h *h2Client) headers(id uint32, end bool, pairs ...string) {
	h.encoded.Reset()
	for i := 0; i < len(pairs); i += 2 {
		h.encoder.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: h.encoded.Bytes(), EndStream: end, EndHeaders: true})
}

// answer reads the head of a stream's answer.
func (h *h2Client) answer(id uint32) *http2.MetaHeadersFrame {
	h.t.Helper()
	for {
		f, err := h.framer.ReadFrame()
		if err != nil {
			h.t.Fatal(err)
		}
		if u, ok := f.(*http2.WindowUpdateFrame); ok && u.StreamID == 0 {
			h.credit += int64(u.Increment)
		}
		if m, ok := f.(*http2.MetaHeadersFrame); ok && m.StreamID == id {
			return m
		}
		if r, ok := f.(*http2.RSTStreamFrame); ok && r.StreamID == id {
			h.t.Fatalf("the stream was reset: %v", r.ErrCode)
		}
	}
}

// Read gives the stream's data, so that a bufio.Reader can read frames of it.
func (h *h2Client) Read(p []byte) (int, error) {
	for {
		f, err := h.framer.ReadFrame()
		if err != nil {
			return 0, err
		}
		if d, ok := f.(*http2.DataFrame); ok {
			if len(d.Data()) > 0 {
				return copy(p, d.Data()), nil
			}
			if d.StreamEnded() {
				return 0, io.EOF
			}
		}
		if r, ok := f.(*http2.RSTStreamFrame); ok {
			return 0, http2.StreamError{StreamID: r.StreamID, Code: r.ErrCode}
		}
	}
}

func connectHeaders(path string) []string {
	return []string{
		":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":authority", "gateway", ":path", path,
		"sec-websocket-version", "13", "origin", "",
	}[:12]
}

func TestAWebSocketOverHTTP2IsTheSame(t *testing.T) {
	g := startGateway(t, echoes(t))
	h := dialH2(t, g.address)
	if h.settings[http2.SettingEnableConnectProtocol] != 1 {
		t.Fatalf("settings: %v", h.settings)
	}
	h.headers(1, false, connectHeaders("/v1/leases/lease-1/duplex")...)
	if m := h.answer(1); m.PseudoValue("status") != "200" {
		t.Fatalf("answered %v", m.Fields)
	}
	br := bufio.NewReader(h)
	for _, word := range []string{"hello", "again"} {
		h.framer.WriteData(1, false, wireFrame(opBinary, true, []byte(word)))
		if _, payload, err := readFrame(br); err != nil || string(payload) != word {
			t.Fatalf("%q, %v", payload, err)
		}
	}
	g.decides.set(denies(authz.CodeDuplexDenied))
	g.register.LeaseChanged("lease-1")
	if code, reason := readClose(t, br); code != 1008 || !strings.HasPrefix(reason, "DUPLEX_CHANNEL_CAPABILITY_DENIED ") {
		t.Errorf("closed with %d %q", code, reason)
	}
	if s := g.summary(t); s.Ending.Why != channel.Revoked || s.MessagesToWorker != 2 {
		t.Errorf("recorded %+v", s)
	}
}

func TestAnExtendedConnectThatIsNoWebSocketOpensNothing(t *testing.T) {
	worker := listen(t, func(net.Conn) { t.Error("the worker was contacted") })
	g := startGateway(t, worker)
	h := dialH2(t, g.address)
	id := uint32(1)
	for name, row := range map[string]struct {
		headers []string
		status  string
	}{
		"another protocol": {append([]string{":method", "CONNECT", ":protocol", "connect-udp"}, connectHeaders("/v1/leases/lease-1/duplex")[4:]...), "400"},
		"another route":    {connectHeaders("/v1/leases/lease-1/output"), "405"},
		"no such path":     {connectHeaders("/v1/leases/lease-1/nothing"), "404"},
		"another version":  {append(connectHeaders("/v1/leases/lease-1/duplex")[:10], "sec-websocket-version", "8"), "400"},
		"a dot segment":    {connectHeaders("/v1/leases/../leases/lease-1/duplex"), "400"},
		"a key":            {append(connectHeaders("/v1/leases/lease-1/duplex"), "sec-websocket-key", testKey), "400"},
		"a plain get":      {[]string{":method", "GET", ":scheme", "http", ":authority", "gateway", ":path", "/v1/leases/lease-1/duplex"}, "400"},
		"two hosts":        {[]string{":method", "GET", ":scheme", "http", ":authority", "gateway", ":path", "/v1/leases/lease-1/output", "host", "evil"}, "400"},
	} {
		h.headers(id, true, row.headers...)
		if m := h.answer(id); m.PseudoValue("status") != row.status {
			t.Errorf("%s: answered %v", name, m.Fields)
		}
		id += 2
	}
	h.headers(id, true, ":method", "CONNECT", ":authority", "evil:80")
	if m := h.answer(id); m.PseudoValue("status") < "400" {
		t.Errorf("a plain CONNECT was answered %v", m.Fields)
	}
}

func TestAStreamsHeadersComeAtOnceAndItEndsOnRevocation(t *testing.T) {
	worker := listen(t, func(c net.Conn) {
		c.Read(make([]byte, 4096))
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		io.Copy(io.Discard, c)
	})
	g := startGateway(t, worker)
	_, br := dialRaw(t, g.address, "GET /v1/leases/lease-1/output HTTP/1.1\r\nHost: gateway\r\n\r\n")
	answer, err := http.ReadResponse(br, nil)
	if err != nil || answer.StatusCode != 200 {
		t.Fatal(answer, err)
	}
	g.decides.set(denies(authz.CodeCapabilityDenied))
	g.register.LeaseChanged("lease-1")
	if _, err := io.ReadAll(answer.Body); err == nil {
		t.Error("the stream ended as if it were complete")
	}
	if s := g.summary(t); s.Ending.Why != channel.Revoked || !s.Committed {
		t.Errorf("recorded %+v", s.Ending)
	}
}
