package sample

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // RFC 6455 section 4.2.2 names it
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Faults are ways to misbehave. The zero Faults behaves.
type Faults struct {
	// Of the live document.

	LinkStatus int  // this status in place of the document
	NoStream   bool // JSON, also to those who ask for a stream

	// Of a WebSocket handshake.

	Delay       time.Duration // before any answer
	Silent      bool          // never an answer
	Refuse      int           // this status, with RefuseBody
	RefuseBody  string
	WrongAccept bool        // a Sec-WebSocket-Accept for another key
	Subprotocol string      // selected, offered or not
	Header      http.Header // added to the 101
	Early       []byte      // sent right behind the 101
}

// Misbehave replaces the faults, from the next request on.
func (w *Worker) Misbehave(f Faults) { w.faults.Store(&f) }

// misbehave answers a handshake by the faults, where they say how. It is
// false when the worker is to behave.
func (w *Worker) misbehave(rw http.ResponseWriter, r *http.Request) bool {
	f := w.faults.Load()
	if !pauses(r, f) {
		return true
	}
	switch {
	case f.Refuse != 0:
		rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
		rw.WriteHeader(f.Refuse)
		_, _ = io.WriteString(rw, f.RefuseBody)
	case f.WrongAccept || f.Subprotocol != "" || f.Header != nil || f.Early != nil:
		w.count(func(c *Counts) { c.Upgrades++ })
		rawUpgrade(rw, r, f)
	default:
		return false
	}
	return true
}

// pauses waits as the faults say, and is false when the caller has left.
func pauses(r *http.Request, f *Faults) bool {
	if f.Silent {
		<-r.Context().Done()
		return false
	}
	if f.Delay == 0 {
		return true
	}
	t := time.NewTimer(f.Delay)
	defer t.Stop()
	select {
	case <-r.Context().Done():
		return false
	case <-t.C:
		return true
	}
}

// rawUpgrade writes a 101 by hand and echoes bytes, not messages, after it:
// the frames that come back are the caller's own, still masked.
func rawUpgrade(rw http.ResponseWriter, r *http.Request, f *Faults) {
	conn, buffered, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	defer context.AfterFunc(r.Context(), func() { _ = conn.Close() })()
	if _, err := conn.Write(head101(r, f)); err != nil {
		return
	}
	_, _ = io.Copy(conn, buffered)
}

func head101(r *http.Request, f *Faults) []byte {
	key := r.Header.Get("Sec-WebSocket-Key")
	if f.WrongAccept {
		key = "another key"
	}
	header := f.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set("Upgrade", "websocket")
	header.Set("Connection", "Upgrade")
	header.Set("Sec-WebSocket-Accept", accept(key))
	if f.Subprotocol != "" {
		header.Set("Sec-WebSocket-Protocol", f.Subprotocol)
	}
	var head bytes.Buffer
	fmt.Fprint(&head, "HTTP/1.1 101 Switching Protocols\r\n")
	_ = header.Write(&head)
	fmt.Fprint(&head, "\r\n")
	head.Write(f.Early)
	return head.Bytes()
}

// accept is the answer to a handshake's key, RFC 6455 section 4.2.2.
func accept(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // as above
	return base64.StdEncoding.EncodeToString(sum[:])
}
