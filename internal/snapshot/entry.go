package snapshot

import (
	"fmt"
	"sluice/internal/authz"
	"sync/atomic"
	"time"
)

// entry is the place of one record, shared by all leases whose ids lead to
// it. Cache.mu guards it.
//
//	            want               take                finish
//	(idle) --------------> queued --------> loading ------------> (idle)
//	   ^                      ^                |
//	   |                      +----------------+ changed meanwhile, or another
//	   |                                         epoch: not kept
type entry struct {
	key      Key
	value    *value // the last that was read, perhaps of an old epoch; nil: none
	mark     mark
	owner    string             // the tenant of the last well-formed record
	refs     int                // helds that rest on it
	active   map[*held]struct{} // those that are retained or waited for; nil: none
	queued   bool
	loading  bool
	dirty    bool // changed while it was loading
	failures int  // reads in a row that failed
	expiry   *time.Timer
}

// value is what was read at one time. Requests read dead without a lock; the
// rest is immutable.
type value struct {
	record    *authz.Record // nil: absent or malformed
	malformed bool
	fault     string // why it is malformed
	tenant    string // whose key signed it; "": it is vouched for without a tenant
	fixed     bool   // an override's answer, which is never read
	entry     *entry // whose value it is
	epoch     *epoch
	readAt    time.Duration
	expires   time.Duration // 0: never
	dead      atomic.Bool   // told to have changed, or read again since
	passing   bool          // dead from the start: a change was told before it was there
}

func (v *value) expired(now time.Duration) bool { return v.expires != 0 && now >= v.expires }

func (v *value) size() int64 {
	if v == nil || v.record == nil || v.fixed {
		return 0
	}
	return int64(len(v.record.JSON))
}

// enlist has h settled when e was read.
func (e *entry) enlist(h *held) {
	if e.active == nil {
		e.active = map[*held]struct{}{}
	}
	e.active[h] = struct{}{}
}

// dismiss undoes enlist; most entries have nobody, and so no map, for long.
func (e *entry) dismiss(h *held) {
	delete(e.active, h)
	if len(e.active) == 0 {
		e.active = nil
	}
}

// entry returns the place of a record, made when there is none.
func (c *Cache) entry(k Key) *entry {
	e := c.entries[k]
	if e == nil {
		e = &entry{key: k, mark: c.marks.take(k)}
		e.value = c.override(k)
		c.entries[k] = e
	}
	return e
}

func (c *Cache) override(k Key) *value {
	if c.opt.Override == nil {
		return nil
	}
	r, ok := c.opt.Override(k.Kind, k.ID)
	if !ok {
		return nil
	}
	return &value{record: r, fixed: true}
}

// current returns the entry's value when it may be joined now.
func (c *Cache) current(e *entry, now time.Duration) *value {
	v := e.value
	switch {
	case v == nil:
		return nil
	case v.fixed:
		return v
	case v.epoch != c.epoch.Load() || v.dead.Load() || v.expired(now):
		return nil
	}
	return v
}

// latest returns what was read last in this epoch: the current value or, until
// the next read of e is there, a passing one.
func (c *Cache) latest(e *entry, now time.Duration) *value {
	if v := e.value; v != nil && v.passing && v.epoch == c.epoch.Load() && !v.expired(now) {
		return v
	}
	return c.current(e, now)
}

// drop forgets an entry that nobody rests on, but for its mark.
func (c *Cache) drop(e *entry) {
	if e.refs > 0 || e.queued || e.loading || c.entries[e.key] != e {
		return
	}
	c.replace(e, nil)
	c.marks.put(e.key, e.mark)
	delete(c.entries, e.key)
	delete(c.failed, e)
}

// kill has what was read of e no longer used.
func (c *Cache) kill(e *entry) {
	if e.value != nil {
		e.value.dead.Store(true)
	}
	if e.key.Kind == authz.KindLease {
		c.index.kill(e.key.ID)
	}
}

// replace sets the entry's value, and what hangs on it. The old value is dead
// even when the new one says the same: whoever still looks at it looks again.
func (c *Cache) replace(e *entry, v *value) {
	c.kill(e)
	c.bytes += v.size() - e.value.size()
	e.value = v
	if e.expiry != nil {
		e.expiry.Stop()
		e.expiry = nil
	}
	if v != nil && v.expires != 0 {
		e.expiry = time.AfterFunc(v.expires-c.now(), func() { c.expire(e, v) })
	}
}

// expire is the local timer of a record that the store forgets by itself: it
// is not used a moment longer, though the store has not yet said so.
func (c *Cache) expire(e *entry, v *value) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.value == v {
		c.kill(e)
		c.wantActive(e)
	}
}

// want has the entry read.
func (c *Cache) want(e *entry) {
	if e.queued || e.loading || !c.up {
		return
	}
	e.queued = true
	c.queue = append(c.queue, e)
	signal(c.work)
}

func (c *Cache) wantActive(e *entry) {
	if len(e.active) > 0 {
		c.want(e)
	}
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// accept takes what was read for e, when it was sent (issued) in the running
// epoch. Where something was told of e since (changed), it is what the store held
// at some time after issued, and no more.
func (c *Cache) accept(e *entry, read reading, issued time.Duration, changed bool) {
	e.failures = 0
	delete(c.failed, e)
	before := e.mark
	v := c.judge(e, read)
	v.entry, v.epoch, v.readAt, v.passing = e, c.epoch.Load(), issued, changed
	v.dead.Store(changed)
	if read.TTL > 0 {
		v.expires = issued + read.TTL + time.Millisecond // a TTL is cut to milliseconds
	}
	if old := e.value; old != nil {
		if old.record != nil && v.record != nil && e.mark == before && old.record.Revision == v.record.Revision && old.tenant == v.tenant {
			v.record = old.record // its content is the mark's, and so the same
		}
		if v.malformed && old.fault != v.fault {
			c.warn(e, v)
		}
	} else if v.malformed {
		c.warn(e, v)
	}
	c.replace(e, v)
}

func (c *Cache) warn(e *entry, v *value) {
	c.opt.Log.Warn("record is malformed", "record", e.key.String(), "error", v.fault)
}

// judge holds what was read against the mark.
func (c *Cache) judge(e *entry, read reading) *value {
	if read.fault != "" {
		return &value{malformed: true, fault: read.fault}
	}
	if !read.Found {
		return &value{}
	}
	r, content := read.record, read.content
	if read.Tenant != "" && e.owner != "" && e.owner != r.TenantID {
		// A tenant's key could else raise the mark of another's record for good.
		return &value{malformed: true, fault: "is signed with a tenant's key, and the record that stood here is another tenant's"}
	}
	if why := e.mark.verdict(r.Revision, content); why != "" {
		return &value{malformed: true, fault: why}
	}
	if raised := (mark{revision: r.Revision, content: content}); raised != e.mark {
		e.mark = raised
		if c.opt.Marks != nil {
			c.opt.Marks.raise(nameOf(e.key), raised)
		}
	}
	e.owner = or(r.TenantID, e.owner)
	return &value{record: r, tenant: read.Tenant}
}

// fail notes that e could not be read, which says nothing of its value. The
// first failure is tried again at once, later ones by the tick.
func (c *Cache) fail(e *entry, err error) {
	e.failures++
	if e.failures == 1 {
		c.wantActive(e)
		return
	}
	c.failed[e] = struct{}{}
	for h := range e.active {
		h.wake(fmt.Errorf("read %s: %w", e.key, err))
		c.judgeFreshness(h)
	}
}
