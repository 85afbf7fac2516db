package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sluice/internal/authz"
	"sluice/internal/worker"
	"sluice/internal/worker/sample"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestAWorkerThatTakesConnectionsAndStaysSilent(t *testing.T) {
	t.Parallel()
	silent := record(t, "127.0.0.1:0")
	for _, mode := range []worker.Mode{worker.Auto, worker.Watch, worker.Probe} {
		r := start(t, worker.Options{Mode: mode, Dialer: newDialer(t, worker.DialerOptions{Timeout: 500 * time.Millisecond})})
		before, began := silent.accepted.Load(), time.Now()
		var there, all sync.WaitGroup
		there.Add(20)
		for range 20 {
			all.Go(func() {
				there.Done()
				there.Wait()
				if _, err := r.Ask(t.Context(), open(), workerRecord("worker-1", silent.url())); !errors.Is(err, worker.ErrTimeout) {
					t.Errorf("%s: %v", mode, err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > patience {
			t.Errorf("%s: it took %v", mode, took)
		}
		if asked := silent.accepted.Load() - before; asked > 10 {
			t.Errorf("%s: 20 requests made %d connections", mode, asked)
		}
	}
}

// streaming answers with a stream that begins with lines and then waits.
func streaming(lines ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		for _, line := range lines {
			_, _ = io.WriteString(w, line)
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

const good = `{"id":"worker-1","pluginId":"plugin-1","status":"running","generation":"g1","supportedMethods":["a"]}`

func TestAStreamThatFallsSilentIsNoLonger(t *testing.T) {
	w := serveHandler(t, streaming(good+"\n"))
	r := start(t, worker.Options{Mode: worker.Watch, Silence: 200 * time.Millisecond, Grace: 100 * time.Millisecond})
	live := r.mustAsk(w)
	r.Retain("worker-1")
	eventually(t, "silence ends the live document", func() bool { return r.Live(open(), w) == nil })
	if got := r.Live(channelOf(authz.Recheck, live), w); got != live {
		t.Errorf("%+v", got)
	}
}

func TestPartsOfALineDoNotKeepAStreamAlive(t *testing.T) {
	var began atomic.Int64
	w := serveHandler(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = io.WriteString(w, good+"\n")
		began.CompareAndSwap(0, time.Now().UnixNano())
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, " ")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(5 * time.Millisecond)
		}
	})
	r := start(t, worker.Options{Mode: worker.Watch, Silence: 200 * time.Millisecond})
	r.mustAsk(w)
	eventually(t, "the stream is cut", func() bool { return r.status("worker-1").State == worker.StateDown })
	if took := time.Since(time.Unix(0, began.Load())); took > 2*time.Second {
		t.Errorf("after %v", took)
	}
}

func TestAMalformedLineEndsTheDocumentForEverybody(t *testing.T) {
	t.Parallel()
	lines := make(chan string, 1)
	w := serveHandler(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = io.WriteString(w, good+"\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case line := <-lines:
			_, _ = io.WriteString(w, line)
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
		}
		<-r.Context().Done()
	})
	r := start(t, worker.Options{Mode: worker.Watch, Grace: time.Minute})
	r.Retain("worker-1")
	for i, line := range []string{
		"\n", "null\n", "{}\n", good + good + "\n", "{" + good + "\n", `{"id":"a","id":"b"}` + "\n",
		strings.Replace(good, `"g1"`, `1`, 1) + "\n", strings.Repeat(" ", worker.MaxDocument+1) + "\n", strings.Repeat("x", worker.MaxDocument+10),
	} {
		if live, err := r.ask(open(), w); live == nil {
			t.Fatal(err)
		}
		reported := r.changed()
		lines <- line
		eventually(t, fmt.Sprintf("line %d is reported", i), func() bool { return r.changed() > reported })
	}
}

func TestAWorkerThatCannotBeAsked(t *testing.T) {
	long := strings.Repeat(" ", worker.MaxDocument)
	head := func(status string) string { return "HTTP/1.1 " + status + "\r\nContent-Type: application/x-ndjson\r\n" }
	for name, raw := range map[string]string{
		"no HTTP":                         "SSH-2.0-OpenSSH\r\n\r\n",
		"nothing":                         "",
		"a head that never ends":          head("200 OK") + strings.Repeat("X-A: "+strings.Repeat("a", 1000)+"\r\n", 100),
		"endless 1xx answers":             strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 100),
		"switching protocols":             "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n" + good + "\n",
		"no content":                      head("204 No Content") + "\r\n",
		"a fault":                         head("500 Oops") + "Content-Length: 0\r\n\r\n",
		"not found":                       head("404 Not Found") + "Content-Length: 0\r\n\r\n",
		"partial content":                 head("206 Partial Content") + "\r\n" + good + "\n",
		"an empty document":               head("200 OK") + "Content-Length: 0\r\n\r\n",
		"a document too large":            head("200 OK") + "Content-Length: 999999\r\n\r\n" + long + good + "\n",
		"a document that never ends":      head("200 OK") + "\r\n" + long,
		"a chunked one that never ends":   head("200 OK") + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1\r\n \r\n", 1000),
		"chunks with endless extensions":  head("200 OK") + "Transfer-Encoding: chunked\r\n\r\n1;" + strings.Repeat("a", 1<<20),
		"a document without an end":       head("200 OK") + "Content-Length: 500\r\n\r\n" + good,
		"two documents":                   head("200 OK") + "Content-Length: " + fmt.Sprint(2*len(good)) + "\r\n\r\n" + good + good,
		"a compressed document":           head("200 OK") + "Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\n\x1f\x8b\x08\x00\n",
		"a length and chunks that differ": head("200 OK") + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
	} {
		for _, mode := range []worker.Mode{worker.Watch, worker.Probe, worker.Auto} {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				t.Parallel()
				w := serveBytes(t, raw)
				r := start(t, worker.Options{Mode: mode, Dialer: newDialer(t, worker.DialerOptions{Timeout: 60 * time.Millisecond})})
				began := time.Now()
				live, err := r.Ask(t.Context(), open(), w)
				if live != nil || err == nil {
					t.Errorf("%+v", live)
				}
				if took := time.Since(began); took > 4*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		}
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := serveSample(t)
	for _, status := range []int{301, 302, 303, 307, 308} {
		w := serveHandler(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Refresh", "0; url=http://"+elsewhere.address+"/v1/worker")
			w.Header().Set("Alt-Svc", `http/1.1="`+elsewhere.address+`"`)
			http.Redirect(w, r, "http://"+elsewhere.address+"/v1/worker", status)
		})
		for _, mode := range []worker.Mode{worker.Watch, worker.Probe, worker.Auto} {
			r := start(t, worker.Options{Mode: mode})
			if live, err := r.Ask(t.Context(), open(), w); live != nil || err == nil {
				t.Errorf("%d: %+v", status, live)
			}
		}
	}
	if c := elsewhere.Counts(); c.Connections != 0 {
		t.Errorf("the other worker counted %+v", c)
	}
}

func TestAForbiddenAddressIsNotAsked(t *testing.T) {
	forbidden := record(t, "127.0.0.3:0")
	for _, mode := range []worker.Mode{worker.Watch, worker.Probe, worker.Auto} {
		r := start(t, worker.Options{Mode: mode, Dialer: newDialer(t, worker.DialerOptions{Allow: []string{"127.0.0.2/32"}})})
		for _, url := range []string{forbidden.url(), forbidden.url() + "/x", "unix:///run/x.sock"} {
			if _, err := r.Ask(t.Context(), open(), workerRecord("worker-1", url)); !errors.Is(err, worker.ErrForbidden) {
				t.Errorf("%s: %v", url, err)
			}
		}
	}
	if forbidden.accepted.Load() != 0 {
		t.Error("it was connected to")
	}
}

func TestAFailingWorkerIsNotHammered(t *testing.T) {
	t.Parallel()
	for _, mode := range []worker.Mode{worker.Watch, worker.Probe, worker.Auto} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			askAFailingWorker(t, mode)
		})
	}
}

