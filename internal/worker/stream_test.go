package worker_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sluice/internal/authz"
	"sluice/internal/worker"
	"sluice/internal/worker/sample"
	"sync"
	"testing"
	"time"
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
				live, err := r.ask(open(), s.record())
				if err != nil || live.Generation != "g1" || live.Address != s.address {
					t.Errorf("%+v, error %v", live, err)
				}
			})
		}
		all.Wait()
		first := r.Live(open(), s.record())
		if first == nil || first != r.Live(channelOf(authz.Admit, first), s.record()) || first != r.Live(channelOf(authz.Recheck, first), s.record()) {
			t.Error("the phases see different documents")
		}
		if st := r.status("worker-1"); st.State != worker.StateUp || st.Generation != "g1" || r.States()[worker.StateUp] != 1 {
			t.Errorf("%+v", st)
		}
		r.stop()
		if c := s.Counts(); c.Connections != 1 || c.Streams != 1 || c.Probes != 0 {
			t.Errorf("%s: the worker counted %+v", mode, c)
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
	t.Parallel()
	s := serveSample(t)
	const grace = 300 * time.Millisecond
	r := start(t, worker.Options{Mode: worker.Watch, Grace: grace})
	live := r.mustAsk(s.record())
	r.Retain("worker-1")
	began := time.Now()
	s.stop()
	eventually(t, "the loss is reported", func() bool { return r.changed() == 1 })
	if took := time.Since(began); took < grace {
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
	t.Parallel()
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
	t.Parallel()
	s := serveSample(t)
	r := start(t, worker.Options{Mode: worker.Watch, Idle: 100 * time.Millisecond})
	r.mustAsk(s.record())
	eventually(t, "the link is gone", func() bool { return len(r.Status()) == 0 })
	if live := r.Live(open(), s.record()); live != nil {
		t.Errorf("%+v", live)
	}

	r.Retain("worker-1") // first: between the two the link could turn idle
	r.mustAsk(s.record())
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

func TestAnIdleLinkLeavesNoConnection(t *testing.T) {
	closed := make(chan struct{})
	w := serveHandler(t, func(w http.ResponseWriter, r *http.Request) {
		streaming(good+"\n")(w, r)
		close(closed)
	})
	r := start(t, worker.Options{Mode: worker.Watch, Idle: 50 * time.Millisecond})
	r.mustAsk(w)
	select {
	case <-closed:
	case <-time.After(patience):
		t.Error("the connection is still there")
	}
}

func TestARequestDoesNotWaitForTheRestOfAFailingLink(t *testing.T) {
	s := serveSample(t)
	r := start(t, worker.Options{Mode: worker.Watch, Grace: 10 * time.Millisecond})
	r.mustAsk(s.record())
	r.Retain("worker-1")
	s.Misbehave(sample.Faults{LinkStatus: 503})
	s.DropStreams()
	eventually(t, "the loss is reported", func() bool { return r.changed() == 1 })
	r.Rest(s.record())
	quiet(t, s)
	s.Misbehave(sample.Faults{})
	began := time.Now()
	if r.mustAsk(s.record()); time.Since(began) > 4*time.Second { // by itself it is tried after five at the latest
		t.Errorf("it waited for %v", time.Since(began))
	}
}

func TestAnAddressThatWasLeftIsNotTriedAgain(t *testing.T) {
	old, moved := serveSample(t), serveSample(t)
	r := start(t, worker.Options{Mode: worker.Watch})
	live := r.mustAsk(old.record())
	r.Retain("worker-1")
	r.Live(channelOf(authz.Recheck, live), moved.record())
	old.DropStreams()
	eventually(t, "the drop is seen", func() bool { return r.status("worker-1").State == worker.StateDown })
	quiet(t, old)
	if c := old.Counts(); c.Connections != 1 || moved.Counts().Connections != 0 {
		t.Errorf("the old address counted %+v, the new one %+v", c, moved.Counts())
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
	go func() {
		live, _ := r.Ask(t.Context(), open(), w)
		stayed <- live
	}()
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
	r.Retain("a") // not idle, however long it takes to ask
	r.mustAsk(workerRecord("a", a.record().URL))
	if _, err := r.Ask(t.Context(), open(), workerRecord("b", b.record().URL)); err == nil || b.Counts().Connections != 0 {
		t.Errorf("error %v, the worker counted %+v", err, b.Counts())
	}
	r.Release("a")
	eventually(t, "the idle one gives way", func() bool {
		live, _ := r.Ask(t.Context(), open(), workerRecord("b", b.record().URL))
		return live != nil
	})
}

func TestNothingIsAskedAfterTheEnd(t *testing.T) {
	s := serveSample(t)
	for _, mode := range []worker.Mode{worker.Watch, worker.Probe, worker.Auto} {
		r := start(t, worker.Options{Mode: mode})
		live := r.mustAsk(s.record())
		r.Retain("worker-1")
		r.stop()
		if r.changed() != 0 {
			t.Errorf("%s: the end was reported as a change", mode)
		}
		if r.Live(channelOf(authz.Recheck, live), s.record()) != nil {
			t.Errorf("%s: nobody watches the document any more, and it counts", mode)
		}
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
