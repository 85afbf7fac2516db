package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// echoServer is a WebSocket server that knows nothing of the gateway.
func echoServer(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		for {
			kind, text, err := c.Read(r.Context())
			if err != nil || c.Write(r.Context(), kind, text) != nil {
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	return "ws" + strings.TrimPrefix(server.URL, "http")
}

// served runs "gateway serve" as a process until the test ends, and returns
// the data plane's address when the gateway is ready.
func served(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	cmd := gatewayCommand(ctx, append([]string{"serve"}, args...)...)
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(log)
	var at struct{ Msg, Address, Probes string }
	for at.Msg != "serving" {
		if !lines.Scan() || json.Unmarshal(lines.Bytes(), &at) != nil {
			t.Fatalf("serve did not start: %q", lines.Text())
		}
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, log)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-drained
		if err := cmd.Wait(); err != nil {
			t.Errorf("serve ended with %v", err)
		}
	})
	for ready := false; !ready; {
		r, err := http.Get("http://" + at.Probes + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		ready = r.StatusCode == http.StatusOK
		if ctx.Err() != nil {
			t.Fatal("the gateway never was ready")
		}
	}
	return at.Address
}

func TestWhatInitWroteServesAnUnmodifiedServerUntilTheLeaseIsRevoked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gateway")
	token := regexp.MustCompile(`sluice_[A-Za-z0-9_-]{43}`).FindString(runOK(t, "init", "--worker", echoServer(t), dir))
	config := filepath.Join(dir, "gateway.yaml")
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	address := served(ctx, t, "-c", config, "--set", "listen.address=127.0.0.1:0", "--set", "probes.address=127.0.0.1:0",
		"--set", "admin.address=127.0.0.1:0", "--set", "channels.drain_delay=0s", "--set", "channels.drain_timeout=2s")

	c, _, err := websocket.Dial(ctx, "ws://"+address+"/v1/leases/lease-1/duplex",
		&websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	if err := c.Write(ctx, websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, text, err := c.Read(ctx); err != nil || string(text) != "hello" {
		t.Fatalf("the echo is %q, %v", text, err)
	}

	lease := runOK(t, "records", "get", "-c", config, "lease", "lease-1")
	revoked := strings.NewReplacer(`"active"`, `"revoked"`, `"revision": 1`, `"revision": 2`).Replace(lease)
	if got := runWith(t, revoked, "records", "put", "-c", config, "lease", "lease-1"); got.code != exitFine {
		t.Fatalf("put: %+v", got)
	}
	if _, _, err := c.Read(ctx); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
		t.Errorf("the channel ended with %v", err)
	}
}