func askAFailingWorker(t *testing.T, mode worker.Mode) {
	s := serveSample(t)
	s.Misbehave(sample.Faults{LinkStatus: 503})
	r := start(t, worker.Options{Mode: mode})
	r.Retain("worker-1")
	var all sync.WaitGroup
	began := time.Now()
	for range 20 {
		all.Go(func() {
			for range 10 {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				if _, err := r.Ask(ctx, open(), s.record()); err == nil || ctx.Err() != nil {
					t.Errorf("a request was told %v", err)
				}
				cancel()
			}
		})
	}
	all.Wait()
	// Some at first, and then up to four probes for each pause.
	took := time.Since(began)
	if c := s.Counts().Connections; float64(c) > 20+40*took.Seconds() {
		t.Errorf("200 requests made %d connections in %v", c, took)
	}
	s.Misbehave(sample.Faults{})
	if live, err := r.Ask(t.Context(), open(), s.record()); live == nil {
		t.Errorf("once it is well: %v", err)
	}
}

func TestAFailureIsNoAnswerToWhoCameLater(t *testing.T) {
	t.Parallel()
	for _, mode := range []worker.Mode{worker.Watch, worker.Probe, worker.Auto} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			asked, fail := make(chan struct{}), make(chan struct{})
			var questions atomic.Int32
			w := serveHandler(t, func(w http.ResponseWriter, r *http.Request) {
				if questions.Add(1) == 1 {
					close(asked)
					<-fail
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				w.Header().Set("Content-Type", r.Header.Get("Accept"))
				_, _ = io.WriteString(w, good+"\n")
				_ = http.NewResponseController(w).Flush()
				if mode != worker.Probe {
					<-r.Context().Done()
				}
			})
			s := start(t, worker.Options{Mode: mode})
			first := make(chan error, 1)
			go func() {
				_, err := s.Ask(t.Context(), open(), w)
				first <- err
			}()
			<-asked
			time.AfterFunc(50*time.Millisecond, func() { close(fail) })
			if live, err := s.Ask(t.Context(), open(), w); live == nil {
				t.Errorf("who came while the worker was about to fail: %v", err)
			}
			if err := <-first; err == nil {
				t.Error("who asked first was not told of the failure")
			}
		})
	}
}

