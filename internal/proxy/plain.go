package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"sluice/internal/authz"
	"sluice/internal/channel"
)

// plainRequest carries one request and its answer. It takes no place and is
// not judged again: its right is that of the moment its head was written.
func (x *exchange) plainRequest(d authz.Decision) {
	answer, refused := x.roundTrip(x.r.Context(), nil, d, func(admitted authz.Decision) bool { return admitted.Allow })
	if refused != nil {
		x.refuse(*refused)
		return
	}
	defer answer.Body.Close()
	x.writeHead(answer)
	if err := x.copyBody(answer.Body, func(int) {}); err != nil {
		panic(http.ErrAbortHandler) // the caller must see that it is cut short
	}
}

// stream carries one request and an answer that is a channel: registered,
// judged again, cut. It reports whether the channel is done with.
func (x *exchange) stream(ctx context.Context, ch *channel.Channel, d authz.Decision) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cut := &streamCut{cancel: cancel, controller: http.NewResponseController(x.w)}
	answer, refused := x.roundTrip(ctx, ch, d, func(admitted authz.Decision) bool {
		return admitted.Allow && ch.Commit(admitted, cut.now)
	})
	if refused != nil {
		cut.over()
		x.refuse(*refused)
		return false
	}
	defer ch.Done()
	defer answer.Body.Close()
	x.writeHead(answer)
	_ = http.NewResponseController(x.w).Flush()
	x.proxy.opened(time.Since(x.started))

	err := x.copyBody(answer.Body, func(n int) {
		ch.ToCaller.Bytes.Add(int64(n))
		ch.Touch()
	})
	cut.over()
	x.endStream(ch, err)
	return true
}

func (x *exchange) endStream(ch *channel.Channel, err error) {
	switch {
	case err == nil:
		ch.End(channel.EndByWorker)
	case x.r.Context().Err() != nil || errors.Is(err, errCaller):
		ch.End(channel.EndCallerLost)
	default:
		ch.End(channel.EndWorker)
	}
	ch.Silenced()
	if err != nil {
		ch.Done()
		panic(http.ErrAbortHandler)
	}
}

// streamCut stops a stream: it takes the worker away and frees a writer that
// waits for a caller who does not read.
type streamCut struct {
	mu         sync.Mutex
	finished   bool
	cancel     context.CancelFunc
	controller *http.ResponseController
}

func (s *streamCut) now() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.finished {
		s.cancel()
		_ = s.controller.SetWriteDeadline(time.Unix(1, 0))
	}
}

// over makes now do nothing: the connection is the HTTP server's again.
func (s *streamCut) over() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = true
}

// roundTrip dials the worker, has the request admitted, and only then writes
// its head. The connection serves this one request.
func (x *exchange) roundTrip(ctx context.Context, ch *channel.Channel, d authz.Decision, commit func(authz.Decision) bool) (*http.Response, *refusal) {
	worker, err := x.dial(ctx, d)
	if err != nil {
		refused := x.workerRefusal(ch, err)
		return nil, &refused
	}
	admitted := x.admit(ctx)
	if !commit(admitted) {
		_ = worker.Close()
		refused := denied(admitted)
		if ch != nil {
			refused = x.deniedOrEnded(ch, admitted)
		}
		return nil, &refused
	}
	answer, err := x.send(ctx, worker, d)
	if err != nil {
		_ = worker.Close()
		refused := x.workerRefusal(ch, err)
		return nil, &refused
	}
	if refused := x.checkGeneration(answer.Header, d); refused != nil {
		_ = answer.Body.Close()
		return nil, refused
	}
	if answer.StatusCode < 200 {
		_ = answer.Body.Close()
		refused := badGateway() // a 101 that nobody asked for opens no tunnel
		return nil, &refused
	}
	return answer, nil
}

func (x *exchange) send(ctx context.Context, worker net.Conn, d authz.Decision) (*http.Response, error) {
	headers, err := x.headers(d)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		DialContext:            func(context.Context, string, string) (net.Conn, error) { return worker, nil },
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxAnswerHead,
	}
	out := (&http.Request{
		Method: x.r.Method, Host: x.host(), Header: headers, ContentLength: x.r.ContentLength, Body: x.r.Body,
		URL: &url.URL{Scheme: "http", Host: "worker", Opaque: x.r.RequestURI},
	}).WithContext(ctx)
	if out.ContentLength == 0 {
		out.Body = nil
	}
	if headers.Get("User-Agent") == "" {
		headers["User-Agent"] = nil // none was sent, none is made up
	}
	return transport.RoundTrip(out)
}

func (x *exchange) writeHead(answer *http.Response) {
	h := x.w.Header()
	for name, values := range callerHeaders(answer.Header) {
		h[name] = values
	}
	x.w.WriteHeader(answer.StatusCode)
}

// errCaller marks that writing to the caller failed.
var errCaller = errors.New("writing to the caller")

// copyBody forwards an answer's body, each piece at once.
func (x *exchange) copyBody(body io.Reader, forwarded func(int)) error {
	controller := http.NewResponseController(x.w)
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for {
		n, err := body.Read(*buf)
		if n > 0 {
			if _, err := x.w.Write((*buf)[:n]); err != nil {
				return errors.Join(errCaller, err)
			}
			_ = controller.Flush()
			forwarded(n)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
