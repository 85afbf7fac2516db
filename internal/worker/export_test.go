package worker

import (
	"sluice/internal/authz"
	"time"
)

// Running says whether Run has begun.
func (s *Links) Running() bool {
	return s.crew.stands()
}

// Revisit makes the link ask for a stream again, as after its time.
func (s *Links) Revisit(worker *authz.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workers[worker.ID].links[worker.URL].noStream = s.workers[worker.ID].links[worker.URL].noStream.Add(-revisit)
}

// Rest makes the link wait as long as it ever does before it is tried again
// by itself.
func (s *Links) Rest(worker *authz.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.workers[worker.ID].links[worker.URL]
	l.failures, l.failed = 100, time.Now()
}

// FlowLimit is how many lines a stream may write at once.
const FlowLimit = linesAtOnce
