package authz

import (
	"sync/atomic"
	"time"
)

// Kind names a kind of record.
type Kind string

// The kinds of records.
const (
	KindLease       Kind = "lease"
	KindEnvironment Kind = "environment"
	KindPlugin      Kind = "plugin"
	KindWorker      Kind = "worker"
	KindControl     Kind = "control"
)

// Slot keeps one value that another package derived from the value that holds
// the slot (the policy keeps its terms here). The zero Slot is empty. It is
// safe for concurrent use; a later Store wins.
type Slot struct{ v atomic.Pointer[any] }

// Load returns the kept value, or nil.
func (s *Slot) Load() any {
	if p := s.v.Load(); p != nil {
		return *p
	}
	return nil
}

// Store keeps v.
func (s *Slot) Store(v any) { s.v.Store(&v) }

// Record is one well-formed record of the store, at one revision. Records are
// immutable and shared between the snapshots that join them.
type Record struct {
	Kind     Kind
	ID       string // "" for the control record
	Revision int64

	// JSON is the compact JSON object of the fields that policy may see.
	JSON []byte

	// The fields that the gateway itself acts on; zero where the kind has no
	// such field or the record does not set it.
	TenantID        string // lease, environment, plugin, worker
	EnvironmentID   string // lease
	Status          string // lease, environment, plugin
	PluginID        string // worker
	URL             string // worker
	ExpiresAt       *time.Time
	ProviderLeaseID string // lease
	Pin             Pin    // lease

	DuplexEnabled    bool     // control
	SuspendedTenants []string // control

	Derived Slot // the policy's form of this record
}

// Pin is the identity that the control plane fixed when the lease was
// acquired. A member that is not a string in the record is "" here: the
// gates judge the record's own values, these are for following them.
type Pin struct {
	Driver, PluginID, DriverKey, WorkerID string
}

// Snapshot is what the store says of one lease: the lease and the records
// that its ids lead to. A nil record is absent or malformed; Malformed names
// the needed kinds that are malformed. Snapshots are immutable.
type Snapshot struct {
	LeaseID     string
	Lease       *Record
	Environment *Record
	Plugin      *Record
	Worker      *Record
	Control     *Record
	Malformed   []Kind

	Derived Slot // the policy's terms and classification of this snapshot
}

// WorkerID is the id of the lease's worker: the pinned one or, without one,
// the worker that bears the plugin's id. It is "" when there is no lease.
func (s *Snapshot) WorkerID() string {
	switch {
	case s == nil || s.Lease == nil:
		return ""
	case s.Lease.Pin.WorkerID != "":
		return s.Lease.Pin.WorkerID
	default:
		return s.Lease.Pin.PluginID
	}
}

// Live is a worker's live document. It is bound to its generation, dies with
// the link it came over, and is immutable.
type Live struct {
	ID               string
	PluginID         string
	Status           string
	Generation       string
	SupportedMethods []string

	Address string // host:port that the document came from; "" for static
	Static  bool   // the operator's word (workers.link: static)

	Derived Slot // the policy's form of this document
}

// View is a snapshot as far as it could be confirmed.
type View struct {
	Snapshot  *Snapshot // nil only when nothing is known
	Fresh     bool      // confirmed within the age limit
	Confirmed time.Time // as of when; zero when never. Carries a monotonic reading
	Err       error     // why it is not fresh, for the log
}
