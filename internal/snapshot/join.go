package snapshot

import (
	"slices"
	"sluice/internal/authz"
	"time"
)

// settle joins h from what is current, and has the rest read. It reports
// whether h is joined now.
func (c *Cache) settle(h *held) bool {
	return c.joinBy(h, c.current)
}

// joinBy joins h from the values that have returns. The lease's ids are followed
// only where they are ids, so that no text of a record becomes another key.
func (c *Cache) joinBy(h *held, have func(*entry, time.Duration) *value) bool {
	now := c.now()
	var use [roles]*entry
	use[roleLease] = c.entry(Key{authz.KindLease, h.id})
	use[roleControl] = c.entry(ControlKey)
	if v := have(use[roleLease], now); v != nil && v.record != nil {
		c.follow(v.record, &use)
	}
	var values [roles]*value
	deps := make([]*entry, 0, roles)
	complete := true
	for role, e := range use {
		if e == nil {
			continue
		}
		values[role] = have(e, now)
		complete = complete && values[role] != nil
		deps = append(deps, e)
	}
	if complete {
		c.depend(h, deps)
		c.join(h, &values, now)
		return true
	}
	c.reread(h, deps, now)
	return false
}

// reread has deps read, and along with them what h rested on before: mostly the
// lease leads there again, and is recognized as unchanged.
func (c *Cache) reread(h *held, deps []*entry, now time.Duration) {
	for _, e := range h.deps {
		if !slices.Contains(deps, e) {
			deps = append(deps, e)
		}
	}
	c.depend(h, deps)
	for _, e := range deps {
		if c.current(e, now) == nil {
			c.want(e)
		}
	}
}

func (c *Cache) follow(lease *authz.Record, use *[roles]*entry) {
	follow := func(role int, kind authz.Kind, id string) {
		if k := (Key{kind, id}); k.Valid() {
			use[role] = c.entry(k)
		}
	}
	follow(roleEnvironment, authz.KindEnvironment, lease.EnvironmentID)
	follow(rolePlugin, authz.KindPlugin, lease.Pin.PluginID)
	follow(roleWorker, authz.KindWorker, (&authz.Snapshot{Lease: lease}).WorkerID())
}

// join makes values h's snapshot: the one it had, when the records are the
// same, so that what was derived from it lives on.
func (c *Cache) join(h *held, values *[roles]*value, now time.Duration) {
	j := joined{snapshot: assemble(h.id, values), epoch: c.epoch.Load(), shared: [roles - 1]*value(values[roleControl:]), readAt: now}
	for _, v := range values {
		if v == nil || v.fixed {
			continue
		}
		j.readAt = min(j.readAt, v.readAt)
		if v.passing && (j.changed == 0 || v.readAt < j.changed) {
			j.changed = v.readAt + 1
		}
		if v.expires != 0 && (j.expires == 0 || v.expires < j.expires) {
			j.expires = v.expires
		}
	}
	var before *authz.Snapshot
	if old := h.last(); old != nil {
		before = old.snapshot
		if sameFacts(before, j.snapshot) {
			j.snapshot = before
		}
	}
	h.joined, h.lease = j, values[roleLease]
	if j.changed == 0 {
		c.index.publish(h)
	}
	c.place(h, values[roleLease])
	h.wake(nil)
	if before != nil && before != j.snapshot {
		h.fresh = c.young(&j, now)
		c.tell(h)
		return
	}
	c.judgeFreshness(h)
}

func assemble(id string, values *[roles]*value) *authz.Snapshot {
	record := func(role int) *authz.Record {
		if values[role] == nil {
			return nil
		}
		return values[role].record
	}
	s := &authz.Snapshot{
		LeaseID: id, Lease: record(roleLease), Control: record(roleControl),
		Environment: record(roleEnvironment), Plugin: record(rolePlugin), Worker: record(roleWorker),
	}
	if lease := values[roleLease]; lease.tenant != "" && s.Worker != nil && s.Worker.TenantID != lease.tenant {
		// A tenant that signs its own leases must not reach, by what it wrote
		// into one, a worker that serves other tenants too.
		s.Worker = nil
	}
	for _, needed := range []struct {
		role int
		kind authz.Kind
	}{
		{roleLease, authz.KindLease},
		{roleControl, authz.KindControl},
		{roleEnvironment, authz.KindEnvironment},
		{rolePlugin, authz.KindPlugin},
	} {
		if v := values[needed.role]; v != nil && v.malformed {
			s.Malformed = append(s.Malformed, needed.kind)
		}
	}
	return s
}

func sameFacts(a, b *authz.Snapshot) bool {
	return a.Lease == b.Lease && a.Control == b.Control && a.Environment == b.Environment &&
		a.Plugin == b.Plugin && a.Worker == b.Worker && slices.Equal(a.Malformed, b.Malformed)
}
