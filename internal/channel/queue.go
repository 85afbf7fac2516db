package channel

import "sync"

// queue holds the channels that wait for a recheck, each at most once, so it
// is never longer than the register. Tenants take turns, so that one with many
// channels does not delay another's revocation; and what changed for a few
// goes before what changed for all.
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

func (q *queue) put(c *Channel, urgent bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if urgent {
		q.urgent.put(c)
	} else {
		q.bulk.put(c)
	}
	q.signal()
}

// next returns a channel that waits, or nil.
func (q *queue) next() *Channel {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.urgent.next()
	if c == nil {
		c = q.bulk.next()
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
