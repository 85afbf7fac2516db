package channel

import (
	"context"
	"log/slog"
	"slices"
	"sluice/internal/authz"
	"sync"
	"sync/atomic"
	"time"
)

// Authorizer is the one path to a decision; *authz.Authorizer.
type Authorizer interface {
	// Recheck decides again what was last allowed to a channel.
	Recheck(ctx context.Context, req *authz.Request, last *authz.Decision) authz.Decision
	// Kin says which rechecks have the same answer at one moment.
	Kin(ctx context.Context, req *authz.Request) (authz.Kinship, bool)
	// Refuse records a denial that was reached without asking.
	Refuse(req *authz.Request, d authz.Decision) authz.Decision
	// Repeat is the decision for req when d was just reached for its kin.
	Repeat(req *authz.Request, d authz.Decision) authz.Decision
}

// Keeper holds on to what open channels rest on, so that every change of it
// is noticed: the snapshots of their leases, the links to their workers.
type Keeper interface {
	Retain(id string)
	Release(id string)
}

// Recorder takes what became of channels. It must not block.
type Recorder interface {
	RecordEnd(*Summary)
	RecordRevocation(time.Duration)
}

// Limits are the limits in force. All are positive; MaxMessageBytes may be 0,
// no limit.
type Limits struct {
	RevocationBound time.Duration // a recheck that takes longer ends the channel
	RecheckInterval time.Duration
	IdleTimeout     time.Duration
	MaxLifetime     time.Duration
	MaxMessageBytes int64
	MaxOpen         int
	MaxPerLease     int
	MaxPerTenant    int
}

// Options are what a Register is made of. All fields are required.
type Options struct {
	Authorizer Authorizer
	Callers    authz.Callers
	Facts      Keeper // by lease id
	Workers    Keeper // by worker id
	Recorder   Recorder
	Limits     Limits
	Rechecks   int // rechecks judged at once; 0: 4
	Log        *slog.Logger
}

// Register knows every channel of this gateway. It is safe for concurrent
// use.
type Register struct {
	authorizer Authorizer
	callers    authz.Callers
	facts      Keeper
	workers    Keeper
	recorder   Recorder
	log        *slog.Logger
	rechecks   int
	limits     atomic.Pointer[Limits]

	mu       sync.Mutex
	channels map[string]*Channel
	byLease  map[string]map[*Channel]struct{}
	byWorker map[string]map[*Channel]struct{}
	places   map[string]int // channels by lease and by tenant; requests take none
	byTenant map[string]int
	requests map[string]int // by tenant

	toWorker, toCaller int64 // bytes, of the channels that are gone

	queue *queue
}

// New returns an empty register. It starts nothing.
func New(o Options) *Register {
	r := &Register{
		authorizer: o.Authorizer, callers: o.Callers, facts: o.Facts, workers: o.Workers,
		recorder: o.Recorder, log: o.Log, rechecks: o.Rechecks,
		channels: map[string]*Channel{},
		byLease:  map[string]map[*Channel]struct{}{},
		byWorker: map[string]map[*Channel]struct{}{},
		places:   map[string]int{},
		byTenant: map[string]int{},
		requests: map[string]int{},
		queue:    newQueue(),
	}
	if r.rechecks <= 0 {
		r.rechecks = 4
	}
	r.SetLimits(o.Limits)
	return r
}

// SetLimits puts limits in force for channels that open from now on; the
// recheck interval holds for all.
func (r *Register) SetLimits(l Limits) { r.limits.Store(&l) }

// Reserve takes a place for an opening channel under the limits, or says
// which limit refuses it. It is the reserve step of an open decision: d is
// that decision.
func (r *Register) Reserve(req *authz.Request, d *authz.Decision) (*Channel, authz.Reason) {
	l := r.limits.Load()
	c := r.newChannel(req, d, l)
	lease := req.LeaseID

	r.mu.Lock()
	reason := r.fullLocked(l, c)
	if reason == "" {
		r.channels[c.ID] = c
		index(r.byLease, lease, c)
		index(r.byWorker, c.request.Channel.WorkerID, c)
		r.takeLocked(c, 1)
	}
	r.mu.Unlock()
	if reason != "" {
		return nil, reason
	}
	r.facts.Retain(lease)
	r.workers.Retain(c.request.Channel.WorkerID)
	return c, ""
}

func (r *Register) newChannel(req *authz.Request, d *authz.Decision, l *Limits) *Channel {
	facts := &authz.ChannelFacts{
		ID: authz.NewID(), OpenedAt: time.Now(), WorkerID: d.View.Snapshot.WorkerID(), Sandbox: authz.SandboxOf(d.View.Snapshot.Lease),
	}
	if d.Live != nil {
		facts.Generation = d.Live.Generation
	}
	c := &Channel{ID: facts.ID, register: r, since: new(time.Time), tenant: req.Principal.TenantID, request: *req, decision: *d, Limits: lowered(l, d.Limits)}
	c.request.Channel = facts
	c.request.Conn = nil // the data plane owns it
	req.Channel = facts
	return c
}

