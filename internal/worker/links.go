package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"sluice/internal/authz"
)

// Mode is how workers are asked (workers.link).
type Mode string

const (
	Auto     Mode = "auto"   // watch where the worker offers it, else probe
	Watch    Mode = "watch"  // one stream for each worker in use
	Probe    Mode = "probe"  // one question for each request
	Static   Mode = "static" // the operator's word
	Disabled Mode = "none"   // no worker is ever contacted
)

// Options configures Links.
type Options struct {
	// Mode is workers.link. Empty: auto.
	Mode Mode
	// ProbePath is where a worker serves its live document. Empty: /v1/worker.
	ProbePath string
	// TokenFile holds a bearer token that workers are shown, so that they
	// know the gateway. It is read again for every question. Empty: none.
	TokenFile string
	// Static lists the workers of link: static; unused otherwise.
	Static []StaticWorker
	// Dialer makes the connections; its step time-out bounds every step of
	// asking. Required but for none.
	Dialer *Dialer
	// Decode reads a live document strictly. What it refuses is no live
	// document. Required for auto, watch and probe.
	Decode func(raw []byte) (*authz.Live, error)
	// OnChange is told the id of a worker whose live document or generation
	// is another one, or whose document is gone: what was decided on it must
	// be decided again. It is called without any lock, from several
	// goroutines, and must not block. Nil: nobody is told.
	OnChange func(workerID string)
	// Grace is how long open channels may rest on the last document while
	// the worker is out of reach. It must be shorter than
	// channels.revocation_bound, which it is a part of. Zero: 700ms.
	Grace time.Duration
	// Silence is how long a stream may go without a line. Zero: 10s.
	Silence time.Duration
	// Idle is after what time without a question and without a channel a
	// link is closed. Zero: 1m.
	Idle time.Duration
	// ProbeInterval is the least time between two probes that rechecks
	// start. Zero: 200ms.
	ProbeInterval time.Duration
	// MaxLinks is how many workers may be in use at a time; asking one more
	// is an error, until another is idle. Zero: 10000.
	MaxLinks int
	// Log gets links that come and go. Nil: none.
	Log *slog.Logger
}

var errDisabled = errors.New("this gateway runs without worker links")

// Links holds the link to every worker in use. It implements authz.Workers
// and is safe for concurrent use. It answers only while Run runs.
type Links struct {
	Options
	token  tokenFile
	static map[string]*staticWorker // by id
	crew   crew

	mu      sync.Mutex
	workers map[string]*inUse // by id
	count   int               // links in all
}

// inUse is a worker that somebody asked or that has channels.
type inUse struct {
	held  int              // channels
	url   string           // the one it was last asked at
	links map[string]*link // by URL
}

// New checks the options; nothing is contacted before the first Ask.
func New(o Options) (*Links, error) {
	o.setDefaults()
	s := &Links{Options: o, token: tokenFile(o.TokenFile), workers: map[string]*inUse{}}
	switch o.Mode {
	case Auto, Watch, Probe, Static, Disabled:
	default:
		return nil, fmt.Errorf("worker link %q: it must be auto, watch, probe, static or none", o.Mode)
	}
	if !strings.HasPrefix(o.ProbePath, "/") || strings.ContainsAny(o.ProbePath, " \r\n\t#") {
		return nil, fmt.Errorf("probe path %q: it must be an absolute path", o.ProbePath)
	}
	if o.Mode != Disabled && o.Dialer == nil {
		return nil, errors.New("worker links need a dialer")
	}
	if o.Mode != Disabled && o.Mode != Static && o.Decode == nil {
		return nil, errors.New("worker links need a decoder of live documents")
	}
	if _, err := s.Token(); err != nil {
		return nil, err
	}
	var err error
	s.static, err = staticWorkers(o.Mode, o.Static)
	return s, err
}

