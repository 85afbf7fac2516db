package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sluice/internal/snapshot/redistest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/goccy/go-yaml"
)

// manifest is what the tests look at of a Kubernetes object.
type manifest struct {
	Kind       string
	Data       map[string]string
	StringData map[string]string `yaml:"stringData"`
	Spec       struct {
		Template struct {
			Spec podSpec
		}
	}
}

type podSpec struct {
	Grace      int `yaml:"terminationGracePeriodSeconds"`
	Containers []container
	Volumes    []struct {
		Name      string
		ConfigMap *struct{ Name string } `yaml:"configMap"`
		Secret    *struct {
			Name string `yaml:"secretName"`
		}
	}
}

type container struct {
	Name  string
	Args  []string
	Ports []struct {
		Name string
		Port string `yaml:"containerPort"`
	}
	Liveness  probe `yaml:"livenessProbe"`
	Readiness probe `yaml:"readinessProbe"`
	Lifecycle struct {
		PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
	}
	Mounts []struct {
		Name string
		Path string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	Get struct{ Path, Port string } `yaml:"httpGet"`
}

// sidecar is deploy/sidecar/sidecar.yaml, laid out on this machine.
type sidecar struct {
	t       *testing.T
	text    string
	pod     podSpec
	gateway container
	worker  container
	ports   map[string]string
}

const sidecarToken = "token-of-the-sidecars-caller"

// newSidecar reads the file with paths, ports and secrets of this test's, and
// lays its volumes out.
func newSidecar(t *testing.T) *sidecar {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docRoot, "deploy/sidecar/sidecar.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	s := &sidecar{t: t, text: string(text), ports: map[string]string{}}
	for _, port := range []string{"8443", "8282", "8283", "9000", "6379"} {
		s.ports[port] = docFreePort(t, s.ports)
		s.text = regexp.MustCompile(`\b`+port+`\b`).ReplaceAllString(s.text, s.ports[port])
	}
	sum := sha256.Sum256([]byte(sidecarToken))
	s.text = strings.NewReplacer(
		"/etc/sluice", t.TempDir(), "redis:"+s.ports["6379"], "127.0.0.1:"+s.ports["6379"], "0.0.0.0", "127.0.0.1",
		strings.Repeat("0", 64), hex.EncodeToString(sum[:]),
	).Replace(s.text)

	files := map[string]map[string]string{"tls": certificateFiles(t)}
	for _, one := range strings.Split(s.text, "\n---\n") {
		var m manifest
		if err := yaml.Unmarshal([]byte(one), &m); err != nil {
			t.Fatal(err)
		}
		switch m.Kind {
		case "ConfigMap":
			files["config"] = m.Data
		case "Secret":
			files["secret"] = m.StringData
		case "Deployment":
			s.pod = m.Spec.Template.Spec
		}
	}
	for _, c := range s.pod.Containers {
		if c.Name == "gateway" {
			s.gateway = c
		} else {
			s.worker = c
		}
	}
	for _, mount := range s.gateway.Mounts {
		layOut(t, mount.Path, files[mount.Name])
	}
	return s
}

// layOut writes a volume as the kubelet does: links to a directory that is
// swapped as a whole.
func layOut(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	if len(files) == 0 {
		t.Fatalf("nothing is mounted at %s", dir)
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(dir, "..2026"), 0o700))
	must(os.Symlink("..2026", filepath.Join(dir, "..data")))
	for name, text := range files {
		must(os.WriteFile(filepath.Join(dir, "..2026", name), []byte(text), 0o600))
		must(os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)))
	}
}

func certificateFiles(t *testing.T) map[string]string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	cert, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"tls.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})),
		"tls.key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
	}
}

// start runs a container's program until the test ends.
func (s *sidecar) start(cmd *exec.Cmd) {
	s.t.Helper()
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.Discard, &log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if s.t.Failed() {
			s.t.Logf("%s:\n%s", cmd, &log)
		}
	})
}

func (s *sidecar) eventually(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("it never came about that %s", what)
		}
	}
}

// answers asks what a kubelet would.
func (s *sidecar) answers(p probe) int {
	port := p.Get.Port
	for _, named := range s.gateway.Ports {
		if named.Name == port {
			port = named.Port
		}
	}
	answer, err := http.Get("http://127.0.0.1:" + port + p.Get.Path)
	if err != nil {
		return 0
	}
	answer.Body.Close()
	return answer.StatusCode
}

