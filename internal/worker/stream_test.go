package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/authz"
	"sluice/internal/worker"
	"sluice/internal/worker/sample"
)

func TestNobodyIsContactedBeforeAnAsk(t *testing.T) {
	for _, mode := range []worker.Mode{worker.Auto, worker.Watch, worker.Probe, worker.Static, worker.Disabled} {
		s := serveSample(t)
		r := start(t, worker.Options{Mode: mode, Idle: 20 * time.Millisecond})
		r.Retain("worker-1")
		for _, req := range []*authz.Request{open(), channelOf(authz.Admit, &authz.Live{}), channelOf(authz.Recheck, &authz.Live{})} {
			if live := r.Live(req, s.record()); live != nil {
				t.Errorf("%s: %+v", mode, live)
			}
		}
		r.Release("worker-1")
		r.stop()
		if c := s.Counts(); c != (sample.Counts{}) {
			t.Errorf("%s: the worker counted %+v", mode, c)
		}
	}
}

func TestOneStreamServesEveryRequest(t *testing.T) {
	for _, mode := range []worker.Mode{worker.Auto, worker.Watch} {
		s := serveSample(t)
		r := start(t, worker.Options{Mode: mode})
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if live := r.mustAsk(s.record()); live.Generation != "g1" || live.Address != s.address {
					t.Errorf("%+v", live)
				}
			})
		}
		all.Wait()
		first := r.Live(open(), s.record())
		if first == nil || first != r.Live(channelOf(authz.Admit, first), s.record()) || first != r.Live(channelOf(authz.Recheck, first), s.record()) {
			t.Error("the phases see different documents")
		}
		if c := s.Counts(); c.Connections != 1 || c.Streams != 1 || c.Probes != 0 {
			t.Errorf("%s: the worker counted %+v", mode, c)
		}
		if st := r.status("worker-1"); st.State != worker.StateUp || st.Generation != "g1" || r.States()[worker.StateUp] != 1 {
			t.Errorf("%+v", st)
		}
	}
}

func TestAChangeOfTheDocumentIsReported(t *testing.T) {
	s := serveSample(t)
	r := start(t, worker.Options{Mode: worker.Watch})
	live := r.mustAsk(s.record())
	s.Update(func(d *sample.Document) { d.Status = "stopping" })
	eventually(t, "the change is reported", func() bool { return r.changed() == 1 })
	if got := r.Live(channelOf(authz.Recheck, live), s.record()); got == nil || got.Status != "stopping" {
		t.Errorf("%+v", got)
	}
	s.Update(func(d *sample.Document) { d.SupportedMethods = d.SupportedMethods[1:] })
	eventually(t, "the lost method is reported", func() bool { return r.changed() == 2 })
	s.Update(func(*sample.Document) {}) // the same once more
	s.Update(func(d *sample.Document) { d.Generation = "g2" })
	eventually(t, "the generation is reported", func() bool { return r.changed() == 3 })
}

func TestAStreamThatEndsLeavesNoDocumentForOpens(t *testing.T) {
	s := serveSample(t)
	r := start(t, worker.Options{Mode: worker.Watch, Grace: time.Minute})
	live := r.mustAsk(s.record())
	r.Retain("worker-1")
	s.stop()
	eventually(t, "the drop is seen", func() bool { return r.Live(open(), s.record()) == nil })
	if got, err := r.Ask(t.Context(), open(), s.record()); got != nil || !errors.Is(err, worker.ErrRefused) {
		t.Errorf("an open got %+v, error %v", got, err)
	}
	if got := r.Live(channelOf(authz.Admit, live), s.record()); got != nil {
		t.Errorf("an admit got %+v", got)
	}
	if got := r.Live(channelOf(authz.Recheck, live), s.record()); got != live {
		t.Errorf("an open channel got %+v", got)
	}
	if st := r.status("worker-1"); st.State != worker.StateLost || st.Error == "" || st.Channels != 1 {
		t.Errorf("%+v", st)
	}
}

