package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sluice/internal/authz"
	"sluice/internal/worker/sample"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

type demoCommand struct {
	Check bool `help:"Exit when the steps are through: 0 when each did what it should, else 1."`
}

// Run plays the main job on this machine: a gateway, two sample workers,
// records in a directory of their own, three callers.
func (c *demoCommand) Run(a *app) error {
	ctx, cut, release := untilTold(a.ctx)
	defer release()
	d, err := startDemo(ctx, a.stdout)
	if err != nil {
		return fmt.Errorf("start the demo: %w", err)
	}
	defer d.stop()
	d.play()
	if d.failed > 0 {
		fmt.Fprintf(a.stdout, "\n%d of the steps did not do what they should.\n", d.failed)
		return errNo
	}
	if c.Check {
		fmt.Fprintln(a.stdout, "\nEvery step did what it should.")
		return nil
	}
	d.invite()
	select {
	case <-ctx.Done():
	case <-cut.Done():
	}
	return nil
}

// demo is the running scene.
type demo struct {
	out     io.Writer
	dir     string
	gateway *gateway
	acme    *sample.Worker
	log     *lastDecision
	failed  int
	stop    func()
}

// The callers of the demo: name, tenant, token.
var demoCallers = map[string]struct {
	tenant, token string
	expired       bool
}{
	"alice": {tenant: "acme", token: "demo-token-of-alice"},
	"bob":   {tenant: "globex", token: "demo-token-of-bob"},
	"carol": {tenant: "acme", token: "demo-token-of-carol-which-has-expired", expired: true},
}