// lowered returns the limits of a channel: a policy may lower them only.
func lowered(l *Limits, p authz.Limits) authz.Limits {
	out := authz.Limits{IdleTimeout: l.IdleTimeout, MaxLifetime: l.MaxLifetime, MaxMessageBytes: l.MaxMessageBytes}
	if p.IdleTimeout > 0 {
		out.IdleTimeout = min(out.IdleTimeout, p.IdleTimeout)
	}
	if p.MaxLifetime > 0 {
		out.MaxLifetime = min(out.MaxLifetime, p.MaxLifetime)
	}
	if p.MaxMessageBytes > 0 && (out.MaxMessageBytes == 0 || p.MaxMessageBytes < out.MaxMessageBytes) {
		out.MaxMessageBytes = p.MaxMessageBytes
	}
	return out
}

// fullLocked says which limit refuses c. A plain request is held so that it
// can be cut, and is no channel: a tenant may have as many of them besides.
func (r *Register) fullLocked(l *Limits, c *Channel) authz.Reason {
	isChannel := c.request.Kind != authz.PlainRequest
	switch {
	case isChannel && r.places[c.request.LeaseID] >= l.MaxPerLease:
		return authz.ReasonLeaseChannels
	case isChannel && r.byTenant[c.tenant] >= l.MaxPerTenant, !isChannel && r.requests[c.tenant] >= l.MaxPerTenant:
		return authz.ReasonTenantChannels
	case len(r.channels) >= l.MaxOpen:
		return authz.ReasonOpenChannels
	}
	return ""
}

// takeLocked takes n places for c, or gives back -n.
func (r *Register) takeLocked(c *Channel, n int) {
	if c.request.Kind == authz.PlainRequest {
		count(r.requests, c.tenant, n)
		return
	}
	count(r.places, c.request.LeaseID, n)
	count(r.byTenant, c.tenant, n)
}

func count(counts map[string]int, key string, n int) {
	if counts[key] += n; counts[key] <= 0 {
		delete(counts, key)
	}
}

func (r *Register) release(c *Channel) {
	lease, worker := c.request.LeaseID, c.request.Channel.WorkerID
	r.mu.Lock()
	delete(r.channels, c.ID)
	r.toWorker += c.ToWorker.Bytes.Load()
	r.toCaller += c.ToCaller.Bytes.Load()
	unindex(r.byLease, lease, c)
	unindex(r.byWorker, worker, c)
	r.takeLocked(c, -1)
	r.mu.Unlock()
	r.facts.Release(lease)
	r.workers.Release(worker)
}

// Len is the number of channels, opening ones included.
func (r *Register) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.channels)
}

// Info is what operators see of a channel.
type Info struct {
	ID         string            `json:"id"`
	Kind       authz.ChannelKind `json:"kind"`
	State      string            `json:"state"` // opening, open, ending
	Lease      string            `json:"leaseId"`
	Tenant     string            `json:"tenantId"`
	Subject    string            `json:"subject"`
	Capability authz.Capability  `json:"capability"`
	Worker     string            `json:"workerId"`
	Generation string            `json:"generation"`
	Protocol   string            `json:"protocol"`
	OpenedAt   time.Time         `json:"openedAt"`
	ActiveAt   time.Time         `json:"activeAt"`

	BytesToWorker int64 `json:"bytesToWorker"`
	BytesToCaller int64 `json:"bytesToCaller"`
}

// Filter chooses channels; an empty field is any.
type Filter struct{ ID, Lease, Tenant, Worker string }

func (f Filter) takes(c *Channel) bool {
	return (f.ID == "" || f.ID == c.ID) && (f.Lease == "" || f.Lease == c.request.LeaseID) &&
		(f.Tenant == "" || f.Tenant == c.tenant) && (f.Worker == "" || f.Worker == c.WorkerID())
}

// List shows the channels that f takes, the oldest first.
func (r *Register) List(f Filter) []Info {
	out := []Info{}
	for _, c := range r.all() {
		if f.takes(c) {
			out = append(out, c.info())
		}
	}
	slices.SortFunc(out, func(a, b Info) int { return a.OpenedAt.Compare(b.OpenedAt) })
	return out
}

// Close ends the channels that f takes, on an operator's word, and returns
// how many they were.
func (r *Register) Close(f Filter) int {
	n := 0
	for _, c := range r.all() {
		if f.takes(c) && c.End(EndOperator) {
			n++
		}
	}
	return n
}

// Counts is the number of channels of each kind, opening ones included.
func (r *Register) Counts() map[authz.ChannelKind]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[authz.ChannelKind]int{}
	for _, c := range r.channels {
		out[c.request.Kind]++
	}
	return out
}

// Forwarded is the number of bytes that all channels have forwarded so far.
func (r *Register) Forwarded() (toWorker, toCaller int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	toWorker, toCaller = r.toWorker, r.toCaller
	for _, c := range r.channels {
		toWorker += c.ToWorker.Bytes.Load()
		toCaller += c.ToCaller.Bytes.Load()
	}
	return toWorker, toCaller
}

func index(m map[string]map[*Channel]struct{}, key string, c *Channel) {
	if m[key] == nil {
		m[key] = map[*Channel]struct{}{}
	}
	m[key][c] = struct{}{}
}

func unindex(m map[string]map[*Channel]struct{}, key string, c *Channel) {
	delete(m[key], c)
	if len(m[key]) == 0 {
		delete(m, key)
	}
}
