package proxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sluice/internal/authz"
	"sluice/internal/channel"
	"strconv"
	"sync"
	"time"
)

// duplex dials the worker, has its answer to the upgrade checked and admitted,
// and connects the two ends. It reports whether the channel opened.
func (x *exchange) duplex(ctx context.Context, ch *channel.Channel, d authz.Decision) bool {
	worker, err := x.dial(ctx, d)
	if err != nil {
		x.refuse(x.workerRefusal(ch, err))
		return false
	}
	opened := false
	defer func() {
		if !opened {
			_ = worker.Close()
		}
	}()

	br := answerReaders.Get().(*bufio.Reader)
	br.Reset(worker)
	defer func() {
		br.Reset(nil)
		answerReaders.Put(br)
	}()
	answer, err := x.ask(ctx, worker, br, d)
	if err != nil {
		x.refuse(x.workerRefusal(ch, err))
		return false
	}
	if refused := x.checkGeneration(answer.Header, d); refused != nil {
		x.refuse(*refused)
		return false
	}
	switched := answer.Status == http.StatusSwitchingProtocols
	if switched {
		if err := checkSwitch(&x.handshake, answer); err != nil {
			x.proxy.log.Warn("worker broke the upgrade", "worker", ch.WorkerID(), "error", err)
			x.refuse(badGateway())
			return false
		}
	}
	admitted := x.admit(ctx, ch, d)
	if !admitted.Allow {
		x.refuse(x.deniedOrEnded(ch, admitted))
		return false
	}
	if !switched {
		x.passRefusal(ctx, ch, answer, worker, br)
		return false
	}
	pipe := x.newPipe(ch, answer)
	if !ch.Commit(admitted, pipe.cut, pipe.lost) {
		x.refuse(ended(ch.Ending()))
		return false
	}
	opened = true
	if x.connect != "" {
		x.connectStream(pipe, worker, answer, held(br))
		return true
	}
	opened = x.connectSocket(ch, pipe, worker, answer, held(br))
	return opened
}

// ask sends the upgrade to the worker and reads the head of its answer,
// inside the handshake time-out and as long as ctx lives.
func (x *exchange) ask(ctx context.Context, worker net.Conn, br *bufio.Reader, d authz.Decision) (*workerHead, error) {
	headers, err := x.headers(d)
	if err != nil {
		return nil, err
	}
	if err := worker.SetDeadline(time.Now().Add(x.settings.HandshakeTimeout)); err != nil {
		return nil, err
	}
	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(cut)
		_ = worker.SetDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !stop() {
			<-cut // or its deadline would outlive the handshake
		}
	}()
	method := x.r.Method
	if x.connect != "" {
		method = http.MethodGet
	}
	if _, err := worker.Write(requestHead(method, x.r.RequestURI, x.host(), headers)); err != nil {
		return nil, err
	}
	return readResponseHead(br)
}

// answerReaders are for the heads of workers' answers. They are given back
// before the channel lives: an idle channel holds no buffer.
var answerReaders = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 4<<10) }}

// host is the Host that the worker gets: the caller's.
func (x *exchange) host() string { return x.r.Host }

// deniedOrEnded prefers the denial that already ended the channel, so that
// one refusal has one decision id.
func (x *exchange) deniedOrEnded(ch *channel.Channel, d authz.Decision) refusal {
	if e := ch.Ending(); e != nil {
		return ended(e)
	}
	return denied(d)
}

// passRefusal passes a worker's own answer on; the connection never becomes a
// tunnel, and ends with the right that it was asked under.
func (x *exchange) passRefusal(ctx context.Context, ch *channel.Channel, answer *workerHead, worker net.Conn, br *bufio.Reader) {
	if e := ch.Ending(); e != nil {
		x.refuse(ended(e))
		return
	}
	defer x.cutWith(ctx, worker)()
	h := x.w.Header()
	for name, values := range callerHeaders(answer.Header) {
		h[name] = values
	}
	if answer.Status < 200 || answer.Chunked {
		delete(h, "Content-Length")
	}
	if answer.ContentLength >= 0 {
		h.Set("Content-Length", strconv.FormatInt(answer.ContentLength, 10))
	}
	if x.r.ProtoMajor == 1 {
		h.Set("Connection", "close")
	}
	if len(h["Content-Type"]) == 0 {
		h["Content-Type"] = nil // or net/http would guess one
	}
	x.w.WriteHeader(answer.Status)
	if x.r.Method != http.MethodHead {
		if _, err := io.Copy(x.w, answer.body(br)); err != nil {
			panic(http.ErrAbortHandler) // the caller must see that it is cut short
		}
	}
}

