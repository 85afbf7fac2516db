package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sluice/internal/authz"
	"sluice/internal/channel"
	"sync"
	"time"
)

// stream carries one request and its answer, whose right is judged again while
// it lasts: a channel, or a plain request, which is held like one so that no
// request outlives its right by being slow. It reports whether the channel is
// done with.
func (x *exchange) stream(ctx context.Context, ch *channel.Channel, d authz.Decision) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cut := &streamCut{
		cancel: cancel, controller: http.NewResponseController(x.w), grace: x.settings.CloseGrace,
		grpc: x.grpc, sends: !x.grpc && x.r.ContentLength != 0,
	}
	answer, refused := x.roundTrip(ctx, ch, d, func(admitted authz.Decision) bool {
		return admitted.Allow && ch.Commit(admitted, cut.now, nil)
	})
	if refused == nil && !cut.answered() {
		answer.close()
		told := ended(ch.Ending())
		refused = &told
	}
	if refused != nil {
		cut.over()
		ch.Withdrawn()
		x.refuse(*refused)
		return false
	}
	defer ch.Done()
	defer answer.close()
	x.writeHead(answer)
	if !answer.only {
		_ = http.NewResponseController(x.w).Flush()
	}
	cut.shown()
	if x.route.Kind != authz.PlainRequest {
		x.proxy.opened(time.Since(x.started))
	}

	messages := x.messages(ch)
	err := x.copyBody(ch, answer, &messages)
	// The stream is over, and what ends it below is not to cut a connection
	// that serves the caller's next request.
	cut.over()
	x.endStream(ch, answer, err)
	return true
}

// endStream tells the register how the stream ended, and the caller: where
// the transport has words for it in trailers, else by breaking off.
func (x *exchange) endStream(ch *channel.Channel, answer *answer, err error) {
	switch {
	case err == nil:
		ch.End(channel.EndByWorker)
	case x.r.Context().Err() != nil || errors.Is(err, errCaller):
		ch.End(channel.EndCallerLost)
	default:
		ch.End(channel.EndWorker)
	}
	ch.Silenced()
	switch told := ch.Ending(); {
	case err == nil:
		x.writeTrailers(answer)
	case x.grpc && told.Close != 0 && told.Why != channel.WorkerFailed:
		endGRPC(x.w.Header(), told)
	case x.grpc && told.Decision != nil:
		endGRPC(x.w.Header(), told)
	default:
		ch.Done()
		x.breakOff(err)
	}
}

// breakOff lets the caller see that an answer is cut short.
func (x *exchange) breakOff(err error) {
	if x.grpc && !errors.Is(err, errCaller) {
		failGRPC(x.w.Header(), err)
		return
	}
	panic(http.ErrAbortHandler)
}

// streamCut stops a stream: it takes the worker away and frees a writer that
// waits for a caller who does not read. Before there is an answer of the
// worker's, the caller is still to be refused in words; its head is finished
// inside the grace, so that no caller is left without either. A gRPC caller
// gets the grace to take its trailers.
type streamCut struct {
	cancel     context.CancelFunc // hangs up on the worker
	controller *http.ResponseController
	grace      time.Duration
	grpc       bool
	sends      bool // the caller announced a body

	mu       sync.Mutex
	cut      bool
	finished bool
	answer   bool // of the worker's is there
	head     bool // is out
}

// answered says that there is an answer, and is false when the stream was cut
// before.
func (s *streamCut) answered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = true
	return !s.cut
}

// shown says that the answer's head is out.
func (s *streamCut) shown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.head = true
	if s.cut {
		s.freeLocked()
	}
}

func (s *streamCut) now() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finished {
		return
	}
	s.cut = true
	s.cancel()
	if s.sends {
		// HTTP/1.1 waits for the request's body on both sides: the client before
		// it gives up, the server before it writes a head. A caller who announces
		// one and sends none would hold the stream.
		_ = s.controller.SetReadDeadline(time.Unix(1, 0))
	}
	if s.answer {
		s.freeLocked()
	}
}

func (s *streamCut) freeLocked() {
	deadline := time.Unix(1, 0)
	if s.grpc || !s.head {
		deadline = time.Now().Add(s.grace)
	}
	_ = s.controller.SetWriteDeadline(deadline)
}

// over makes now do nothing: the connection is the HTTP server's again.
func (s *streamCut) over() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = true
}

// answer is a worker's answer on its way to the caller.
type answer struct {
	*http.Response
	only   bool // nothing but a head (gRPC: trailers only); it must end with it
	hangUp func()
}

// close hangs up on the worker first: closing the body of an HTTP/2 answer
// waits for a write that a worker which does not read holds up.
func (a *answer) close() {
	a.hangUp()
	_ = a.Body.Close()
}