func TestAChannelOutlivesADropWithinTheGrace(t *testing.T) {
	s := serveSample(t)
	r := start(t, worker.Options{Mode: worker.Watch, Grace: time.Minute})
	live := r.mustAsk(s.record())
	r.Retain("worker-1")
	for range 3 {
		streams := s.Counts().Streams
		s.DropStreams()
		eventually(t, "the link is up again", func() bool {
			return s.Counts().Streams > streams && r.Live(open(), s.record()) != nil
		})
	}
	if got := r.Live(channelOf(authz.Recheck, live), s.record()); got != live || r.changed() != 0 {
		t.Errorf("after the drops there is %+v, reported %d", got, r.changed())
	}
}

func TestAnotherGenerationAfterADropIsReported(t *testing.T) {
	s := serveSample(t)
	r := start(t, worker.Options{Mode: worker.Auto, Grace: time.Minute})
	live := r.mustAsk(s.record())
	r.Retain("worker-1")
	s.stop()
	s.Update(func(d *sample.Document) { d.Generation = "g2" })
	s.start()
	eventually(t, "the new process is reported", func() bool { return r.changed() == 1 })
	if got := r.Live(channelOf(authz.Recheck, live), s.record()); got == nil || got.Generation != "g2" {
		t.Errorf("%+v", got)
	}
}

func TestAChannelLosesItsDocumentWhenTheGraceIsOver(t *testing.T) {
	s := serveSample(t)
	const grace = 300 * time.Millisecond
	r := start(t, worker.Options{Mode: worker.Watch, Grace: grace})
	live := r.mustAsk(s.record())
	r.Retain("worker-1")
	began := time.Now()
	s.stop()
	eventually(t, "the loss is reported", func() bool { return r.changed() == 1 })
	if took := time.Since(began); took < grace || took > grace+time.Second {
		t.Errorf("reported after %v", took)
	}
	if got := r.Live(channelOf(authz.Recheck, live), s.record()); got != nil {
		t.Errorf("%+v", got)
	}
	s.start()
	eventually(t, "the link comes back for the channels that stay", func() bool { return r.Live(open(), s.record()) != nil })
}

func TestALinkWithoutChannelsIsNotBroughtUpAgain(t *testing.T) {
	s := serveSample(t)
	r := start(t, worker.Options{Mode: worker.Watch})
	r.mustAsk(s.record())
	s.DropStreams()
	eventually(t, "the drop is seen", func() bool { return r.status("worker-1").State == worker.StateDown })
	if got := r.Live(channelOf(authz.Recheck, &authz.Live{ID: "worker-1"}), s.record()); got != nil {
		t.Errorf("%+v", got)
	}
	r.stop()
	if c := s.Counts(); c.Connections != 1 {
		t.Errorf("the worker counted %+v", c)
	}
}

func TestAReleasedWorkerIsLeftAlone(t *testing.T) {
	s := serveSample(t)
	r := start(t, worker.Options{Mode: worker.Watch, Grace: 50 * time.Millisecond})
	r.mustAsk(s.record())
	r.Retain("worker-1")
	s.Misbehave(sample.Faults{LinkStatus: 503})
	s.DropStreams()
	eventually(t, "the link is tried again", func() bool { return s.Counts().Connections > 2 })
	r.Release("worker-1")
	r.Release("worker-1") // once too often does nothing
	quiet(t, s)
}

// quiet waits until the worker is no longer contacted.
func quiet(t *testing.T, s *served) {
	t.Helper()
	last, since := s.Counts().Connections, time.Now()
	eventually(t, "the worker is left alone", func() bool {
		if now := s.Counts().Connections; now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 400*time.Millisecond
	})
}

