package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// The versions of the suites that are run through the gateway.
const (
	interopClient = "google.golang.org/grpc/interop/client@v1.85.0"
	interopServer = "google.golang.org/grpc/interop/server@v1.85.0"
	h2specTool    = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible"
)

// installed builds programs of other modules and returns where they are.
func installed(t *testing.T, packages ...string) string {
	t.Helper()
	bin := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	for _, name := range packages {
		cmd := exec.CommandContext(ctx, "go", "install", name)
		cmd.Dir = bin // outside of this module: theirs decides on versions
		cmd.Env = append(os.Environ(), "GOBIN="+bin, "GOFLAGS=-mod=mod", "GOWORK=off", "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go install %s: %v\n%s", name, err, out)
		}
	}
	return bin
}

// run runs a program until the test ends and waits until its port answers.
func runServer(t *testing.T, port, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not listen: %v", program, err)
		}
	}
}

// interopBalancer has the client's own balancer read the load reports, as the
// suite's own script does for its orca cases.
const interopBalancer = `{"loadBalancingConfig": [{"test_backend_metrics_load_balancer": {}}]}`

// interopCases are the cases of the official client that say something about
// what is between it and its server, with how often each is run: what a proxy
// may break by chance (an answer that is nothing but trailers) more often.
//
// Not run: compute_engine_creds, service_account_creds, jwt_token_creds,
// per_rpc_creds, oauth2_auth_token, google_default_credentials and
// compute_engine_channel_credentials, which need an account of Google's, and
// bring a bearer token of their own where the gateway's stands; orca_oob, whose
// second call is made by the client's balancer, which sends none of the
// metadata that names lease and caller; pick_first_unary, which fails without
// a gateway too, for this server does not name itself.
var interopCases = []struct {
	name  string
	times int
}{
	{"empty_unary", 3},
	{"large_unary", 3},
	{"client_streaming", 3},
	{"server_streaming", 3},
	{"ping_pong", 3},
	{"empty_stream", 3},
	{"timeout_on_sleeping_server", 3},
	{"cancel_after_begin", 3},
	{"cancel_after_first_response", 3},
	{"status_code_and_message", 10},
	{"special_status_message", 25},
	{"custom_metadata", 3},
	{"unimplemented_method", 25},
	{"unimplemented_service", 25},
	{"rpc_soak", 1},
	{"channel_soak", 1},
	{"orca_per_rpc", 1},
}

// interopRoutes are one route for each method: a call that takes one message
// and gives one is a request, one that gives many a stream, the rest duplex.
const interopRoutes = `routes:
  - {path: /grpc.testing.TestService/EmptyCall, capability: independentControlCommands, kind: request, lease_header: x-lease}
  - {path: /grpc.testing.TestService/UnaryCall, capability: independentControlCommands, kind: request, lease_header: x-lease}
  - {path: /grpc.testing.TestService/UnimplementedCall, capability: independentControlCommands, kind: request, lease_header: x-lease}
  - {path: /grpc.testing.UnimplementedService/UnimplementedCall, capability: independentControlCommands, kind: request, lease_header: x-lease}
  - {path: /grpc.testing.TestService/StreamingOutputCall, capability: incrementalSessionOutput, kind: stream, lease_header: x-lease}
  - {path: /grpc.testing.TestService/StreamingInputCall, capability: duplexCommandStream, kind: duplex, lease_header: x-lease}
  - {path: /grpc.testing.TestService/FullDuplexCall, capability: duplexCommandStream, kind: duplex, lease_header: x-lease}`

func TestTheOfficialInteropSuiteOfGRPCPassesThroughTheGateway(t *testing.T) {
	t.Parallel()
	bin := installed(t, interopClient, interopServer)
	port := freePort(t)
	runServer(t, port, filepath.Join(bin, "server"), "--port", port)
	workers := fmt.Sprintf(`workers: {link: static, static: [{id: wrk-a, pluginId: plg-a, url: "http://127.0.0.1:%s", methods:
  [environmentExecute, duplexChannelOpen, duplexChannelWrite, duplexChannelStop, duplexChannelClose]}]}`, port)
	limits := `channels: {open_rate_per_caller: 100000}`

	t.Run("h2c", func(t *testing.T) {
		s := newScene(t).start(interopRoutes, workers, limits)
		s.interop(t, bin)
	})
	t.Run("TLS", func(t *testing.T) {
		s := newScene(t)
		for name, text := range certificateFiles(t) {
			s.write(name, text)
		}
		s.start(interopRoutes, workers, limits, `listen: {address: "127.0.0.1:0", tls: {cert_file: tls.crt, key_file: tls.key}}`)
		s.interop(t, bin, "--use_tls", "--use_test_ca", "--ca_file", filepath.Join(s.dir, "tls.crt"))
	})
}

func (s *scene) interop(t *testing.T, bin string, args ...string) {
	_, port, _ := net.SplitHostPort(s.address)
	args = append(args, "--server_host", "127.0.0.1", "--server_port", port,
		"--additional_metadata", "x-lease:lease-1;authorization:Bearer token-of-alice", "--soak_iterations", "20", "--service_config_json", interopBalancer)
	for _, row := range interopCases {
		t.Run(row.name, func(t *testing.T) {
			for range row.times {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				out, err := exec.CommandContext(ctx, filepath.Join(bin, "client"), append(args, "--test_case", row.name)...).CombinedOutput()
				cancel()
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			}
		})
	}
	s.eventually("no channel is left", func() bool {
		return s.metric(`sluice_channels_open{kind="duplex"}`) == "0" && s.metric(`sluice_channels_open{kind="stream"}`) == "0"
	})
}