func startDemo(ctx context.Context, out io.Writer) (*demo, error) {
	dir, err := os.MkdirTemp("", "sluice-demo-")
	if err != nil {
		return nil, err
	}
	d := &demo{out: out, dir: dir, log: &lastDecision{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	d.stop = func() {
		cancel()
		running.Wait()
		_ = os.RemoveAll(dir)
	}
	ready, err := d.build(ctx, &running)
	if err == nil {
		err = ready(ctx)
	}
	if err != nil {
		d.stop()
		return nil, err
	}
	return d, nil
}

// build starts the workers, writes records and configuration, and starts the
// gateway.
func (d *demo) build(ctx context.Context, running *sync.WaitGroup) (ready func(context.Context) error, err error) {
	workers := map[string]string{}
	for tenant, plugin := range map[string]string{"acme": "plugin-acme", "globex": "plugin-globex"} {
		w := sample.New(sample.Document{
			ID: "worker-" + tenant, PluginID: plugin, Status: "running", Generation: "1", SupportedMethods: sample.AllMethods,
		})
		server, err := sample.Listen("127.0.0.1:0", w)
		if err != nil {
			return nil, err
		}
		running.Go(func() { _ = server.Run(ctx) })
		workers[tenant] = server.URL()
		if tenant == "acme" {
			d.acme = w
		}
	}
	if err := d.write(workers); err != nil {
		return nil, err
	}
	cfg, err := Load(filepath.Join(d.dir, "gateway.yaml"), nil)
	if err != nil {
		return nil, err
	}
	d.gateway, err = newGateway(ctx, cfg, d.log, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	d.gateway.load = func() (*Config, error) { return cfg, nil }
	cut, cutNow := context.WithCancel(context.Background())
	cutNow() // a demo has nobody to drain for
	running.Go(func() { _ = d.gateway.run(ctx, cut) })
	return d.untilReady, nil
}

func (d *demo) untilReady(ctx context.Context) error {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); wait(ctx, 10*time.Millisecond) {
		if d.gateway.policy.Ready() == nil && d.gateway.facts.Ready() == nil {
			return nil
		}
	}
	return errors.New("the gateway did not become ready")
}

// write writes what an operator and a control plane would: configuration,
// tokens and records.
func (d *demo) write(workers map[string]string) error {
	tokens := ""
	for name, c := range demoCallers {
		sum := sha256.Sum256([]byte(c.token))
		tokens += fmt.Sprintf("- {name: %s, tenantId: %s, sha256: %s", name, c.tenant, hex.EncodeToString(sum[:]))
		if c.expired {
			tokens += `, expiresAt: "2026-01-01T00:00:00Z"`
		}
		tokens += "}\n"
	}
	files := map[string]string{
		"gateway.yaml": "listen: {address: \"127.0.0.1:0\"}\nprobes: {address: \"127.0.0.1:0\"}\nadmin: {address: \"127.0.0.1:0\"}\n" +
			"store: {file: {dir: records}}\nidentity: {tokens_file: tokens.yaml}\n",
		"tokens.yaml":          tokens,
		"records/control.json": `{"duplexEnabled": true, "suspendedTenants": [], "revision": 1}`,
	}
	for tenant, url := range workers {
		files["records/workers/worker-"+tenant+".json"] = fmt.Sprintf(`{"id": "worker-%s", "pluginId": "plugin-%s", "url": %q, "revision": 1}`, tenant, tenant, url)
		files["records/plugins/plugin-"+tenant+".json"] = fmt.Sprintf(
			`{"id": "plugin-%s", "status": "ready", "revision": 1, "environmentDrivers": [{"driverKey": "box", "kind": "sandbox_provider", "sandboxCapabilities": {"duplexCommandStream": true}}]}`, tenant)
	}
	for id, change := range map[string]func(map[string]any){
		"lease-granted":     func(map[string]any) {},
		"lease-revoked":     func(map[string]any) {},
		"lease-no-opt-in":   func(l map[string]any) { delete(l, "capabilities") },
		"lease-not-plugins": func(l map[string]any) { l["metadata"] = map[string]any{} },
	} {
		text, err := json.MarshalIndent(demoLease(id, change), "", "  ")
		if err != nil {
			return err
		}
		files["records/leases/"+id+".json"] = string(text)
	}
	for name, text := range files {
		if err := d.writeFile(name, text); err != nil {
			return err
		}
	}
	return nil
}

func demoLease(id string, change func(map[string]any)) map[string]any {
	lease := map[string]any{
		"id": id, "tenantId": "acme", "status": "active", "provider": "box", "providerLeaseId": "sandbox-" + id, "configResolution": "ok",
		"pin":          map[string]any{"driver": "sandbox", "pluginId": "plugin-acme", "driverKey": "box", "workerId": "worker-acme"},
		"capabilities": map[string]any{"duplexCommandStream": true},
		"metadata":     map[string]any{"sandboxProviderPlugin": true},
		"revision":     1,
	}
	change(lease)
	return lease
}

// writeFile replaces a file by rename, as every writer of records should.
func (d *demo) writeFile(name, text string) error {
	path := filepath.Join(d.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", []byte(text+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// lastDecision is the decision log of the demo: it keeps what an operator
// would read there.
type lastDecision struct {
	mu      sync.Mutex
	reasons map[string]authz.Reason // by decision id
}

func (l *lastDecision) Write(lines []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(string(lines)) {
		var event struct {
			ID     string `json:"decision_id"`
			Result struct {
				Reason authz.Reason `json:"reason"`
			} `json:"result"`
		}
		if json.Unmarshal([]byte(line), &event) == nil {
			if l.reasons == nil {
				l.reasons = map[string]authz.Reason{}
			}
			l.reasons[event.ID] = event.Result.Reason
		}
	}
	return len(lines), nil
}

// reason waits until the decision is written: the log is off the request's
// path.
func (l *lastDecision) reason(id string) authz.Reason {
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		l.mu.Lock()
		reason, ok := l.reasons[id]
		l.mu.Unlock()
		if ok {
			return reason
		}
	}
	return ""
}

// connect opens a channel as a caller would.
func (d *demo) connect(ctx context.Context, caller, lease string) (*websocket.Conn, *http.Response, error) {
	return websocket.Dial(ctx, d.url(lease), &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + demoCallers[caller].token}},
	})
}

func (d *demo) url(lease string) string {
	return "ws://" + d.gateway.data.Addr().String() + "/v1/leases/" + lease + "/duplex"
}