func TestAnIdleLinkIsClosed(t *testing.T) {
	s := serveSample(t)
	r := start(t, worker.Options{Mode: worker.Watch, Idle: 100 * time.Millisecond})
	r.mustAsk(s.record())
	eventually(t, "the link is gone", func() bool { return len(r.Status()) == 0 })
	if live := r.Live(open(), s.record()); live != nil {
		t.Errorf("%+v", live)
	}

	r.mustAsk(s.record())
	r.Retain("worker-1")
	streams := s.Counts().Streams
	for until := time.Now().Add(400 * time.Millisecond); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		if r.status("worker-1").State != worker.StateUp {
			t.Fatal("a link with channels was closed")
		}
	}
	r.Release("worker-1")
	eventually(t, "the link is gone", func() bool { return len(r.Status()) == 0 })
	if got := s.Counts().Streams; got != streams {
		t.Errorf("%d streams, then %d", streams, got)
	}
}

func TestAWorkerThatMovedIsAskedAtItsNewAddressOnly(t *testing.T) {
	old, moved := serveSample(t), serveSample(t)
	r := start(t, worker.Options{Mode: worker.Watch, Idle: 100 * time.Millisecond})
	live := r.mustAsk(old.record())
	r.Retain("worker-1")
	if got := r.Live(channelOf(authz.Recheck, live), moved.record()); got != nil {
		t.Errorf("the old process vouches for the new address: %+v", got)
	}
	if got := r.mustAsk(moved.record()); got.Address != moved.address {
		t.Errorf("%+v", got)
	}
	eventually(t, "only the new link is left", func() bool {
		list := r.Status()
		return len(list) == 1 && list[0].URL == moved.record().URL
	})
}

func TestAWorkerThatTakesConnectionsAndStaysSilent(t *testing.T) {
	silent := record(t, "127.0.0.1:0")
	for _, mode := range []worker.Mode{worker.Auto, worker.Watch, worker.Probe} {
		r := start(t, worker.Options{Mode: mode, Dialer: newDialer(t, worker.DialerOptions{Timeout: 150 * time.Millisecond})})
		before, began := silent.accepted.Load(), time.Now()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if _, err := r.Ask(t.Context(), open(), workerRecord("worker-1", silent.url())); !errors.Is(err, worker.ErrTimeout) {
					t.Errorf("%s: %v", mode, err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("%s: it took %v", mode, took)
		}
		if asked := silent.accepted.Load() - before; asked > 5 {
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
				r := start(t, worker.Options{Mode: mode, Dialer: newDialer(t, worker.DialerOptions{Timeout: 200 * time.Millisecond})})
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
	for _, mode := range []worker.Mode{worker.Watch, worker.Probe, worker.Auto} {
		s := serveSample(t)
		s.Misbehave(sample.Faults{LinkStatus: 503})
		r := start(t, worker.Options{Mode: mode})
		r.Retain("worker-1")
		var all sync.WaitGroup
		var asked atomic.Int32
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		for range 20 {
			all.Go(func() {
				for ctx.Err() == nil {
					_, _ = r.Ask(ctx, open(), s.record())
					asked.Add(1)
				}
			})
		}
		all.Wait()
		cancel()
		if c := s.Counts().Connections; c > 40 || asked.Load() < 20 {
			t.Errorf("%s: %d questions made %d connections in a second", mode, asked.Load(), c)
		}
		s.Misbehave(sample.Faults{})
		if live, err := r.Ask(t.Context(), open(), s.record()); live == nil {
			t.Errorf("%s: once it is well: %v", mode, err)
		}
	}
}

func TestAFlappingLinkIsNotHammeredAndKeepsItsChannels(t *testing.T) {
	var streams atomic.Int32
	w := serveHandler(t, func(w http.ResponseWriter, _ *http.Request) {
		streams.Add(1)
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = io.WriteString(w, good+"\n")
	})
	r := start(t, worker.Options{Mode: worker.Watch})
	r.Retain("worker-1")
	live := r.mustAsk(w)
	for until := time.Now().Add(time.Second); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if r.Live(channelOf(authz.Recheck, live), w) != live {
			t.Fatal("the channel lost its document")
		}
	}
	if n := streams.Load(); n > 30 || r.changed() != 0 {
		t.Errorf("%d streams in a second, reported %d", n, r.changed())
	}
}

func TestAWorkerThatFloodsIsCut(t *testing.T) {
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

func TestTheTokenIsShownAndReadAgain(t *testing.T) {
	seen := make(chan string, 1)
	w := serveHandler(t, func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Get("Authorization")
		_, _ = io.WriteString(w, good)
	})
	file := tokenFile(t, "first\n")
	r := start(t, worker.Options{Mode: worker.Probe, TokenFile: file})
	for _, token := range []string{"first", "second"} {
		replace(t, file, token+"\n")
		if _, err := r.Ask(t.Context(), open(), w); err != nil {
			t.Fatal(err)
		}
		if got := <-seen; got != "Bearer "+token {
			t.Errorf("shown %q", got)
		}
	}
	replace(t, file, "two words")
	if _, err := r.Ask(t.Context(), open(), w); err == nil || len(seen) != 0 {
		t.Errorf("asked without a token: %v", err)
	}
}

func TestALeavingRequestDoesNotTakeTheOthersAlong(t *testing.T) {
	release := make(chan struct{})
	w := serveHandler(t, func(w http.ResponseWriter, r *http.Request) {
		<-release
		streaming(good+"\n")(w, r)
	})
	r := start(t, worker.Options{Mode: worker.Watch})
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := r.Ask(ctx, open(), w)
		left <- err
	}()
	stayed := make(chan *authz.Live, 1)
	go func() { stayed <- r.mustAsk(w) }()
	eventually(t, "the worker is asked", func() bool { return r.status("worker-1").State == worker.StateAsking })
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the one that left: %v", err)
	}
	close(release)
	if live := <-stayed; live == nil {
		t.Error("the other one has no document")
	}
}