func TestAFlappingLinkIsNotHammeredAndKeepsItsChannels(t *testing.T) {
	t.Parallel()
	var streams atomic.Int32
	w := serveHandler(t, func(w http.ResponseWriter, _ *http.Request) {
		streams.Add(1)
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = io.WriteString(w, good+"\n")
	})
	r := start(t, worker.Options{Mode: worker.Watch, Grace: time.Minute})
	r.Retain("worker-1")
	began := time.Now()
	live := r.mustAsk(w)
	eventually(t, "the link has come and gone", func() bool {
		if r.Live(channelOf(authz.Recheck, live), w) != live {
			t.Fatal("the channel lost its document")
		}
		return streams.Load() >= 8
	})
	took := time.Since(began)
	if n := streams.Load(); float64(n) > 8+10*took.Seconds() || r.changed() != 0 {
		t.Errorf("%d streams in %v, reported %d", n, took, r.changed())
	}
}

func TestAWorkerThatFloodsIsCut(t *testing.T) {
	t.Parallel()
	w := serveHandler(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		for i := 0; r.Context().Err() == nil; i++ {
			_, _ = io.WriteString(w, strings.Replace(good, "g1", fmt.Sprint("g", i%2), 1)+"\n")
		}
	})
	r := start(t, worker.Options{Mode: worker.Watch})
	r.mustAsk(w)
	eventually(t, "the stream is cut", func() bool { return r.status("worker-1").State == worker.StateDown })
	if n := r.changed(); n > 2*worker.FlowLimit {
		t.Errorf("reported %d times", n)
	}
}

func TestAWorkerThatLiesIsReturnedAsItSays(t *testing.T) {
	s := serveSample(t)
	s.Update(func(d *sample.Document) { d.ID, d.PluginID = "another", "stranger" })
	for _, mode := range []worker.Mode{worker.Watch, worker.Probe} {
		r := start(t, worker.Options{Mode: mode})
		if live := r.mustAsk(s.record()); live.ID != "another" || live.PluginID != "stranger" {
			t.Errorf("%+v", live)
		}
	}
}
