package proxy

import (
	"io"
	"net"
	"sync"
	"testing"

	"golang.org/x/net/http2"
)

// h2Stream is the one stream of an HTTP/2 connection, an extended CONNECT, as a
// net.Conn. net/http's client lets nobody write the pseudo-header.
type h2Stream struct {
	net.Conn // nothing of it is used
	client   *h2Client

	mu     sync.Mutex // also of the framer's writes
	more   *sync.Cond
	credit [2]int64 // to write, on the connection and on the stream
	got    []byte
	err    error
}

func openHTTP2(t *testing.T, address string, deflate bool) *h2Stream {
	t.Helper()
	h := dialH2(t, address)
	headers := connectHeaders("/v1/leases/lease-1/duplex")
	if deflate {
		headers = append(headers, "sec-websocket-extensions", "permessage-deflate")
	}
	h.headers(1, false, headers...)
	if m := h.answer(1); m.PseudoValue("status") != "200" {
		t.Fatalf("answered %v", m.Fields)
	}
	s := &h2Stream{client: h, credit: [2]int64{65535, 65535}}
	if window, ok := h.settings[http2.SettingInitialWindowSize]; ok {
		s.credit[1] = int64(window)
	}
	s.credit[0] += h.credit
	s.more = sync.NewCond(&s.mu)
	go s.follow()
	return s
}

// follow reads frames until there are no more of the stream.
func (s *h2Stream) follow() {
	for s.err == nil {
		f, err := s.client.framer.ReadFrame()
		s.mu.Lock()
		switch f := f.(type) {
		case *http2.DataFrame:
			s.got = append(s.got, f.Data()...)
			if n := uint32(len(f.Data())); n > 0 {
				_ = s.client.framer.WriteWindowUpdate(0, n)
				_ = s.client.framer.WriteWindowUpdate(1, n)
			}
			if f.StreamEnded() {
				err = io.EOF
			}
		case *http2.MetaHeadersFrame: // trailers, if any
			if f.StreamEnded() {
				err = io.EOF
			}
		case *http2.WindowUpdateFrame:
			s.credit[min(f.StreamID, 1)] += int64(f.Increment)
		case *http2.RSTStreamFrame:
			err = http2.StreamError{StreamID: 1, Code: f.ErrCode}
		}
		s.err = err
		s.more.Broadcast()
		s.mu.Unlock()
	}
}

func (s *h2Stream) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.got) == 0 && s.err == nil {
		s.more.Wait()
	}
	if len(s.got) == 0 {
		return 0, s.err
	}
	n := copy(b, s.got)
	s.got = s.got[n:]
	return n, nil
}

func (s *h2Stream) Write(b []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n < len(b) && err == nil {
		for min(s.credit[0], s.credit[1]) <= 0 && s.err == nil {
			s.more.Wait()
		}
		if s.err != nil {
			return n, s.err
		}
		size := min(len(b)-n, 16<<10, int(s.credit[0]), int(s.credit[1]))
		err = s.client.framer.WriteData(1, false, b[n:n+size])
		s.credit[0] -= int64(size)
		s.credit[1] -= int64(size)
		n += size
	}
	return n, err
}

func (s *h2Stream) CloseWrite() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client.framer.WriteData(1, true, nil)
}
