package authz

import "time"

// Floor is what the gateway insists on whatever the policy says: it returns
// an empty reason only for an authenticated principal of the lease's tenant,
// a fresh well-formed snapshot, an active unexpired lease, and a live worker
// of the pinned plugin; of a channel also, that it leads to the process and the
// sandbox that it was opened on. It stops a policy that was replaced, or is wrong,
// from granting across tenants.
func Floor(q *Question) (Code, Reason) {
	denied := CapabilityCode(q.Request.Capability)
	p, s := q.Request.Principal, q.View.Snapshot
	switch {
	case p == nil:
		return CodeUnauthenticated, ReasonUnauthenticated
	case expired(p.ExpiresAt, q.Now):
		return CodeCredentialExpired, ReasonCredentialExpired
	case !q.View.Fresh:
		return CodeUnavailable, ReasonSnapshotStale
	case s == nil || s.Lease == nil || s.Control == nil:
		return denied, ReasonSnapshotMissing
	case len(s.Malformed) > 0:
		return denied, ReasonRecordMalformed
	case p.TenantID == "" || p.TenantID != s.Lease.TenantID:
		return denied, ReasonTenantMismatch
	case expired(s.Lease.ExpiresAt, q.Now):
		return denied, ReasonLeaseExpired
	case s.Lease.Status != "active":
		return denied, ReasonLeaseNotActive
	}
	return workerFloor(q)
}

func workerFloor(q *Question) (Code, Reason) {
	s, live, pin := q.View.Snapshot, q.Live, q.View.Snapshot.Lease.Pin
	switch {
	case !q.WorkersEnabled || WorkerToAsk(q) == nil || live == nil:
		return CodeWorkerUnavailable, ReasonWorkerUnavailable
	case live.ID != s.WorkerID() || live.Status != "running":
		return CodeWorkerUnavailable, ReasonWorkerUnavailable
	case pin.PluginID == "" || live.PluginID != pin.PluginID || s.Worker.PluginID != pin.PluginID:
		return CodeWorkerUnavailable, ReasonWorkerChanged
	case q.Request.Phase != Open && !sameProcess(q.Request.Channel, live):
		return CodeWorkerUnavailable, ReasonWorkerChanged
	case q.Request.Phase != Open && q.Request.Channel.Sandbox != SandboxOf(s.Lease):
		return CodeWorkerUnavailable, ReasonWorkerChanged
	}
	return "", ""
}

// sameProcess says whether live is the worker process that the channel was
// opened under. The id counts too: generations are unique only within one
// worker, so a lease that was moved to another worker must not keep its
// channel because both call their first process "1".
func sameProcess(c *ChannelFacts, live *Live) bool {
	return c != nil && c.Generation != "" && c.Generation == live.Generation && c.WorkerID == live.ID
}

func expired(at *time.Time, now time.Time) bool { return at != nil && !at.After(now) }
