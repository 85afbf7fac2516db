package worker

import (
	"context"
	"errors"
	"fmt"
	"sluice/internal/authz"
	"sync"
	"time"
)

var errDisabled = errors.New("this gateway runs without worker links")

// Links holds the link to every worker in use. It implements authz.Workers
// and is safe for concurrent use. It answers only while Run runs.
type Links struct {
	o      Options
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
	s := &Links{o: o, token: tokenFile(o.TokenFile), workers: map[string]*inUse{}}
	if err := o.check(); err != nil {
		return nil, err
	}
	if _, err := s.Token(); err != nil {
		return nil, err
	}
	var err error
	s.static, err = staticWorkers(o.Mode, o.Static)
	return s, err
}

// Run keeps the links until ctx ends, and returns when every link is closed
// and every goroutine has ended.
func (s *Links) Run(ctx context.Context) error {
	if err := s.crew.open(ctx); err != nil {
		return fmt.Errorf("run worker links: %w", err)
	}
	tick := time.NewTicker(max(s.o.Idle/4, time.Millisecond))
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

// SetGrace changes Options.Grace, which is not 0.
func (s *Links) SetGrace(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.o.Grace = d
}

// Enabled implements authz.Workers.
func (s *Links) Enabled() bool { return s.o.Mode != Disabled }

// Token returns the bearer token that workers are shown; "" when none is
// configured. The data plane shows the same one.
func (s *Links) Token() (string, error) { return s.token.read() }

// Live implements authz.Workers. It touches no worker, but for the shared
// probe that a recheck may start.
func (s *Links) Live(req *authz.Request, worker *authz.Record) *authz.Live {
	switch s.o.Mode {
	case Disabled:
		return nil
	case Static:
		return s.staticLive(req, worker)
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.workers[worker.ID]
	if w == nil || !s.crew.stands() {
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

// Ask implements authz.Workers. It waits for the worker no longer than ctx and
// than its steps take, once more where a question is under way. Requests that
// come together share a question, but the answer to an earlier one than the
// request is never used, unless it came over a stream that is up.
func (s *Links) Ask(ctx context.Context, req *authz.Request, worker *authz.Record) (*authz.Live, error) {
	switch s.o.Mode {
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
	if errors.Is(err, errNoStream) && s.o.Mode == Auto {
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
	if s.count >= s.o.MaxLinks {
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
	if s.o.Mode == Disabled || s.o.Mode == Static {
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
