package worker_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sluice/internal/authz"
	"sluice/internal/worker"
	"sluice/internal/worker/sample"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func tokenFile(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	replace(t, file, content)
	return file
}

func replace(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

func TestEveryOpenAndAdmitIsAnsweredByAProbeOfItsOwn(t *testing.T) {
	s := serveSample(t)
	r := start(t, worker.Options{Mode: worker.Probe})
	for i := range 3 {
		live := r.mustAsk(s.record())
		if got := r.Live(channelOf(authz.Admit, live), s.record()); got != nil {
			t.Errorf("an admit used the answer to an open: %+v", got)
		}
		if _, err := r.ask(channelOf(authz.Admit, live), s.record()); err != nil {
			t.Fatal(err)
		}
		if c := s.Counts(); c.Probes != 2*(i+1) || c.Streams != 0 {
			t.Errorf("the worker counted %+v", c)
		}
	}
	if st := r.status("worker-1"); st.State != worker.StateProbed {
		t.Errorf("%+v", st)
	}
}

// gated is a worker that answers with its document of the moment at which the
// question came, once it is let go.
type gated struct {
	sync.Mutex
	document string
	arrived  atomic.Int32
	there    atomic.Int32
	most     atomic.Int32 // at a time
	answers  chan struct{}
}

func (g *gated) set(document string) {
	g.Lock()
	defer g.Unlock()
	g.document = document
}

func (g *gated) serve(w http.ResponseWriter, r *http.Request) {
	g.Lock()
	document := g.document
	g.Unlock()
	if n := g.there.Add(1); n > g.most.Load() {
		g.most.Store(n)
	}
	defer g.there.Add(-1)
	g.arrived.Add(1)
	select {
	case <-g.answers:
	case <-r.Context().Done():
	}
	_, _ = io.WriteString(w, document)
}

func TestAProbeThatWasSentServesNobodyWhoComesLater(t *testing.T) {
	g := &gated{document: good, answers: make(chan struct{})}
	w := serveHandler(t, g.serve)
	r := start(t, worker.Options{Mode: worker.Probe, Dialer: newDialer(t, worker.DialerOptions{Timeout: patience})})
	got := make(chan *authz.Live, 100)
	var asked atomic.Int32
	ask := func() {
		asked.Add(1)
		live, err := r.ask(open(), w)
		if err != nil {
			t.Error(err)
			live = &authz.Live{}
		}
		got <- live
	}
	for sent := range int32(4) {
		go ask()
		eventually(t, "each has its own probe", func() bool { return g.arrived.Load() == sent+1 })
	}
	g.set(`{"id":"worker-1","pluginId":"plugin-1","status":"stopping","generation":"g1"}`)
	for range 96 {
		go ask()
	}
	eventually(t, "all ask", func() bool { return asked.Load() == 100 })
	close(g.answers)
	statuses := map[string]int{}
	for range 100 {
		statuses[(<-got).Status]++
	}
	if statuses["running"] != 4 || statuses["stopping"] != 96 {
		t.Errorf("answers: %v", statuses)
	}
	if n := g.arrived.Load(); n > 50 || g.most.Load() > 4 {
		t.Errorf("100 requests made %d probes, %d at a time", n, g.most.Load())
	}
	if live := r.Live(channelOf(authz.Recheck, &authz.Live{ID: "worker-1"}), w); live.Status != "stopping" {
		t.Errorf("an overtaken answer came back: %+v", live)
	}
}

func TestAnAnswerThatWasOvertakenChangesNothing(t *testing.T) {
	s := sample.New(document())
	var questions atomic.Int32
	late := make(chan struct{})
	w := serveHandler(t, func(w http.ResponseWriter, r *http.Request) {
		if questions.Add(1) == 1 {
			<-late
			_, _ = io.WriteString(w, good)
			return
		}
		s.ServeHTTP(w, r)
	})
	r := start(t, worker.Options{Mode: worker.Probe, Dialer: newDialer(t, worker.DialerOptions{Timeout: patience})})
	r.Retain("worker-1")
	overtaken := make(chan *authz.Live, 1)
	go func() {
		live, _ := r.Ask(t.Context(), open(), w)
		overtaken <- live
	}()
	eventually(t, "the first probe is sent", func() bool { return questions.Load() == 1 })
	latest := r.mustAsk(w)
	close(late)
	if got := <-overtaken; got == nil || got.SupportedMethods[0] != "a" {
		t.Errorf("the first request got %+v", got)
	}
	if got := r.Live(channelOf(authz.Recheck, latest), w); got != latest || r.changed() != 0 {
		t.Errorf("%+v, reported %d", got, r.changed())
	}
}

func TestARecheckUsesTheLastAnswerAndStartsOneProbe(t *testing.T) {
	s := serveSample(t)
	const interval = 50 * time.Millisecond
	r := start(t, worker.Options{Mode: worker.Probe, ProbeInterval: interval})
	began := time.Now()
	live := r.mustAsk(s.record())
	r.Retain("worker-1")
	recheck := channelOf(authz.Recheck, live)
	time.Sleep(interval) // which itself is under test
	for range 100 {
		if got := r.Live(recheck, s.record()); got != live {
			t.Fatalf("%+v", got)
		}
	}
	eventually(t, "a probe is sent", func() bool { return s.Counts().Probes >= 2 })
	if n := s.Counts().Probes; n > 1+int(time.Since(began)/interval) {
		t.Errorf("%d probes", n)
	}
	s.Update(func(d *sample.Document) { d.SupportedMethods = nil })
	eventually(t, "the lost method is reported", func() bool {
		r.Live(recheck, s.record())
		return r.changed() == 1
	})
	if got := r.Live(recheck, s.record()); len(got.SupportedMethods) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestProbesOfRechecksAreBounded(t *testing.T) {
	t.Parallel()
	s := serveSample(t)
	const interval = 100 * time.Millisecond
	r := start(t, worker.Options{Mode: worker.Probe, ProbeInterval: interval})
	began := time.Now()
	recheck := channelOf(authz.Recheck, r.mustAsk(s.record()))
	r.Retain("worker-1")
	eventually(t, "rechecks go on probing", func() bool {
		for range 10 {
			r.Live(recheck, s.record())
		}
		return s.Counts().Probes >= 6
	})
	n := s.Counts().Probes
	if took := time.Since(began); n > 1+int(took/interval) {
		t.Errorf("%d probes in %v", n, took)
	}
}

func TestAProbeThatFailsGivesTheChannelsTheGrace(t *testing.T) {
	t.Parallel()
	s := serveSample(t)
	r := start(t, worker.Options{Mode: worker.Probe, Grace: time.Minute, ProbeInterval: time.Millisecond})
	live := r.mustAsk(s.record())
	r.Retain("worker-1")
	recheck := channelOf(authz.Recheck, live)

	s.stop()
	eventually(t, "the failure is seen", func() bool {
		r.Live(recheck, s.record())
		return r.status("worker-1").State == worker.StateLost
	})
	s.start()
	eventually(t, "it comes back by itself", func() bool { return r.status("worker-1").State == worker.StateProbed })
	if got := r.Live(recheck, s.record()); got != live || r.changed() != 0 {
		t.Errorf("%+v, reported %d", got, r.changed())
	}
}

func TestAProbeThatFailsGivesTheChannelsNoMoreThanTheGrace(t *testing.T) {
	t.Parallel()
	s := serveSample(t)
	const grace = 400 * time.Millisecond
	r := start(t, worker.Options{Mode: worker.Probe, Grace: grace, ProbeInterval: time.Millisecond})
	r.Retain("worker-1")
	recheck := channelOf(authz.Recheck, r.mustAsk(s.record()))
	began := time.Now()
	s.stop()
	eventually(t, "the loss is reported", func() bool {
		r.Live(recheck, s.record())
		return r.changed() == 1
	})
	if took := time.Since(began); took < grace {
		t.Errorf("reported after %v", took)
	}
	if got := r.Live(recheck, s.record()); got != nil {
		t.Errorf("%+v", got)
	}
}

func TestAWorkerThatFailsAProbeIsTriedAgainForItsChannels(t *testing.T) {
	s := serveSample(t)
	r := start(t, worker.Options{Mode: worker.Probe, Grace: time.Minute})
	live := r.mustAsk(s.record())
	r.Retain("worker-1")
	s.Misbehave(sample.Faults{LinkStatus: 503})
	if _, err := r.Ask(t.Context(), open(), s.record()); err == nil {
		t.Error("an open was answered")
	}
	before := s.Counts().Connections
	eventually(t, "it is tried again", func() bool { return s.Counts().Connections >= before+3 })
	s.Misbehave(sample.Faults{})
	eventually(t, "it is back", func() bool { return r.status("worker-1").State == worker.StateProbed })
	if got := r.Live(channelOf(authz.Recheck, live), s.record()); got != live || r.changed() != 0 {
		t.Errorf("%+v, reported %d", got, r.changed())
	}
}

func TestANewGenerationIsAskedForAStreamAtOnce(t *testing.T) {
	s := serveSample(t)
	s.Misbehave(sample.Faults{NoStream: true})
	r := start(t, worker.Options{Mode: worker.Auto})
	r.mustAsk(s.record())
	s.Misbehave(sample.Faults{})
	r.mustAsk(s.record())
	if s.Counts().Streams != 0 {
		t.Error("a stream was asked for before its time")
	}
	s.Update(func(d *sample.Document) { d.Generation = "g2" })
	r.mustAsk(s.record())
	r.mustAsk(s.record())
	if s.Counts().Streams != 1 {
		t.Errorf("the worker counted %+v", s.Counts())
	}
}

func TestADocumentTooLargeIsNotEvenDecoded(t *testing.T) {
	w := serveHandler(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(make([]byte, worker.MaxDocument+1))
	})
	r := start(t, worker.Options{Mode: worker.Probe, Decode: func(raw []byte) (*authz.Live, error) {
		return &authz.Live{}, nil
	}})
	if live, err := r.Ask(t.Context(), open(), w); live != nil || err == nil {
		t.Errorf("%+v", live)
	}
}

func TestAMalformedAnswerTakesTheDocumentAtOnce(t *testing.T) {
	var broken atomic.Bool
	w := serveHandler(t, func(w http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			_, _ = io.WriteString(w, good+"{}")
			return
		}
		_, _ = io.WriteString(w, good)
	})
	r := start(t, worker.Options{Mode: worker.Probe, Grace: time.Minute})
	live := r.mustAsk(w)
	r.Retain("worker-1")
	broken.Store(true)
	if _, err := r.Ask(t.Context(), open(), w); err == nil {
		t.Error("an open was answered")
	}
	if got := r.Live(channelOf(authz.Recheck, live), w); got != nil {
		t.Errorf("%+v", got)
	}
	eventually(t, "it is reported", func() bool { return r.changed() == 1 })
}

