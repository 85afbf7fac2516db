package snapshot

import (
	"sync"
	"time"
)

// gather makes one feed of several parts: it is up when all of them are, and
// confirms what all of them confirmed.
type gather struct {
	mu    sync.Mutex
	next  Feed
	parts []gatherPart
	up    int // parts
	was   bool
	ended bool
}

type gatherPart struct {
	name      string
	up        bool
	confirmed time.Time
}

func newGather(next Feed, names []string) *gather {
	g := &gather{next: next, parts: make([]gatherPart, len(names))}
	for i, name := range names {
		g.parts[i].name = name
	}
	return g
}

// part is the feed of one part. Its Down is not to be called: one part that is
// down ends the epoch of all, which is for whoever gathered them to say.
func (g *gather) part(i int) Feed { return partFeed{g, i} }

func (g *gather) wasUp() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.was
}

func (g *gather) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
}

// partFeed is a Feed that is called by one goroutine each.
type partFeed struct {
	g *gather
	i int
}

// Up begins an epoch when it was the last part to come up, and another when it
// comes up again, for what it missed.
func (p partFeed) Up() {
	g := p.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if part := &g.parts[p.i]; !part.up {
		part.up = true
		g.up++
	}
	if g.up == len(g.parts) {
		g.was = true
		g.next.Up()
	}
}

// Changed implements Feed.
func (p partFeed) Changed(keys ...Key) {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	p.g.next.Changed(keys...)
}

// Confirm confirms as of the oldest confirmation of any part.
func (p partFeed) Confirm(asOf time.Time) {
	g := p.g
	g.mu.Lock()
	defer g.mu.Unlock()
	g.parts[p.i].confirmed = asOf
	if g.up < len(g.parts) {
		return
	}
	for i := range g.parts {
		at := g.parts[i].confirmed
		if at.IsZero() {
			return
		}
		if at.Before(asOf) {
			asOf = at
		}
	}
	g.next.Confirm(asOf)
}

// Down implements Feed.
func (p partFeed) Down(error) {}

// ServerStatus is what is known of one server that must tell of changes.
type ServerStatus struct {
	Name    string        // its address; "sentinels" for those together
	Tracked bool          // its changes are told now
	Age     time.Duration // since it last confirmed; 0: it never did
}

// Servers returns the servers that the store rests on, as of now or of when
// they were last looked for.
func (s *RedisStore) Servers() []ServerStatus {
	g := s.running.Load()
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]ServerStatus, len(g.parts))
	for i, p := range g.parts {
		out[i] = ServerStatus{Name: p.name, Tracked: p.up && !g.ended}
		if !p.confirmed.IsZero() {
			out[i].Age = time.Since(p.confirmed)
		}
	}
	return out
}