// aclOfTheDocuments gives the gateway's user the rights that records.md names.
func aclOfTheDocuments(t *testing.T, server *redistest.Server, password string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docRoot, "docs/records.md"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^ACL SETUSER gateway .*$`).FindString(string(text))
	var args []any
	for _, word := range strings.Fields(strings.Replace(line, "PASSWORD", password, 1)) {
		args = append(args, word)
	}
	if err := server.Client.Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
}

func TestTheSidecarRunsAsItIsWritten(t *testing.T) {
	t.Parallel()
	s := newSidecar(t)
	server := redistest.Start(t, "--port", s.ports["6379"])
	aclOfTheDocuments(t, server, "REDIS_PASSWORD")
	for key, record := range map[string]string{
		"control":         `{"duplexEnabled": true, "revision": 1}`,
		"plugin:plugin-1": `{"id": "plugin-1", "status": "ready", "revision": 1, "environmentDrivers": [{"driverKey": "box", "kind": "sandbox_provider", "sandboxCapabilities": {"duplexCommandStream": true}}]}`,
		"worker:worker-1": `{"id": "worker-1", "pluginId": "plugin-1", "url": "http://127.0.0.1:` + s.ports["9000"] + `", "revision": 1}`,
		"lease:lease-1":   `{"id": "lease-1", "tenantId": "acme", "status": "active", "providerLeaseId": "x", "capabilities": {"duplexCommandStream": true}, "metadata": {"sandboxProviderPlugin": true}, "pin": {"driver": "sandbox", "pluginId": "plugin-1", "driverKey": "box", "workerId": "worker-1"}, "revision": 1}`,
	} {
		if err := server.Client.Set(t.Context(), "sluice:"+key, record, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	config := s.gateway.Args[len(s.gateway.Args)-1]
	if got := runWith(t, "", "check", "-c", config); got.code != exitFine || got.stderr != "" {
		t.Fatalf("gateway check: exit %d: %s", got.code, got.stderr)
	}

	s.start(exec.Command(filepath.Join(buildSamples(t), "worker"), s.worker.Args...))
	gateway := gatewayCommand(context.Background(), append(s.gateway.Args, "--set", "evaluation.timeout=2s")...)
	s.start(gateway)
	s.eventually("the gateway is ready", func() bool { return s.answers(s.gateway.Readiness) == 200 })
	if got := s.answers(s.gateway.Liveness); got != 200 {
		t.Errorf("the liveness probe is answered with %d", got)
	}

	conn := s.open()
	if err := gateway.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	told := time.Now()
	s.eventually("the gateway is not ready", func() bool { return s.answers(s.gateway.Readiness) == 503 })
	if e := closed(t, conn); e.Code != 1001 {
		t.Errorf("closed with %d %q", e.Code, e.Reason)
	}
	if err := gateway.Wait(); err != nil || time.Since(told) > time.Duration(s.pod.Grace)*time.Second {
		t.Errorf("the gateway ended after %v with %v", time.Since(told), err)
	}
}

// open opens a channel into lease-1 and echoes.
func (s *sidecar) open() *websocket.Conn {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	conn, answer, err := websocket.Dial(ctx, "wss://127.0.0.1:"+s.ports["8443"]+"/v1/leases/lease-1/duplex", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + sidecarToken}},
		HTTPClient: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}},
	})
	if err != nil {
		s.t.Fatalf("the channel did not open: %v %+v", err, answer)
	}
	s.t.Cleanup(func() { _ = conn.CloseNow() })
	if err := conn.Write(ctx, websocket.MessageText, []byte("hello")); err != nil {
		s.t.Fatal(err)
	}
	if _, got, err := conn.Read(ctx); err != nil || string(got) != "hello" {
		s.t.Fatalf("read %q, %v", got, err)
	}
	return conn
}

func TestWhatStopsAGatewayGivesItTheTimeToDrain(t *testing.T) {
	s := newSidecar(t)
	config, err := Load(s.gateway.Args[len(s.gateway.Args)-1], nil)
	if err != nil {
		t.Fatal(err)
	}
	drain, stays := config.Channels.DrainTimeout, time.Duration(s.worker.Lifecycle.PreStop.Sleep.Seconds)*time.Second
	if grace := time.Duration(s.pod.Grace) * time.Second; drain >= stays || stays >= grace {
		t.Errorf("the gateway drains for %v, the worker stays for %v, and the pod for %v", drain, stays, grace)
	}
	unit, err := os.ReadFile(filepath.Join(docRoot, "deploy/systemd/sluice.service"))
	if err != nil {
		t.Fatal(err)
	}
	stop := regexp.MustCompile(`(?m)^TimeoutStopSec=(\d+)$`).FindSubmatch(unit)
	if stop == nil {
		t.Fatal("the unit has no TimeoutStopSec")
	}
	if limit, _ := time.ParseDuration(string(stop[1]) + "s"); limit <= defaultConfig().Channels.DrainTimeout {
		t.Errorf("the unit stops after %v", limit)
	}
	for _, line := range regexp.MustCompile(`(?m)^ExecStart\w*=/usr/local/bin/gateway (\w+) -c (\S+)$`).FindAllStringSubmatch(string(unit), -1) {
		if line[1] != "check" && line[1] != "serve" {
			t.Errorf("the unit runs %q", line[0])
		}
	}
}