func (o *Options) setDefaults() {
	orDefault(&o.Mode, Auto)
	orDefault(&o.ProbePath, "/v1/worker")
	orDefault(&o.Grace, 700*time.Millisecond)
	orDefault(&o.Silence, 10*time.Second)
	orDefault(&o.Idle, time.Minute)
	orDefault(&o.ProbeInterval, 200*time.Millisecond)
	orDefault(&o.MaxLinks, 10000)
	if o.OnChange == nil {
		o.OnChange = func(string) {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Run keeps the links until ctx ends, and returns when every link is closed
// and every goroutine has ended.
func (s *Links) Run(ctx context.Context) error {
	if err := s.crew.open(ctx); err != nil {
		return fmt.Errorf("run worker links: %w", err)
	}
	tick := time.NewTicker(max(s.Idle/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			s.crew.close()
			return nil
		case <-tick.C:
			s.closeIdle(time.Now())
		}
	}
}

// Enabled implements authz.Workers.
func (s *Links) Enabled() bool { return s.Mode != Disabled }

// Token returns the bearer token that workers are shown; "" when none is
// configured. The data plane shows the same one.
func (s *Links) Token() (string, error) { return s.token.read() }

// Live implements authz.Workers. It touches no worker, but for the shared
// probe that a recheck may start.
func (s *Links) Live(req *authz.Request, worker *authz.Record) *authz.Live {
	switch s.Mode {
	case Disabled:
		return nil
	case Static:
		return s.staticLive(req, worker)
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.workers[worker.ID]
	if w == nil {
		return nil
	}
	w.url = worker.URL
	l := w.links[worker.URL]
	if l == nil {
		return nil
	}
	l.used = now
	if req.Phase != authz.Recheck {
		return l.current(now)
	}
	l.probeForRecheck(now)
	return l.lasting(now)
}

// Ask implements authz.Workers. It waits for the worker within the time of
// its steps and no longer than ctx. Requests that come together share a
// question, but a document that answers an earlier question than the request
// is never used, unless it came over a stream that is up.
func (s *Links) Ask(ctx context.Context, req *authz.Request, worker *authz.Record) (*authz.Live, error) {
	switch s.Mode {
	case Disabled:
		return nil, errDisabled
	case Static:
		return s.staticAsk(ctx, req, worker)
	}
	target, err := ParseURL(worker.URL)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrForbidden, err)
	}
	live, err := s.ask(ctx, worker, target)
	if errors.Is(err, errNoStream) && s.Mode == Auto {
		// Its answer was to a question that others may have asked before.
		live, err = s.ask(ctx, worker, target)
	}
	if err != nil {
		return nil, fmt.Errorf("ask worker %s: %w", worker.ID, err)
	}
	return live, nil
}

func (s *Links) ask(ctx context.Context, worker *authz.Record, target Target) (*authz.Live, error) {
	s.mu.Lock()
	l, err := s.use(worker, target)
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	now := time.Now()
	l.used = now
	if live := l.current(now); live != nil {
		s.mu.Unlock()
		return live, nil
	}
	q := l.join(now)
	s.mu.Unlock()
	return q.wait(ctx)
}

// use returns the link to the worker, a new one when there is none.
func (s *Links) use(worker *authz.Record, target Target) (*link, error) {
	w := s.worker(worker.ID)
	w.url = worker.URL
	if l := w.links[worker.URL]; l != nil {
		return l, nil
	}
	if s.count >= s.MaxLinks {
		s.forget(worker.ID, w)
		return nil, fmt.Errorf("%d workers are in use already", s.count)
	}
	l := newLink(s, w, worker, target)
	w.links[worker.URL] = l
	s.count++
	return l, nil
}

func (s *Links) worker(id string) *inUse {
	w := s.workers[id]
	if w == nil {
		w = &inUse{links: map[string]*link{}}
		s.workers[id] = w
	}
	return w
}

func (s *Links) forget(id string, w *inUse) {
	if w.held == 0 && len(w.links) == 0 {
		delete(s.workers, id)
	}
}

// Retain says that one more channel rests on the worker: its link is kept and
// brought up again when it drops. It contacts nobody by itself.
func (s *Links) Retain(workerID string) {
	if s.Mode == Disabled || s.Mode == Static {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.worker(workerID).held++
}

// Release takes one Retain back.
func (s *Links) Release(workerID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.workers[workerID]
	if w == nil || w.held == 0 {
		return
	}
	if w.held--; w.held > 0 {
		return
	}
	for _, l := range w.links {
		l.wake()
	}
	s.forget(workerID, w)
}

// closeIdle closes the links that nobody asked for and nothing rests on.
func (s *Links) closeIdle(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, w := range s.workers {
		for url, l := range w.links {
			if l.idle(now) {
				l.stop()
				delete(w.links, url)
				s.count--
			}
		}
		s.forget(id, w)
	}
}
