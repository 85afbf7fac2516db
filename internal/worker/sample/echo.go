package sample

import (
	"context"
	"io"
	"net/http"

	"github.com/coder/websocket"
)

// Subprotocol is the WebSocket subprotocol that the worker selects when it is
// offered.
const Subprotocol = "echo.v1"

// serveEcho answers a WebSocket handshake and echoes every message, of any
// size, as it comes. A real worker would join the socket to a process of the
// lease's sandbox here.
func (w *Worker) serveEcho(rw http.ResponseWriter, r *http.Request) {
	if w.misbehave(rw, r) {
		return
	}
	conn, err := websocket.Accept(rw, r, &websocket.AcceptOptions{
		Subprotocols: []string{Subprotocol},
		// The gateway has judged the Origin by its allowed_origins.
		InsecureSkipVerify: true,
	})
	if err != nil {
		return // Accept has answered
	}
	defer conn.CloseNow()
	w.count(func(c *Counts) { c.Upgrades++ })
	conn.SetReadLimit(-1)
	for {
		if err := echoMessage(r.Context(), conn); err != nil {
			return
		}
	}
}

func echoMessage(ctx context.Context, conn *websocket.Conn) error {
	kind, message, err := conn.Reader(ctx)
	if err != nil {
		return err
	}
	back, err := conn.Writer(ctx, kind)
	if err != nil {
		return err
	}
	if _, err := io.Copy(back, message); err != nil {
		return err
	}
	return back.Close()
}