func TestMoreWorkersThanLinksAreRefused(t *testing.T) {
	a, b := serveSample(t), serveSample(t)
	r := start(t, worker.Options{Mode: worker.Watch, MaxLinks: 1, Idle: 200 * time.Millisecond})
	r.mustAsk(workerRecord("a", a.record().URL))
	if _, err := r.Ask(t.Context(), open(), workerRecord("b", b.record().URL)); err == nil || b.Counts().Connections != 0 {
		t.Errorf("error %v, the worker counted %+v", err, b.Counts())
	}
	eventually(t, "the idle one gives way", func() bool {
		live, _ := r.Ask(t.Context(), open(), workerRecord("b", b.record().URL))
		return live != nil
	})
}

func TestNothingIsAskedAfterTheEnd(t *testing.T) {
	s := serveSample(t)
	for _, mode := range []worker.Mode{worker.Watch, worker.Probe, worker.Auto} {
		r := start(t, worker.Options{Mode: mode})
		r.mustAsk(s.record())
		r.stop()
		before := s.Counts().Connections
		if _, err := r.Ask(t.Context(), open(), s.record()); err == nil {
			t.Errorf("%s: asked", mode)
		}
		if r.Live(open(), s.record()) != nil || s.Counts().Connections != before {
			t.Errorf("%s: there is a link", mode)
		}
	}
}

func TestLookingAtALiveDocumentAllocatesNothing(t *testing.T) {
	s := serveSample(t)
	r := start(t, worker.Options{Mode: worker.Watch})
	w, req := s.record(), open()
	r.mustAsk(w)
	if n := testing.AllocsPerRun(100, func() { _ = r.Live(req, w) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestWorkersAreListedInOrder(t *testing.T) {
	a, b := serveSample(t), serveSample(t)
	r := start(t, worker.Options{Mode: worker.Watch})
	r.mustAsk(workerRecord("b", b.record().URL))
	r.mustAsk(workerRecord("a", a.record().URL))
	var ids []string
	for _, st := range r.Status() {
		ids = append(ids, st.Worker)
	}
	if !slices.Equal(ids, []string{"a", "b"}) {
		t.Errorf("%v", ids)
	}
}
