package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sluice/internal/worker/sample"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A request that a worker already does is waited for: refused as retryable, it
// would be done twice.
func TestATermWaitsForTheRequestsThatAreUnderWay(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	rest := sample.New(sample.Document{ID: "wrk-a", PluginID: "plg-a", Status: "running", Generation: "g1", SupportedMethods: sample.AllMethods})
	begun, finish := make(chan string, 1), make(chan struct{})
	done := sync.OnceFunc(func() { close(finish) })
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			rest.ServeHTTP(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		begun <- r.URL.Path
		<-finish
		_, _ = io.WriteString(w, "done")
	}))
	t.Cleanup(worker.Close)
	t.Cleanup(done) // or the worker would not close
	s.put("worker", "wrk-a", `{"id": "wrk-a", "pluginId": "plg-a", "url": "`+worker.URL+`", "revision": 2}`)
	s.lease("lease-1", fields{"capabilities": fields{"independentControlCommands": true, "duplexCommandStream": true}, "revision": 2})
	s.start(`channels: {drain_delay: 100ms, drain_timeout: 20s}`)
	answered := make(chan string, 1)
	go func() {
		answer := s.do("POST", "alice", "/v1/leases/lease-1/execute", "{}")
		text, _ := io.ReadAll(answer.Body)
		answered <- answer.Status + " " + string(text)
	}()
	<-begun
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.eventually("new channels are refused", func() bool {
		conn, answer, err := s.connect("alice", "lease-1")
		if err == nil {
			conn.CloseNow()
		}
		return answer != nil && answer.StatusCode == 503
	})
	time.Sleep(time.Second)
	done()
	if got := <-answered; got != "200 OK done" {
		t.Errorf("answered %s", got)
	}
	<-s.exited
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exited with %d", code)
	}
}

func TestEveryStateOfWorkerLinksIsShown(t *testing.T) {
	t.Parallel()
	s := newScene(t).start()
	s.open("alice", "lease-1")
	s.eventually("the link is shown as up", func() bool { return s.metric(`sluice_worker_links{state="up"}`) == "1" })
	if states := strings.Count(s.metrics(), "\nsluice_worker_links{"); states < 3 {
		t.Errorf("%d states are shown", states)
	}
}

func TestTheControlRecordNeedsNoID(t *testing.T) {
	t.Parallel()
	s := newScene(t).start()
	conn := s.open("alice", "lease-1")
	if status, _, body := s.operator("GET", "/v1/records/control", ""); status != 200 || !strings.Contains(body, `["control"]`) {
		t.Errorf("listed: %d %s", status, body)
	}
	if status, _, body := s.operator("PUT", "/v1/records/control", `{"duplexEnabled": false, "revision": 9}`); status != 200 {
		t.Errorf("put: %d %s", status, body)
	}
	if e := closed(t, conn); e.Code != 1008 {
		t.Errorf("closed with %d", e.Code)
	}
	if status, header, body := s.operator("GET", "/v1/records/control/control", ""); status != 200 || header.Get("ETag") != `"9"` {
		t.Errorf("got: %d %s", status, body)
	}
	if status, _, body := s.operator("DELETE", "/v1/records/control", "", "If-Match", `"9"`); status != 204 {
		t.Errorf("deleted: %d %s", status, body)
	}
}

// A receiver of traces listens where the standard says, whether its address
// comes from the configuration or from the environment.
func TestTracesGoWhereReceiversListen(t *testing.T) {
	t.Parallel()
	paths := make(chan string, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case paths <- r.URL.Path:
		default:
		}
	}))
	t.Cleanup(receiver.Close)
	for given, want := range map[string]string{
		receiver.URL: "/v1/traces", receiver.URL + "/": "/v1/traces", receiver.URL + "/own/path": "/own/path",
	} {
		s := newScene(t).start(`telemetry: {traces: {otlp_endpoint: "` + given + `"}}`)
		s.open("alice", "lease-1")
		s.term() // which sends what there is
		select {
		case got := <-paths:
			if got != want {
				t.Errorf("%s: sent to %s", given, got)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%s: nothing was sent", given)
		}
		for len(paths) > 0 {
			<-paths
		}
	}
}
