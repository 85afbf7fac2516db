package proxy

import (
	"io"
	"net"
	"sluice/internal/authz"
	"sluice/internal/channel"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// That a worker dies is not its caller's fault, and worth another try.
func TestAGRPCWorkerThatDiesBeforeItsHeadIsUnavailable(t *testing.T) {
	for name, die := range map[string]func(net.Conn, *http2.Framer){
		"FIN":        func(net.Conn, *http2.Framer) {},
		"RST":        func(c net.Conn, _ *http2.Framer) { _ = c.(*net.TCPConn).SetLinger(0) },
		"RST_STREAM": func(_ net.Conn, f *http2.Framer) { _ = f.WriteRSTStream(1, http2.ErrCodeInternal) },
		"GOAWAY":     func(_ net.Conn, f *http2.Framer) { _ = f.WriteGoAway(0, http2.ErrCodeInternal, nil) },
	} {
		worker := listen(t, func(c net.Conn) {
			io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
			f := http2.NewFramer(c, c)
			_ = f.WriteSettings()
			for {
				frame, err := f.ReadFrame()
				if err != nil {
					return
				}
				if h := frame.Header(); h.Type == http2.FrameSettings && !h.Flags.Has(http2.FlagSettingsAck) {
					_ = f.WriteSettingsAck()
				} else if h.Type == http2.FrameData {
					break
				}
			}
			die(c, f)
			_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			_, _ = io.Copy(io.Discard, c)
		})
		g := startGateway(t, worker, func(s *Settings, _ *channel.Limits) {
			s.Routes = append(s.Routes, Route{Path: "/grpc.testing.TestService/FullDuplexCall", Capability: authz.DuplexCommandStream, Kind: authz.Duplex, LeaseHeader: "x-lease"})
		})
		conn, err := grpc.NewClient(g.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		stream, err := testpb.NewTestServiceClient(conn).FullDuplexCall(callContext(t))
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(message("hello"))
		if _, err = stream.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: the caller got %v", name, err)
		}
		conn.Close()
	}
}