func TestAutoProbesAWorkerWithoutAStreamAndAsksAgainLater(t *testing.T) {
	s := serveSample(t)
	s.Misbehave(sample.Faults{NoStream: true})
	r := start(t, worker.Options{Mode: worker.Auto, ProbeInterval: time.Millisecond})
	live := r.mustAsk(s.record())
	r.Retain("worker-1")
	if c := s.Counts(); c.Probes != 2 {
		t.Errorf("the first open: the worker counted %+v", c)
	}
	r.mustAsk(s.record())
	if c := s.Counts(); c.Probes != 3 {
		t.Errorf("the second open: the worker counted %+v", c)
	}

	r.Revisit(s.record()) // and it still offers none
	r.mustAsk(s.record())
	if got := r.Live(channelOf(authz.Recheck, live), s.record()); got != live || r.changed() != 0 {
		t.Errorf("%+v, reported %d", got, r.changed())
	}

	s.Misbehave(sample.Faults{})
	r.Revisit(s.record())
	before := s.Counts().Probes
	eventually(t, "rechecks go on probing", func() bool {
		r.Live(channelOf(authz.Recheck, live), s.record())
		return s.Counts().Probes > before
	})
	r.mustAsk(s.record())
	eventually(t, "the stream is up", func() bool { return r.Live(open(), s.record()) != nil })
	if s.Counts().Streams != 1 || r.changed() != 0 {
		t.Errorf("the worker counted %+v, reported %d", s.Counts(), r.changed())
	}
}

