package proxy

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	coder "github.com/coder/websocket"
	gorilla "github.com/gorilla/websocket"
)

// The makes of WebSocket that are tried against each other. Each echoes as a
// worker, and as a caller sends messages of many sizes, a ping and a close,
// compressed where the make can.
var makes = map[string]struct {
	worker func(*testing.T) string
	call   func(t *testing.T, url string)
}{
	"coder":   {coderWorker, coderCall},
	"gorilla": {gorillaWorker, gorillaCall},
	"python":  {pythonWorker, pythonCall},
}

var messageSizes = []int{0, 1, 125, 126, 65535, 65536, 300000}

func TestEveryMakeOfCallerTalksToEveryMakeOfWorker(t *testing.T) {
	for worker, w := range makes {
		url := w.worker(t)
		g := startGateway(t, strings.TrimPrefix(url, "http://"))
		for caller, c := range makes {
			t.Run(caller+" to "+worker, func(t *testing.T) {
				c.call(t, "ws://"+g.address+"/v1/leases/lease-1/duplex")
				if s := g.summary(t); s.Ending.Close != 0 || s.MessagesToWorker != s.MessagesToCaller || s.MessagesToWorker < int64(len(messageSizes)) {
					t.Errorf("recorded %+v, %d messages there, %d back", s.Ending, s.MessagesToWorker, s.MessagesToCaller)
				}
			})
		}
	}
}

func coderWorker(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := coder.Accept(w, r, &coder.AcceptOptions{CompressionMode: coder.CompressionContextTakeover, CompressionThreshold: 1})
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.CloseNow()
		conn.SetReadLimit(-1)
		for {
			kind, message, err := conn.Read(r.Context())
			if err != nil || conn.Write(r.Context(), kind, message) != nil {
				return
			}
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func coderCall(t *testing.T, url string) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, _, err := coder.Dial(ctx, url, &coder.DialOptions{CompressionMode: coder.CompressionContextTakeover, CompressionThreshold: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	conn.SetReadLimit(-1)
	for _, size := range messageSizes {
		if err := conn.Write(ctx, coder.MessageBinary, letters(size)); err != nil {
			t.Fatal(err)
		}
		if _, back, err := conn.Read(ctx); err != nil || !bytes.Equal(back, letters(size)) {
			t.Fatalf("%d of %d bytes came back, %v", len(back), size, err)
		}
	}
	read := conn.CloseRead(ctx)
	if err := conn.Ping(read); err != nil {
		t.Errorf("ping: %v", err)
	}
	if err := conn.Close(coder.StatusNormalClosure, "done"); err != nil {
		t.Errorf("close: %v", err)
	}
}

func gorillaWorker(t *testing.T) string {
	upgrader := gorilla.Upgrader{EnableCompression: true}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		for {
			kind, message, err := conn.ReadMessage()
			if err != nil || conn.WriteMessage(kind, message) != nil {
				return
			}
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func gorillaCall(t *testing.T, url string) {
	dialer := gorilla.Dialer{EnableCompression: true, HandshakeTimeout: 20 * time.Second}
	conn, _, err := dialer.Dial(url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	ponged := false
	conn.SetPongHandler(func(word string) error { ponged = word == "are you there"; return nil })
	if err := conn.WriteControl(gorilla.PingMessage, []byte("are you there"), time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	for _, size := range messageSizes {
		if err := conn.WriteMessage(gorilla.TextMessage, letters(size)); err != nil {
			t.Fatal(err)
		}
		if _, back, err := conn.ReadMessage(); err != nil || !bytes.Equal(back, letters(size)) {
			t.Fatalf("%d of %d bytes came back, %v", len(back), size, err)
		}
	}
	if !ponged {
		t.Error("no pong came back")
	}
	_ = conn.WriteControl(gorilla.CloseMessage, gorilla.FormatCloseMessage(1000, "done"), time.Now().Add(time.Second))
	if _, _, err := conn.ReadMessage(); !gorilla.IsCloseError(err, 1000) {
		t.Errorf("closed with %v", err)
	}
}

const python = "/usr/bin/python3"

const pythonServes = `
import asyncio, sys, websockets
async def echo(ws, *path):
    async for message in ws:
        await ws.send(message)
async def main():
    async with websockets.serve(echo, "127.0.0.1", 0, max_size=None) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
asyncio.run(main())
`

const pythonCalls = `
import asyncio, sys, websockets
async def main():
    async with websockets.connect(sys.argv[1], max_size=None) as ws:
        for size in map(int, sys.argv[2].split(",")):
            for message in ["s" * size, b"s" * size]:
                await ws.send(message)
                assert await ws.recv() == message
        await ws.send(["one ", "two ", "three"])
        assert await ws.recv() == "one two three"
        await asyncio.wait_for(await ws.ping(), 10)
    print(ws.close_code)
asyncio.run(main())
`

func pythonWorker(t *testing.T) string {
	cmd := exec.Command(python, "-c", pythonServes)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	var port int
	if _, err := fmt.Fscan(stdout, &port); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("http://127.0.0.1:%d", port)
}

func pythonCall(t *testing.T, url string) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	sizes := strings.Trim(strings.ReplaceAll(fmt.Sprint(messageSizes), " ", ","), "[]")
	out, err := exec.CommandContext(ctx, python, "-c", pythonCalls, url, sizes).CombinedOutput()
	if err != nil || string(out) != "1000\n" {
		t.Errorf("%v %s", err, out)
	}
}
