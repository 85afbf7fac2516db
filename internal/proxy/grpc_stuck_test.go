package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sluice/internal/authz"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A worker that takes any amount and then stops reading holds up the gateway's
// HTTP/2 client within a lock that everything else of that connection needs.
// Whatever ends such a call waits for none of it: not the recheck, which has
// other channels to judge, and not the handler, which has a place to give back.
func TestAWorkerThatStopsReadingHoldsNothingUp(t *testing.T) {
	for name, end := range map[string]func(g *gateway, hangUp func(), revoked *atomic.Bool){
		"the lease is revoked": func(g *gateway, _ func(), revoked *atomic.Bool) {
			revoked.Store(true)
			g.register.LeaseChanged("lease-1")
		},
		"the caller is gone": func(_ *gateway, hangUp func(), _ *atomic.Bool) { hangUp() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			full, over := make(chan struct{}), make(chan struct{})
			stuck := listen(t, func(c net.Conn) { answerAndStopReading(c, full, over) })
			quiet := listen(t, func(c net.Conn) { switches(t, c); <-over })
			g := startGateway(t, stuck)
			t.Cleanup(func() { close(over) })
			var revoked atomic.Bool
			judged := make(chan struct{}, 100)
			g.decides.set(func(r *authz.Request) authz.Decision {
				switch {
				case r.LeaseID != "lease-1":
					if r.Phase == authz.Recheck {
						judged <- struct{}{}
					}
					return allows(quiet)(r)
				case revoked.Load():
					return authz.Deny(authz.CodeDuplexDenied, "TEST")
				}
				return allows(stuck)(r)
			})
			open(t, g.address, strings.Replace(websocketHead, "lease-1", "lease-2", 1))
			hangUp := make(chan struct{})
			for range 4 { // as many as judge channels
				go sendWithoutEnd(t, g.address, hangUp)
			}
			for last, same := int64(-1), 0; same < 10 || last == 0; time.Sleep(50 * time.Millisecond) {
				if now, _ := g.register.Forwarded(); now != last {
					last, same = now, 0
				} else {
					same++
				}
			}
			close(full)
			time.Sleep(200 * time.Millisecond) // what the worker sends is there, and read
			end(g, func() { close(hangUp) }, &revoked)
			for until := time.Now().Add(10 * time.Second); g.register.Len() > 1; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(until) {
					t.Fatalf("%d channels are left", g.register.Len())
				}
			}
			g.register.LeaseChanged("lease-2")
			select {
			case <-judged:
			case <-time.After(10 * time.Second):
				t.Error("no other channel was judged")
			}
		})
	}
}

// answerAndStopReading grants an endless window, reads nothing once the head is
// there, and sends more than the caller takes when full is closed.
func answerAndStopReading(c net.Conn, full, over <-chan struct{}) {
	_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
	_, _ = io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
	f := http2.NewFramer(c, bufio.NewReader(c))
	_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
	_ = f.WriteWindowUpdate(0, 1<<30)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck()
			}
		case *http2.HeadersFrame:
			var head strings.Builder
			e := hpack.NewEncoder(&head)
			_ = e.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
			_ = e.WriteField(hpack.HeaderField{Name: "content-type", Value: "application/grpc"})
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: frame.StreamID, BlockFragment: []byte(head.String()), EndHeaders: true})
			select {
			case <-full:
			case <-over:
			}
			for range 40 {
				_ = f.WriteData(frame.StreamID, false, make([]byte, 16000))
			}
			<-over
			return
		}
	}
}

// sendWithoutEnd makes a gRPC call that is all upload, whose caller reads
// nothing, on a connection of its own.
func sendWithoutEnd(t *testing.T, address string, hangUp <-chan struct{}) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{
		Protocols: protocols, HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 1 << 16},
		Dial: func(network, address string) (net.Conn, error) {
			c, err := net.Dial(network, address)
			if err == nil {
				go func() {
					select {
					case <-hangUp:
					case <-t.Context().Done():
					}
					_ = c.Close()
				}()
			}
			return c, err
		},
	}
	r, _ := http.NewRequest(http.MethodPost, "http://"+address+"/v1/leases/lease-1/duplex", io.NopCloser(zeros{}))
	r.Header.Set("Content-Type", "application/grpc")
	_, _ = transport.RoundTrip(r)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