func TestAutoProbesAWorkerThatRefusesToStream(t *testing.T) {
	for _, status := range []int{400, 404, 406, 415} {
		w := serveHandler(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Accept") != "application/json" {
				w.WriteHeader(status)
				return
			}
			_, _ = io.WriteString(w, good)
		})
		r := start(t, worker.Options{Mode: worker.Auto})
		if live := r.mustAsk(w); live.Generation != "g1" {
			t.Errorf("%d: %+v", status, live)
		}
	}
}

func TestAutoFollowsAWorkerThatStopsToStream(t *testing.T) {
	s := serveSample(t)
	r := start(t, worker.Options{Mode: worker.Auto, Grace: time.Minute})
	live := r.mustAsk(s.record())
	r.Retain("worker-1")
	s.Misbehave(sample.Faults{NoStream: true})
	s.DropStreams()
	eventually(t, "it is probed", func() bool { return r.status("worker-1").State == worker.StateProbed })
	if got := r.Live(channelOf(authz.Recheck, live), s.record()); got != live || r.changed() != 0 {
		t.Errorf("%+v, reported %d", got, r.changed())
	}
}

func TestWatchTakesNoSingleDocument(t *testing.T) {
	s := serveSample(t)
	s.Misbehave(sample.Faults{NoStream: true})
	r := start(t, worker.Options{Mode: worker.Watch})
	if live, err := r.Ask(t.Context(), open(), s.record()); live != nil || err == nil {
		t.Errorf("%+v", live)
	}
}

