package snapshot

import "container/list"

// segment is a bounded space of helds, in the order in which they came. One
// that was asked for since the last look gets a second chance.
type segment struct {
	max   int
	order list.List
}

func (s *segment) len() int { return s.order.Len() }

func (s *segment) add(h *held) {
	h.segment, h.place = s, s.order.PushBack(h)
}

func (s *segment) remove(h *held) {
	s.order.Remove(h.place)
	h.segment, h.place = nil, nil
}

// place puts h where it belongs: with the leases, a malformed one too, or
// with the ids that are none. Only what stands in the store gets into the
// leases' space, so nobody can fill that by asking.
func (c *Cache) place(h *held, lease *value) {
	want := &c.leases
	if lease.record == nil && !lease.malformed {
		want = &c.absent
	}
	if h.segment != want {
		h.segment.remove(h)
		want.add(h)
		c.trim()
	}
}

// trim evicts what is beyond the bounds.
func (c *Cache) trim() {
	c.trimSegment(&c.absent, func() bool { return c.absent.len() > c.absent.max })
	c.trimSegment(&c.leases, func() bool { return c.leases.len() > c.leases.max || c.bytes > c.opt.MaxBytes })
}

// trimSegment looks at each held twice at most: what is retained or waited
// for stays, whatever the bound.
func (c *Cache) trimSegment(s *segment, over func() bool) {
	for looks := 2 * s.len(); looks > 0 && over(); looks-- {
		h := s.order.Front().Value.(*held)
		if h.retained > 0 || h.waiters > 0 || c.recentlyUsed(h) {
			s.order.MoveToBack(h.place)
			continue
		}
		s.remove(h)
		c.index.remove(h)
		c.depend(h, nil)
	}
}

// recentlyUsed reports, once, that h was asked for.
func (c *Cache) recentlyUsed(h *held) bool {
	used := c.index.used(h) || h.used
	h.used = false
	return used
}