// roundTrip dials the worker, has the request admitted, and only then writes
// its head. The connection serves this one request, and ends with ctx: HTTP/2's
// client sees the end of a context neither while it waits for more of the
// caller's body nor while it reads an answer behind a write that is stuck.
func (x *exchange) roundTrip(ctx context.Context, ch *channel.Channel, d authz.Decision, commit func(authz.Decision) bool) (*answer, *refusal) {
	worker, err := x.dial(ctx, d)
	if err != nil {
		refused := x.workerRefusal(ch, err)
		return nil, &refused
	}
	unwatch := context.AfterFunc(ctx, func() { hangUp(worker) })
	end := func() {
		unwatch()
		hangUp(worker)
	}
	admitted := x.admit(ctx, ch, d)
	if !commit(admitted) {
		end()
		refused := x.deniedOrEnded(ch, admitted)
		return nil, &refused
	}
	body := &callerBody{ReadCloser: x.r.Body, channel: ch, messages: x.messages(ch)}
	watched := &watchedConn{Conn: worker, lost: func() { x.giveUpBody(body) }}
	response, err := x.send(ctx, body, watched, d) //nolint:bodyclose // answer.close does
	gone := watched.settle()
	if err != nil {
		end()
		refused := x.workerRefusal(ch, err)
		switch {
		case ch.Ending() != nil:
		case body.broken.Load(): // whatever the worker made of that
			refused = *wireRefusal(errBody)
		case gone:
			refused = badGateway()
		}
		return nil, &refused
	}
	if gone { // with an answer: the caller's connection is as it was
		_ = http.NewResponseController(x.w).SetReadDeadline(time.Time{})
	}
	a := &answer{Response: response, only: x.grpc && response.Body == http.NoBody, hangUp: end}
	if refused := x.checkGeneration(response.Header, d); refused != nil {
		a.close()
		return nil, refused
	}
	if response.StatusCode < 200 {
		a.close()
		refused := badGateway() // a 101 that nobody asked for opens no tunnel
		return nil, &refused
	}
	return a, nil
}

// send writes the request to the worker and returns the head of its answer.
func (x *exchange) send(ctx context.Context, body io.ReadCloser, worker net.Conn, d authz.Decision) (*http.Response, error) {
	headers, err := x.headers(d)
	if err != nil {
		return nil, err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!x.grpc)
	protocols.SetUnencryptedHTTP2(x.grpc)
	transport := &http.Transport{
		DialContext:            func(context.Context, string, string) (net.Conn, error) { return worker, nil },
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxAnswerHead,
		Protocols:              protocols,
	}
	// "http" whatever the worker's scheme: where there is TLS, worker is the
	// TLS connection already.
	conn, err := transport.NewClientConn(ctx, "http", "worker:80")
	if err != nil {
		return nil, err
	}
	out := (&http.Request{
		Method: x.r.Method, Host: x.host(), Header: headers, ContentLength: x.r.ContentLength, Body: body,
		URL: &url.URL{Scheme: "http", Host: "worker:80", Opaque: x.r.RequestURI},
	}).WithContext(ctx)
	if out.ContentLength == 0 {
		out.Body = nil
	}
	if x.grpc {
		headers["Te"] = []string{"trailers"} // gRPC's own, and no secret of the hop
	}
	if headers.Get("User-Agent") == "" {
		headers["User-Agent"] = nil // none was sent, none is made up
	}
	return conn.RoundTrip(out)
}

// giveUpBody has nobody wait for the rest of a body whose worker is gone: HTTP/1.1's
// client would, for as long as the caller is silent.
func (x *exchange) giveUpBody(body *callerBody) {
	switch {
	case x.grpc, x.r.ContentLength == 0, body.over.Load():
	case x.r.ProtoMajor == 1:
		_ = http.NewResponseController(x.w).SetReadDeadline(time.Unix(1, 0))
	default:
		_ = x.r.Body.Close() // which HTTP/2's body takes beside a read
	}
}

func speaksHTTP2(c net.Conn) bool {
	secured, ok := c.(*tls.Conn)
	return !ok || secured.ConnectionState().NegotiatedProtocol == "h2"
}

func (x *exchange) writeHead(a *answer) {
	h := x.w.Header()
	for name, values := range callerHeaders(a.Header) {
		h[name] = values
	}
	x.w.WriteHeader(a.StatusCode)
}

// writeTrailers passes a gRPC answer's trailers on; others are the hop's.
func (x *exchange) writeTrailers(a *answer) {
	if !x.grpc {
		return
	}
	for name, values := range callerHeaders(a.Trailer) {
		x.w.Header()[http.TrailerPrefix+name] = values
	}
}

// errCaller marks that writing to the caller failed.
var errCaller = errors.New("writing to the caller")

// answerBuffer is what an answer's body is moved in; an idle stream holds it.
const answerBuffer = 16 << 10

// copyBody forwards an answer's body, each piece that passes at once.
func (x *exchange) copyBody(ch *channel.Channel, a *answer, messages *grpcMessages) error {
	if a.only {
		return nil
	}
	controller := http.NewResponseController(x.w)
	buf := make([]byte, answerBuffer)
	for {
		n, err := a.Body.Read(buf)
		if n > 0 {
			ended, err := messages.pass(ch, buf[:n])
			if err != nil {
				return err
			}
			if _, err := x.w.Write(buf[:n]); err != nil {
				return errors.Join(errCaller, err)
			}
			_ = controller.Flush()
			ch.ToCaller.Add(n, ended)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