// cutWith lets what is passed from worker to caller go on no longer than ctx,
// nor than a worker has for its answer, whatever the two do. What it returns
// ends that, and waits for a cut that is under way.
func (x *exchange) cutWith(ctx context.Context, worker net.Conn) (stop func()) {
	controller := http.NewResponseController(x.w)
	_ = controller.SetWriteDeadline(time.Now().Add(x.settings.HandshakeTimeout))
	cut := make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(cut)
		past := time.Unix(1, 0)
		_ = worker.SetReadDeadline(past)
		_ = controller.SetWriteDeadline(past)
	})
	return func() {
		if !unwatch() {
			<-cut
		}
	}
}

func (x *exchange) newPipe(ch *channel.Channel, answer *workerHead) *pipe {
	p := &pipe{channel: ch, grace: x.settings.CloseGrace, unanswered: x.proxy.unanswered, restAfter: x.proxy.restAfter}
	if x.handshake.Kind == websocketUpgrade {
		p.frames = &frameRules{
			Extensions: len(answer.Header["Sec-Websocket-Extensions"]) > 0,
			MaxMessage: ch.Limits.MaxMessageBytes,
		}
	}
	return p
}

// connectStream answers an extended CONNECT and stays until the channel is
// done with, for the stream lives as long as its handler.
func (x *exchange) connectStream(p *pipe, worker net.Conn, answer *workerHead, fromWorker []byte) {
	h := x.w.Header()
	for name, values := range switchingHeaders(x.handshake, answer.Header) {
		switch name {
		case "Connection", "Upgrade", "Sec-Websocket-Accept":
		default:
			h[name] = values
		}
	}
	x.w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(x.w).Flush()
	_ = worker.SetDeadline(time.Time{})
	x.proxy.opened(time.Since(x.started))
	caller := newStreamConn(x.w, x.r)
	done := make(chan struct{})
	p.over = func() { close(done) }
	p.start(caller, nil, worker, fromWorker)
	<-done
}

// connectSocket takes the caller's connection from the HTTP server, gives it the
// checked 101 and starts the pumps. They run on goroutines of their own with
// small stacks; this one, grown by the decision, goes home.
func (x *exchange) connectSocket(ch *channel.Channel, p *pipe, worker net.Conn, answer *workerHead, fromWorker []byte) bool {
	caller, buffered, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		x.proxy.log.Error("taking over the caller's connection", "error", err)
		ch.End(channel.EndCallerLost)
		return false
	}
	caller, fromCaller := takeConn(caller, buffered.Reader)
	_ = caller.SetDeadline(time.Now().Add(x.settings.HandshakeTimeout))
	head := append(appendHeaders([]byte("HTTP/1.1 101 Switching Protocols\r\n"), switchingHeaders(x.handshake, answer.Header)), "\r\n"...)
	if _, err := caller.Write(head); err != nil {
		_ = caller.Close()
		ch.End(channel.EndCallerLost)
		return false
	}
	_ = caller.SetDeadline(time.Time{})
	_ = worker.SetDeadline(time.Time{})
	x.proxy.opened(time.Since(x.started))
	p.start(caller, fromCaller, worker, fromWorker)
	return true
}

// held returns what br has read ahead.
func held(br *bufio.Reader) []byte {
	n := br.Buffered()
	if n == 0 {
		return nil
	}
	b := make([]byte, n)
	_, _ = io.ReadFull(br, b)
	return b
}
