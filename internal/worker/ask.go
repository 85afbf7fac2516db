package worker

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net"
	"net/http"
	"sluice/internal/authz"
	"time"

	"golang.org/x/time/rate"
)

// MaxDocument is the most that a live document may have, in bytes.
const MaxDocument = 256 << 10

const (
	maxHead = 64 << 10 // of an answer

	// A worker that writes its document more often than this is cut: each
	// change costs a decision for every channel.
	linesPerSecond, linesAtOnce = 100, 1000
)

var (
	errMalformed = errors.New("malformed live document")
	errNoStream  = errors.New("worker offers no stream of its live document")
)

// probe asks for the document once.
func (s *Links) probe(ctx context.Context, t Target) (*authz.Live, error) {
	a, err := s.request(ctx, t, "application/json")
	if err != nil {
		return nil, err
	}
	defer a.close()
	if a.response.StatusCode != http.StatusOK {
		return nil, a.wrongStatus()
	}
	raw, err := io.ReadAll(io.LimitReader(a.response.Body, MaxDocument+1))
	if err != nil {
		return nil, fmt.Errorf("read the live document: %w", kindOf(ctx, err))
	}
	return s.decode(raw, a)
}

// watch asks for the stream and hands each document on, until the stream
// ends; its error says why and is never nil.
func (s *Links) watch(ctx context.Context, t Target, each func(*authz.Live)) error {
	a, err := s.request(ctx, t, "application/x-ndjson")
	if err != nil {
		return err
	}
	defer a.close()
	offer := s.offerOf(a.response)
	switch status := a.response.StatusCode; {
	case status >= 400 && status < 500:
		return fmt.Errorf("%w: %w", errNoStream, a.wrongStatus())
	case status != http.StatusOK:
		return a.wrongStatus()
	case offer == offersOne:
		return errNoStream
	}
	told := 0
	lines := bufio.NewScanner(a.response.Body)
	lines.Buffer(make([]byte, 0, 4<<10), MaxDocument+2)
	lines.Split(wholeLines)
	flow := rate.NewLimiter(linesPerSecond, linesAtOnce)
	for a.deadline(s.o.Dialer.aStep()); lines.Scan(); a.deadline(time.Now().Add(s.o.Silence)) {
		if !flow.Allow() {
			return errors.New("worker writes its live document too often")
		}
		live, err := s.decode(lines.Bytes(), a)
		switch {
		case err == nil:
		case offer == offersUnsaid && told == 0: // one document on many lines
			return errNoStream
		default:
			return err
		}
		told++
		each(live)
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("%w: more than %d bytes", errMalformed, MaxDocument)
	case offer == offersUnsaid && told <= 1 && ctx.Err() == nil: // nothing came behind its one document
		return errNoStream
	case err != nil:
		return fmt.Errorf("read the live document: %w", kindOf(ctx, err))
	default:
		return errors.New("worker ended the stream of its live document")
	}
}

// offer is what a worker that was asked for a stream says it answers with.
type offer uint8

const (
	offersOne    offer = iota // document
	offersStream              // of them
	offersUnsaid              // by the worker: how the answer goes on will show
)

// offerOf reads that. With link: watch the operator has said it too, and only a
// worker that says it sends one document is taken at its word.
func (s *Links) offerOf(response *http.Response) offer {
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch {
	case kind == "application/json":
		return offersOne
	case s.o.Mode == Watch, kind == "application/x-ndjson":
		return offersStream
	case response.ContentLength >= 0:
		return offersOne
	}
	return offersUnsaid
}

func (s *Links) decode(raw []byte, a *answer) (*authz.Live, error) {
	if len(raw) > MaxDocument {
		return nil, fmt.Errorf("%w: more than %d bytes", errMalformed, MaxDocument)
	}
	live, err := s.o.Decode(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	live.Address = a.conn.RemoteAddr().String()
	return live, nil
}

// wholeLines splits at newlines. What is not ended by one is no line.
func wholeLines(data []byte, _ bool) (int, []byte, error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	return 0, nil, nil
}

// answer is a worker's answer whose body is still to be read. Every question
// has a connection of its own: what an old connection says may be the word of
// a process that nobody reaches any more.
type answer struct {
	conn     net.Conn
	response *http.Response
	forget   func() bool
}

func (a *answer) close() {
	a.forget()
	_ = a.conn.Close()
}

func (a *answer) deadline(t time.Time) { _ = a.conn.SetReadDeadline(t) }

// wrongStatus tells of any status but 200. A redirect is one of them: where
// it leads was never allowed by anybody.
func (a *answer) wrongStatus() error {
	return fmt.Errorf("worker answered with status %d", a.response.StatusCode)
}

// request asks the worker and returns its answer, whatever its status.
// Connecting, the TLS handshake, the head and the body are a step each; the
// deadline of the body's step is set. The end of ctx ends all of them.
func (s *Links) request(ctx context.Context, t Target, accept string) (*answer, error) {
	token, err := s.Token()
	if err != nil {
		return nil, err
	}
	conn, err := s.o.Dialer.dial(ctx, t, t.Address())
	if err != nil {
		return nil, err
	}
	a := &answer{conn: conn, forget: context.AfterFunc(ctx, func() { cut(conn) })}
	if err := a.exchange(s, t, accept, token); err != nil {
		a.close()
		return nil, fmt.Errorf("ask for the live document: %w", kindOf(ctx, err))
	}
	return a, nil
}

func (a *answer) exchange(s *Links, t Target, accept, token string) error {
	request, err := http.NewRequest(http.MethodGet, //nolint:noctx // the connection's deadline ends it
		"http://"+t.Authority()+s.o.ProbePath, nil)
	if err != nil {
		return err
	}
	request.Close = true
	request.Header.Set("Accept", accept)
	request.Header.Set("User-Agent", "sluice")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	_ = a.conn.SetDeadline(s.o.Dialer.aStep())
	if err := request.Write(a.conn); err != nil {
		return err
	}
	limit := &io.LimitedReader{R: a.conn, N: maxHead}
	reader := bufio.NewReader(limit)
	for range 5 { // answers of the 1xx class say nothing yet
		a.response, err = http.ReadResponse(reader, request) //nolint:bodyclose // the connection is closed with the answer
		if err != nil {
			return err
		}
		if a.response.StatusCode >= 200 || a.response.StatusCode == http.StatusSwitchingProtocols {
			break
		}
	}
	limit.N = math.MaxInt64 // who reads the body has a limit
	a.deadline(s.o.Dialer.aStep())
	return nil
}

// cut ends conn without waiting for anything to be written.
func cut(conn net.Conn) {
	if secured, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = secured.NetConn()
	}
	_ = conn.Close()
}