func TestAWorkerBehindTLSIsAsked(t *testing.T) {
	server := httptest.NewTLSServer(sample.New(document()))
	defer server.Close()
	defer server.CloseClientConnections()
	dialer := newDialer(t, worker.DialerOptions{TLS: worker.TLSOptions{
		CAFile: writeCertificate(t, server.TLS.Certificates[0].Certificate[0]),
	}})
	for _, mode := range []worker.Mode{worker.Watch, worker.Probe} {
		r := start(t, worker.Options{Mode: mode, Dialer: dialer})
		if live := r.mustAsk(workerRecord("worker-1", server.URL)); live.Generation != "g1" {
			t.Errorf("%+v", live)
		}
		r.stop()
	}
}

func TestAStaticWorkerIsTheOperatorsWordWhileItTakesConnections(t *testing.T) {
	s := serveSample(t)
	r := start(t, worker.Options{Mode: worker.Static, Static: []worker.StaticWorker{
		{ID: "worker-1", PluginID: "plugin-1", URL: s.record().URL, Methods: []string{"duplexChannelOpen"}},
	}})
	record, ours := r.Override(authz.KindWorker, "worker-1")
	var fields map[string]any
	if !ours || json.Unmarshal(record.JSON, &fields) != nil || fields["pluginId"] != "plugin-1" || record.URL != s.record().URL {
		t.Fatalf("%+v", record)
	}

	req := open()
	if r.Live(req, record) != nil {
		t.Error("there is a document before there is a connection")
	}
	live, err := r.Ask(t.Context(), req, record)
	if err != nil || req.Conn == nil {
		t.Fatal(err)
	}
	defer req.Conn.Close()
	if !live.Static || live.Status != "running" || live.Generation != worker.StaticGeneration || live.SupportedMethods[0] != "duplexChannelOpen" {
		t.Errorf("%+v", live)
	}
	eventually(t, "the worker has the connection", func() bool { return s.Counts().Connections == 1 })
	for _, later := range []*authz.Request{req, channelOf(authz.Admit, live), channelOf(authz.Recheck, live)} {
		if r.Live(later, record) != live {
			t.Errorf("%s: no document", later.Phase)
		}
	}
	if r.Live(channelOf(authz.Recheck, &authz.Live{ID: "another"}), record) != nil {
		t.Error("a channel on another worker has a document")
	}
	if got := s.Counts(); got.Connections != 1 || got.Probes+got.Streams != 0 {
		t.Errorf("the worker counted %+v", got)
	}
	if r.States()[worker.StateStatic] != 1 || r.status("worker-1").State != worker.StateStatic {
		t.Errorf("%+v", r.Status())
	}
	s.stop()
	if live, err := r.Ask(t.Context(), open(), record); live != nil || !errors.Is(err, worker.ErrRefused) {
		t.Errorf("%+v, error %v", live, err)
	}
}

