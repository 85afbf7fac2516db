package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// pace is the time between two things said in a conversation.
const pace = 40 * time.Millisecond

// spoken is the n-th thing that is said: its number, and a text whose length
// and letter are its own.
func spoken(n int64) string {
	return fmt.Sprintf("%d %s", n, strings.Repeat(string(rune('a'+n%26)), int(n*7%1400)))
}

// talk is a conversation that never pauses, and knows what it must hear next.
type talk struct {
	t         testing.TB
	life      *life
	name      string // for messages
	transport string
	hush      func()       // ends what is said; nil where only the worker speaks
	leave     func()       // ends it all
	said      atomic.Int64 // the number of things said
	heard     atomic.Int64
	ending    chan ending
}

// ending is how a conversation ended, as its caller sees it.
type ending struct {
	err      error
	status   int    // the WebSocket close code or the gRPC status; 0: a bare end
	code     string // the contract's word for it
	decision string
	at       time.Time
}

// speaker is one transport's way to speak and to hear. say is nil where only
// the worker speaks.
type speaker struct {
	say    func(string) error
	hear   func() (string, error)
	ending func(error) ending
	leave  func()
}

// talk opens a conversation by a transport, hears the first echoes, and goes
// on. A WebSocket, over HTTP/2 too, is that of path, below the lease.
func (l *life) talk(t testing.TB, transport, caller, lease, path string) *talk {
	t.Helper()
	// What a busy machine takes for the first look at a lease refuses nobody.
	l.eventually("the store has answered for "+lease, func() bool {
		answer := l.get(caller, "/v1/leases/"+lease+"/capabilities")
		_ = answer.Body.Close()
		return answer.StatusCode != http.StatusServiceUnavailable
	})
	var sp speaker
	switch transport {
	case "websocket":
		sp = l.byWebSocket(t, caller, "/v1/leases/"+lease+"/"+path, nil)
	case "websocket over HTTP/2":
		sp = l.byWebSocket(t, caller, "/v1/leases/"+lease+"/"+path, l.streams())
	case "grpc":
		sp = l.byGRPC(t, caller, lease)
	case "sse":
		sp = l.byEvents(t, caller, lease)
	}
	k := &talk{t: t, life: l, name: transport + " into " + lease, transport: transport, leave: sp.leave, ending: make(chan ending, 1)}
	t.Cleanup(sp.leave)
	if sp.say != nil {
		stop, stopped := make(chan struct{}), make(chan struct{})
		go k.speak(sp.say, stop, stopped)
		k.hush = func() { close(stop); <-stopped }
	}
	go k.listen(sp)
	k.until(t, 2)
	return k
}

func (k *talk) speak(say func(string) error, stop, stopped chan struct{}) {
	defer close(stopped)
	for n := int64(0); ; n++ {
		select {
		case <-stop:
			return
		case <-time.After(pace):
		}
		if say(spoken(n)) != nil {
			return // the listener hears why
		}
		k.said.Add(1)
	}
}

func (k *talk) listen(sp speaker) {
	for n := int64(0); ; n++ {
		word, err := sp.hear()
		if err != nil {
			e := sp.ending(err)
			e.at = time.Now()
			k.ending <- e
			return
		}
		if word != spoken(n) {
			k.t.Errorf("%s: in place of the %dth thing came %.20q", k.name, n, word)
			return
		}
		k.heard.Store(n + 1)
	}
}

// until waits until so many things were heard in all.
func (k *talk) until(t testing.TB, n int64) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); k.heard.Load() < n; time.Sleep(pace) {
		select {
		case e := <-k.ending:
			t.Fatalf("%s: ended with %+v, for %s", k.name, e, k.life.reason(e.decision))
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: heard %d things, not %d", k.name, k.heard.Load(), n)
		}
	}
}

// ends waits for the end.
func (k *talk) ends(t testing.TB, atMost time.Duration) ending {
	t.Helper()
	select {
	case e := <-k.ending:
		return e
	case <-time.After(atMost):
		t.Fatalf("%s: still open after %v, heard %d things", k.name, atMost, k.heard.Load())
		return ending{}
	}
}

// stay has conversations go on a while, and then hear everything that was
// said.
func stay(t testing.TB, talks ...*talk) {
	t.Helper()
	var on []int64
	for _, k := range talks {
		on = append(on, k.heard.Load()+10)
	}
	for i, k := range talks {
		k.until(t, on[i])
	}
	for _, k := range talks {
		if k.hush != nil {
			k.hush()
			k.until(t, k.said.Load())
		}
		k.leave()
	}
}

func (l *life) byWebSocket(t testing.TB, caller, path string, client *http.Client) speaker {
	t.Helper()
	ctx, leave := context.WithCancel(context.Background())
	conn, answer, err := websocket.Dial(ctx, "ws://"+l.address+path, &websocket.DialOptions{HTTPHeader: bearer(caller), HTTPClient: client})
	if err != nil {
		t.Fatalf("the channel at %s did not open: %v %v", path, err, answer)
	}
	return speaker{
		say: func(word string) error { return conn.Write(ctx, websocket.MessageText, []byte(word)) },
		hear: func() (string, error) {
			_, word, err := conn.Read(ctx)
			return string(word), err
		},
		ending: webSocketEnding,
		leave:  func() { leave(); _ = conn.CloseNow() },
	}
}

func webSocketEnding(err error) (e ending) {
	e.err = err
	if told, ok := errors.AsType[websocket.CloseError](err); ok {
		e.status = int(told.Code)
		e.code, e.decision, _ = strings.Cut(told.Reason, " ")
	}
	return e
}

func (l *life) byGRPC(t testing.TB, caller, lease string) speaker {
	t.Helper()
	ctx, leave := context.WithCancel(metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer token-of-"+caller, "x-lease", lease))
	stream, err := testpb.NewTestServiceClient(l.calls()).FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return speaker{
		say: func(word string) error {
			return stream.Send(&testpb.StreamingOutputCallRequest{Payload: &testpb.Payload{Body: []byte(word)}})
		},
		hear: func() (string, error) {
			out, err := stream.Recv()
			return string(out.GetPayload().GetBody()), err
		},
		ending: callEnding,
		leave:  leave,
	}
}

func callEnding(err error) ending {
	s := status.Convert(err)
	e := ending{err: err, status: int(s.Code())}
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.Domain == "sluice" {
			e.code, e.decision = info.Reason, info.Metadata["decision_id"]
		}
	}
	return e
}

// calls is the one connection over which all gRPC conversations run: what ends
// one must leave the others alone.
func (l *life) calls() *grpc.ClientConn {
	l.once.Do(func() {
		conn, err := grpc.NewClient(l.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			panic(err) // an address is all it takes
		}
		l.conn = conn
		l.t.Cleanup(func() { _ = conn.Close() })
	})
	return l.conn
}

func (l *life) byEvents(t testing.TB, caller, lease string) speaker {
	t.Helper()
	ctx, leave := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.address+"/v1/leases/"+lease+"/output", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = bearer(caller)
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || answer.StatusCode != 200 {
		t.Fatalf("the stream of %s did not open: %v %v", lease, answer, err)
	}
	lines := bufio.NewReader(answer.Body)
	return speaker{
		hear: func() (string, error) {
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					return "", err
				}
				if word, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "data: "); ok {
					return word, nil
				}
			}
		},
		ending: func(err error) ending {
			if errors.Is(err, io.EOF) {
				t.Error("the stream ended as if it were complete")
			}
			return ending{err: err}
		},
		leave: func() { leave(); _ = answer.Body.Close() },
	}
}
