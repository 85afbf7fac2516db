package channel

import "sync"

// queue holds the channels that wait for a recheck, each at most once in either
// line, so it is never longer than twice the register. Tenants take turns, so that
// one with many channels does not delay another's revocation; and what changed for
// a few goes before what changed for all.
type queue struct {
	mu     sync.Mutex
	urgent turns
	bulk   turns
	wake   chan struct{}
}

// turns is a line for each tenant, served in turn.
type turns struct {
	order []string // tenants with a line
	lines map[string][]*Channel
}

func newQueue() *queue {
	return &queue{
		urgent: turns{lines: map[string][]*Channel{}}, bulk: turns{lines: map[string][]*Channel{}},
		wake: make(chan struct{}, 1),
	}
}

// put has c judged, on what stands in the store then. One that waits in bulk
// may become urgent.
func (q *queue) put(c *Channel, urgent bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case c.urgent:
		return
	case urgent:
		c.urgent = true
		q.urgent.put(c)
	case c.bulk:
		return
	default:
		c.bulk = true
		q.bulk.put(c)
	}
	q.signal()
}

// next returns a channel that waits, or nil. From here on a change has it wait
// again, for its facts are not read yet.
func (q *queue) next() *Channel {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.urgent.next()
	if c != nil {
		c.urgent = false
	} else if c = q.bulk.next(); c != nil {
		c.bulk = false
	}
	if len(q.urgent.order)+len(q.bulk.order) > 0 {
		q.signal()
	}
	return c
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (t *turns) put(c *Channel) {
	if len(t.lines[c.tenant]) == 0 {
		t.order = append(t.order, c.tenant)
	}
	t.lines[c.tenant] = append(t.lines[c.tenant], c)
}

func (t *turns) next() *Channel {
	if len(t.order) == 0 {
		return nil
	}
	tenant := t.order[0]
	t.order = t.order[1:]
	line := t.lines[tenant]
	c := line[0]
	if line = line[1:]; len(line) == 0 {
		delete(t.lines, tenant)
		return c
	}
	t.lines[tenant] = line
	t.order = append(t.order, tenant)
	return c
}
