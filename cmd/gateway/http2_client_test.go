package main

import (
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// http2Caller is a connection of HTTP/2 whose every frame is the test's own. It
// takes whatever comes, and never waits for leave to send: what it says is
// little.
type http2Caller struct {
	t    testing.TB
	conn net.Conn

	mu      sync.Mutex // of what is written, and below
	framer  *http2.Framer
	head    bytes.Buffer
	encoder *hpack.Encoder
	next    uint32
	streams map[uint32]*http2Stream
	err     error // the connection is over

	connects chan bool          // whether extended CONNECT is offered
	goAways  chan http2.ErrCode // what was said of each
	ended    chan struct{}      // the connection has
}

// http2Stream is one stream: what is read is its data, what is written becomes
// data.
type http2Stream struct {
	caller *http2Caller
	id     uint32
	answer chan []hpack.HeaderField // its head
	*growing
	trailers []hpack.HeaderField // once the data is at its end
}

func callHTTP2(t testing.TB, address string) *http2Caller {
	t.Helper()
	conn, err := net.DialTimeout("tcp", address, bound)
	if err != nil {
		t.Fatal(err)
	}
	c := &http2Caller{
		t: t, conn: conn, framer: http2.NewFramer(conn, conn), next: 1, streams: map[uint32]*http2Stream{},
		connects: make(chan bool, 1), goAways: make(chan http2.ErrCode, 16), ended: make(chan struct{}),
	}
	c.encoder = hpack.NewEncoder(&c.head)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.mu.Lock()
	_, err = io.WriteString(conn, http2.ClientPreface)
	if err = errors.Join(err, c.framer.WriteSettings()); err != nil {
		t.Fatal(err)
	}
	c.mu.Unlock()
	go c.read()
	t.Cleanup(func() {
		_ = conn.Close()
		<-c.ended
	})
	return c
}

// read takes every frame until the connection ends. What a stream says is taken
// in whole before it is read: one that nobody reads must not hold the others up.
func (c *http2Caller) read() {
	defer close(c.ended)
	defer close(c.connects)
	defer close(c.goAways)
	for {
		frame, err := c.framer.ReadFrame()
		c.mu.Lock()
		if err != nil {
			c.err = err
			for _, s := range c.streams {
				s.end(err)
			}
			c.mu.Unlock()
			return
		}
		c.takeLocked(frame)
		c.mu.Unlock()
	}
}

func (c *http2Caller) takeLocked(frame http2.Frame) {
	s := c.streams[frame.Header().StreamID]
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if f.IsAck() {
			return
		}
		offered, _ := f.Value(http2.SettingEnableConnectProtocol)
		select {
		case c.connects <- offered == 1:
		default:
		}
		_ = c.framer.WriteSettingsAck()
	case *http2.PingFrame:
		if !f.IsAck() {
			_ = c.framer.WritePing(true, f.Data)
		}
	case *http2.GoAwayFrame:
		select {
		case c.goAways <- f.ErrCode:
		default:
		}
	case *http2.DataFrame:
		if n := f.Header().Length; n > 0 {
			_ = c.framer.WriteWindowUpdate(0, n)
			if s != nil && !f.StreamEnded() {
				_ = c.framer.WriteWindowUpdate(f.StreamID, n)
			}
		}
		if s != nil {
			s.add(f.Data())
			if f.StreamEnded() {
				s.end(io.EOF)
			}
		}
	case *http2.MetaHeadersFrame:
		if s == nil {
			return
		}
		select {
		case s.answer <- f.Fields:
			if f.StreamEnded() { // a head that is trailers too
				s.trailers = f.Fields
			}
		default:
			s.trailers = f.Fields
		}
		if f.StreamEnded() {
			s.end(io.EOF)
		}
	case *http2.RSTStreamFrame:
		if s != nil {
			s.end(http2.StreamError{StreamID: s.id, Code: f.ErrCode})
		}
	}
}

