package proxy

import (
	"crypto/rand"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	_ "sluice/internal/xconnect" // offers extended CONNECT
)

// extendedConnect returns the protocol of an extended CONNECT (RFC 8441), ""
// for any other request, and takes its pseudo-header out of the headers.
func extendedConnect(r *http.Request) string {
	protocol := r.Header[":protocol"]
	delete(r.Header, ":protocol")
	if r.Method != http.MethodConnect || len(protocol) != 1 {
		return ""
	}
	return protocol[0]
}

// connectHandshake is the handshake of a WebSocket over HTTP/2: the worker is
// asked over HTTP/1.1, with a key of the gateway's own.
func connectHandshake(r *http.Request) (handshake, error) {
	if v := r.Header["Sec-Websocket-Version"]; len(v) != 1 || v[0] != websocketVersion {
		return handshake{}, badHandshake("the WebSocket version must be 13")
	}
	for _, name := range []string{"Sec-Websocket-Key", "Sec-Websocket-Accept", "Upgrade", "Connection"} {
		if len(r.Header[name]) > 0 {
			return handshake{}, badHandshake("a WebSocket over HTTP/2 has no such header: " + name)
		}
	}
	var key [16]byte
	_, _ = rand.Read(key[:])
	h := handshake{Kind: websocketUpgrade, Token: "websocket", Key: base64.StdEncoding.EncodeToString(key[:])}
	return h, h.readOffers(r.Header)
}

// streamConn is an HTTP/2 stream as the caller's end of a pipe. Its handler
// must stay until the pipe is through with it.
type streamConn struct {
	body       io.ReadCloser
	w          http.ResponseWriter
	controller *http.ResponseController
	local      net.Addr

	mu   sync.Mutex // a deadline must not be set on a stream whose handler has returned
	over bool
}

func newStreamConn(w http.ResponseWriter, r *http.Request) *streamConn {
	return &streamConn{body: r.Body, w: w, controller: http.NewResponseController(w)}
}

func (c *streamConn) Read(p []byte) (int, error) { return c.body.Read(p) }

func (c *streamConn) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	if err == nil {
		err = c.controller.Flush()
	}
	return n, err
}

// Close makes the stream untouchable; it ends with its handler.
func (c *streamConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	return nil
}

func (c *streamConn) SetReadDeadline(t time.Time) error {
	return c.deadline(func() error { return c.controller.SetReadDeadline(t) })
}

func (c *streamConn) SetWriteDeadline(t time.Time) error {
	return c.deadline(func() error { return c.controller.SetWriteDeadline(t) })
}

func (c *streamConn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

func (c *streamConn) deadline(set func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return net.ErrClosed
	}
	return set()
}

func (c *streamConn) LocalAddr() net.Addr  { return c.local }
func (c *streamConn) RemoteAddr() net.Addr { return c.local }