func TestAStaticListStandsInPlaceOfTheStore(t *testing.T) {
	s := serveSample(t)
	static := start(t, worker.Options{Mode: worker.Static})
	if record, ours := static.Override(authz.KindWorker, "worker-1"); record != nil || !ours {
		t.Errorf("an unlisted worker: %+v, %v", record, ours)
	}
	if live, err := static.Ask(t.Context(), open(), s.record()); live != nil || err == nil || s.Counts().Connections != 0 {
		t.Errorf("an unlisted worker was asked: %+v", live)
	}
	if _, ours := static.Override(authz.KindPlugin, "worker-1"); ours {
		t.Error("it answers for plugins")
	}
	watch := start(t, worker.Options{Mode: worker.Watch})
	if _, ours := watch.Override(authz.KindWorker, "worker-1"); ours {
		t.Error("it answers without link: static")
	}
}

func TestWithoutLinksThereIsNothing(t *testing.T) {
	s := serveSample(t)
	r := start(t, worker.Options{Mode: worker.Disabled})
	if r.Enabled() {
		t.Error("it is enabled")
	}
	if live, err := r.Ask(t.Context(), open(), s.record()); live != nil || err == nil {
		t.Errorf("%+v", live)
	}
	if s.Counts().Connections != 0 {
		t.Error("it was connected to")
	}
}

func TestOptionsOfLinksAreChecked(t *testing.T) {
	dialer := newDialer(t, worker.DialerOptions{})
	decode := func([]byte) (*authz.Live, error) { return nil, errors.New("no") }
	static := func(w ...worker.StaticWorker) worker.Options {
		return worker.Options{Mode: worker.Static, Dialer: dialer, Static: w}
	}
	one := worker.StaticWorker{ID: "a", PluginID: "p", URL: "http://127.0.0.1"}
	for name, o := range map[string]worker.Options{
		"mode":            {Mode: "stream", Dialer: dialer, Decode: decode},
		"no dialer":       {Mode: worker.Probe, Decode: decode},
		"no decoder":      {Mode: worker.Probe, Dialer: dialer},
		"path":            {Dialer: dialer, Decode: decode, ProbePath: "v1/worker"},
		"path with space": {Dialer: dialer, Decode: decode, ProbePath: "/v1/ worker"},
		"missing token":   {Dialer: dialer, Decode: decode, TokenFile: filepath.Join(t.TempDir(), "none")},
		"empty token":     {Dialer: dialer, Decode: decode, TokenFile: tokenFile(t, "\n")},
		"bad token":       {Dialer: dialer, Decode: decode, TokenFile: tokenFile(t, "a\nb\n")},
		"static id":       static(worker.StaticWorker{ID: "", PluginID: "p", URL: one.URL}),
		"static plugin":   static(worker.StaticWorker{ID: "a", PluginID: "p/q", URL: one.URL}),
		"static url":      static(worker.StaticWorker{ID: "a", PluginID: "p", URL: "127.0.0.1:80"}),
		"static twice":    static(one, one),
	} {
		if _, err := worker.New(o); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := worker.New(static(one)); err != nil {
		t.Error(err)
	}
}