// request begins a stream whose sending side stays open.
func (c *http2Caller) request(pairs ...string) (*http2Stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	s := &http2Stream{caller: c, id: c.next, answer: make(chan []hpack.HeaderField, 1), growing: &growing{wake: make(chan struct{}, 1)}}
	c.streams[s.id] = s
	c.next += 2
	c.head.Reset()
	for i := 0; i < len(pairs); i += 2 {
		_ = c.encoder.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return s, c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: s.id, BlockFragment: c.head.Bytes(), EndHeaders: true})
}

// growing is a buffer whose reader waits for more.
type growing struct {
	mu   sync.Mutex
	text bytes.Buffer
	err  error
	wake chan struct{}
}

func (g *growing) add(p []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.text.Write(p)
	g.told()
}

func (g *growing) end(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = err
	}
	g.told()
}

func (g *growing) told() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

func (g *growing) Read(p []byte) (int, error) {
	for {
		g.mu.Lock()
		n, _ := g.text.Read(p)
		err := g.err
		g.mu.Unlock()
		if n > 0 || len(p) == 0 {
			return n, nil
		}
		if err != nil {
			g.told() // whoever else waits
			return 0, err
		}
		<-g.wake
	}
}

func (s *http2Stream) Write(p []byte) (int, error) {
	s.caller.mu.Lock()
	defer s.caller.mu.Unlock()
	if s.caller.err != nil {
		return 0, s.caller.err
	}
	return len(p), s.caller.framer.WriteData(s.id, false, p)
}

// Close resets the stream.
func (s *http2Stream) Close() error {
	s.end(net.ErrClosed)
	s.caller.mu.Lock()
	defer s.caller.mu.Unlock()
	if s.caller.err != nil {
		return nil
	}
	return s.caller.framer.WriteRSTStream(s.id, http2.ErrCodeCancel)
}

// head is the answer's head, or nil where none comes.
func (s *http2Stream) head() []hpack.HeaderField {
	select {
	case fields := <-s.answer:
		return fields
	case <-s.caller.ended:
	case <-time.After(bound):
	}
	return nil
}

// field is a header's or trailer's first value.
func field(all []hpack.HeaderField, name string) string {
	for _, f := range all {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// RoundTrip makes an extended CONNECT (RFC 8441) of a WebSocket client's
// handshake, and a 101 of its answer: so a client of HTTP/1.1 speaks over a
// stream of this connection.
func (c *http2Caller) RoundTrip(r *http.Request) (*http.Response, error) {
	pairs := []string{":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":authority", r.URL.Host, ":path", r.URL.RequestURI()}
	for name, values := range r.Header {
		switch name {
		case "Connection", "Upgrade", "Sec-Websocket-Key":
			continue
		}
		for _, v := range values {
			pairs = append(pairs, strings.ToLower(name), v)
		}
	}
	s, err := c.request(pairs...)
	if err != nil {
		return nil, err
	}
	fields := s.head()
	if fields == nil {
		return nil, errors.New("no answer over HTTP/2")
	}
	answer := &http.Response{ProtoMajor: 2, Proto: "HTTP/2.0", Header: http.Header{}, Request: r, Body: s}
	for _, f := range fields {
		if !f.IsPseudo() {
			answer.Header.Add(f.Name, f.Value)
		}
	}
	if answer.StatusCode, err = strconv.Atoi(field(fields, ":status")); err != nil || answer.StatusCode != http.StatusOK {
		return answer, err
	}
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	answer.StatusCode = http.StatusSwitchingProtocols
	answer.Header.Set("Connection", "Upgrade")
	answer.Header.Set("Upgrade", "websocket")
	answer.Header.Set("Sec-WebSocket-Accept", base64.StdEncoding.EncodeToString(sum[:]))
	return answer, nil
}

// streams is the one HTTP/2 connection over which all such WebSockets run: what
// ends one must leave the others alone.
func (l *life) streams() *http.Client {
	l.oneMore.Do(func() {
		l.http2 = callHTTP2(l.t, l.address)
		if !<-l.http2.connects {
			l.t.Error("extended CONNECT is not offered")
		}
	})
	return &http.Client{Transport: l.http2}
}
