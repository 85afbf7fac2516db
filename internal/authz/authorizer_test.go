package authz

import (
	"context"
	"testing"
	"time"
)

// standing is everything that a decision rests on, as the tests set it.
type standing struct {
	broken    bool // looking anything up panics
	looks     int  // at the facts
	view      View
	live      *Live
	lasts     bool
	now       time.Time
	evaluated int
	recorded  []Decision
	inherited *Snapshot
}

func (s *standing) Snapshot(context.Context, string) View {
	if s.broken {
		panic("facts")
	}
	s.looks++
	return s.view
}

func (s *standing) Enabled() bool { return true }

func (s *standing) Live(*Request, *Record) *Live { return s.live }

func (s *standing) Ask(context.Context, *Request, *Record) (*Live, error) { return s.live, nil }

func (s *standing) Capabilities() []Capability { return []Capability{DuplexCommandStream} }

func (s *standing) Decide(context.Context, *Question) Decision {
	s.evaluated++
	return Decision{Allow: true, Code: CodeAllow, Reason: ReasonAllow, Status: 200, Evaluated: 1}
}

func (s *standing) Lasts(*Decision) bool { return s.lasts }

func (s *standing) SameGates(*Decision) bool { return s.lasts }

func (s *standing) Overlooks(*Decision) bool { return s.lasts }

func (s *standing) Inherit(from, to *Snapshot) { s.inherited = to }

func (s *standing) RecordDecision(_ *Request, d *Decision) { s.recorded = append(s.recorded, *d) }

func newStanding() *standing {
	lease := &Record{Kind: KindLease, ID: "lease-1", TenantID: "acme", Status: "active", Pin: Pin{PluginID: "plg", WorkerID: "wrk"}}
	return &standing{
		view: View{Fresh: true, Snapshot: &Snapshot{
			LeaseID: "lease-1", Lease: lease, Control: &Record{Kind: KindControl},
			Worker: &Record{Kind: KindWorker, ID: "wrk", PluginID: "plg"},
		}},
		live:  &Live{ID: "wrk", PluginID: "plg", Status: "running", Generation: "g1"},
		lasts: true, now: time.Unix(1000, 0),
	}
}

// An admit on exactly the facts of its open has the open's answer; whatever
// differs is asked about, and what the Floor refuses is refused.
func TestAnAdmitHasTheOpensAnswerOnlyOnTheSameFacts(t *testing.T) {
	later := time.Unix(1001, 0)
	for name, c := range map[string]struct {
		change func(*standing, *Request)
		asks   bool
		allows bool
	}{
		"nothing changed":             {func(*standing, *Request) {}, false, true},
		"the policy may see more":     {func(s *standing, _ *Request) { s.lasts = false }, true, true},
		"another snapshot, equal":     {func(s *standing, _ *Request) { s.view = newStanding().view }, true, true},
		"the snapshot is stale":       {func(s *standing, _ *Request) { s.view.Fresh = false }, true, false},
		"another document":            {func(s *standing, _ *Request) { s.live = newStanding().live }, true, true},
		"the link dropped":            {func(s *standing, _ *Request) { s.live = nil }, true, false},
		"another process":             {func(s *standing, _ *Request) { s.live.Generation = "g2" }, true, false},
		"the credential expired":      {func(_ *standing, r *Request) { r.Principal.ExpiresAt = &later }, true, false},
		"the credential withdrawn":    {func(_ *standing, r *Request) { r.Principal = nil }, true, false},
		"the credential changed":      {func(_ *standing, r *Request) { r.Principal = &Principal{Subject: "s", TenantID: "acme"} }, true, true},
		"another sandbox":             {func(s *standing, _ *Request) { s.view.Snapshot.Lease.ProviderLeaseID = "another" }, true, false},
		"another driver":              {func(s *standing, _ *Request) { s.view.Snapshot.Lease.Pin.DriverKey = "another" }, true, false},
		"the lease expired":           {func(s *standing, _ *Request) { s.view.Snapshot.Lease.ExpiresAt = &later }, true, false},
		"another tenant's now":        {func(s *standing, _ *Request) { s.view.Snapshot.Lease.TenantID = "other" }, true, false},
		"the capability is forgotten": {func(_ *standing, r *Request) { r.Capability = "unheardOf" }, true, false},
	} {
		s := newStanding()
		a := &Authorizer{Facts: s, Workers: s, Policy: s, Recorder: s, Now: func() time.Time { return s.now }}
		req := &Request{Phase: Open, LeaseID: "lease-1", Capability: DuplexCommandStream, Principal: &Principal{Subject: "s", TenantID: "acme"}}
		opened := a.Authorize(t.Context(), req, nil)
		if !opened.Allow {
			t.Fatalf("%s: the open got %+v", name, opened)
		}
		req.Phase, req.Channel = Admit, &ChannelFacts{WorkerID: "wrk", Generation: "g1"}
		s.now = later
		c.change(s, req)
		before := s.evaluated
		d := a.Admit(t.Context(), req, &opened)
		if asked := s.evaluated > before; asked != c.asks || d.Allow != c.allows {
			t.Errorf("%s: asked %v, got %+v", name, asked, d)
		}
		if len(s.recorded) != 2 || s.recorded[1].ID != d.ID || d.ID == opened.ID {
			t.Errorf("%s: recorded %d decisions, the last as %q", name, len(s.recorded), d.ID)
		}
	}
}

func TestARefusedOpenIsNeverAdmittedUnasked(t *testing.T) {
	s := newStanding()
	a := &Authorizer{Facts: s, Workers: s, Policy: s, Recorder: s}
	req := &Request{
		Phase: Admit, LeaseID: "lease-1", Capability: DuplexCommandStream, Principal: &Principal{Subject: "s", TenantID: "acme"},
		Channel: &ChannelFacts{WorkerID: "wrk", Generation: "g1"},
	}
	a.Admit(t.Context(), req, &Decision{View: s.view, Live: s.live})
	if s.evaluated != 1 {
		t.Error("the policy was not asked")
	}
}

// A recheck that the Floor refuses is not asked about where no earlier gate can
// be the one that fails; else the policy gives the reason.
func TestARecheckAsksThePolicyUnlessTheFloorsReasonIsTheFirst(t *testing.T) {
	past := time.Unix(999, 0)
	lease := func(change func(*Record)) func(*standing, *Request) {
		return func(s *standing, _ *Request) {
			old := s.view.Snapshot
			r := &Record{
				Kind: KindLease, ID: old.Lease.ID, TenantID: old.Lease.TenantID, EnvironmentID: old.Lease.EnvironmentID,
				Status: old.Lease.Status, Pin: old.Lease.Pin,
			}
			change(r)
			s.view.Snapshot = &Snapshot{LeaseID: "lease-1", Lease: r, Control: old.Control, Worker: old.Worker}
		}
	}
	type changes []func(*standing, *Request)
	revoked := lease(func(r *Record) { r.Status = "revoked" })
	expired := lease(func(r *Record) { r.ExpiresAt = &past })
	for name, c := range map[string]struct {
		changes changes
		reason  Reason // "": the policy is asked
	}{
		"nothing changed":              {nil, ""},
		"revoked":                      {changes{revoked}, ReasonLeaseNotActive},
		"expired":                      {changes{expired}, ReasonLeaseExpired},
		"expired and revoked":          {changes{revoked, expired}, ReasonLeaseExpired},
		"given to another tenant":      {changes{lease(func(r *Record) { r.TenantID = "other" })}, ReasonTenantMismatch},
		"another tenant's and revoked": {changes{revoked, lease(func(r *Record) { r.TenantID = "other" })}, ReasonTenantMismatch},
		"deleted":                      {changes{func(s *standing, _ *Request) { s.view.Snapshot = &Snapshot{LeaseID: "lease-1"} }}, ReasonSnapshotMissing},
		"no snapshot at all":           {changes{func(s *standing, _ *Request) { s.view.Snapshot = nil }}, ReasonSnapshotMissing},

		"other gates":              {changes{revoked, func(s *standing, _ *Request) { s.lasts = false }}, ""},
		"revoked, control changed": {changes{revoked, func(s *standing, _ *Request) { s.view.Snapshot.Control = &Record{Kind: KindControl} }}, ""},
		"revoked and moved":        {changes{lease(func(r *Record) { r.Status, r.EnvironmentID = "revoked", "env-2" })}, ""},
		"expired in another environment than asked for": {changes{expired, func(_ *standing, r *Request) { r.EnvironmentID = "env-2" }}, ""},
		"stale": {changes{revoked, func(s *standing, _ *Request) { s.view.Fresh = false }}, ""},
		"malformed": {changes{func(s *standing, _ *Request) {
			s.view.Snapshot = &Snapshot{LeaseID: "lease-1", Malformed: []Kind{KindLease}}
		}}, ""},
		"the credential expired":   {changes{revoked, func(_ *standing, r *Request) { r.Principal.ExpiresAt = &past }}, ""},
		"the credential withdrawn": {changes{revoked, func(_ *standing, r *Request) { r.Principal = nil }}, ""},
		"the link dropped":         {changes{func(s *standing, _ *Request) { s.live = nil }}, ""},
	} {
		s := newStanding()
		a := &Authorizer{Facts: s, Workers: s, Policy: s, Recorder: s, Now: func() time.Time { return s.now }}
		req := &Request{Phase: Open, LeaseID: "lease-1", Capability: DuplexCommandStream, Principal: &Principal{Subject: "s", TenantID: "acme"}}
		last := a.Authorize(t.Context(), req, nil)
		req.Phase, req.Channel = Recheck, &ChannelFacts{WorkerID: "wrk", Generation: "g1"}
		for _, change := range c.changes {
			change(s, req)
		}
		before := s.evaluated
		d := a.Recheck(t.Context(), req, &last)
		switch asked := s.evaluated > before; {
		case asked != (c.reason == ""):
			t.Errorf("%s: asked %v, got %+v", name, asked, d)
		case !asked && (d.Allow || d.Reason != c.reason || d.Code != CodeDuplexDenied):
			t.Errorf("%s: got %+v", name, d)
		}
		if len(s.recorded) != 2 || s.recorded[1].ID != d.ID {
			t.Errorf("%s: recorded %d decisions", name, len(s.recorded))
		}
	}
}

func TestAPanicIsADenialInEveryPhase(t *testing.T) {
	s := newStanding()
	a := &Authorizer{Facts: s, Workers: s, Policy: s, Recorder: s, Now: func() time.Time { return s.now }}
	req := &Request{Phase: Open, LeaseID: "lease-1", Capability: DuplexCommandStream, Principal: &Principal{Subject: "s", TenantID: "acme"}}
	opened := a.Authorize(t.Context(), req, nil)
	req.Channel = &ChannelFacts{WorkerID: "wrk", Generation: "g1"}
	s.broken = true
	for phase, decide := range map[Phase]func() Decision{
		Open:    func() Decision { return a.Authorize(t.Context(), req, nil) },
		Admit:   func() Decision { return a.Admit(t.Context(), req, &opened) },
		Recheck: func() Decision { return a.Recheck(t.Context(), req, &opened) },
	} {
		req.Phase = phase
		before := len(s.recorded)
		if d := decide(); d.Allow || d.Reason != ReasonEvaluationError || len(s.recorded) != before+1 {
			t.Errorf("%s: got %+v, recorded %d", phase, d, len(s.recorded)-before)
		}
	}
}

func TestTheFactsAreLookedUpOnceWhereverTheAnswerComesFrom(t *testing.T) {
	for _, lasts := range []bool{true, false} {
		s := newStanding()
		a := &Authorizer{Facts: s, Workers: s, Policy: s, Recorder: s, Now: func() time.Time { return s.now }}
		req := &Request{Phase: Open, LeaseID: "lease-1", Capability: DuplexCommandStream, Principal: &Principal{Subject: "s", TenantID: "acme"}}
		opened := a.Authorize(t.Context(), req, nil)
		s.lasts = lasts
		req.Channel = &ChannelFacts{WorkerID: "wrk", Generation: "g1"}
		for phase, decide := range map[Phase]func(context.Context, *Request, *Decision) Decision{Admit: a.Admit, Recheck: a.Recheck} {
			req.Phase = phase
			before := s.looks
			if d := decide(t.Context(), req, &opened); !d.Allow || s.looks != before+1 {
				t.Errorf("%s, lasting %v: looked %d times, got %+v", phase, lasts, s.looks-before, d)
			}
		}
	}
}

// One write to the control record concerns every channel at once: whom it says
// nothing new of is not asked about.
func TestAControlRecordThatSaysTheSameOfALeaseAsksNoPolicy(t *testing.T) {
	control := func(change func(*Record)) func(*standing, *Request) {
		return func(s *standing, _ *Request) {
			now := &Record{Kind: KindControl, DuplexEnabled: true, Revision: 2}
			change(now)
			old := s.view.Snapshot
			s.view.Snapshot = &Snapshot{LeaseID: old.LeaseID, Lease: old.Lease, Control: now, Environment: old.Environment, Plugin: old.Plugin, Worker: old.Worker}
		}
	}
	same := control(func(*Record) {})
	type changes []func(*standing, *Request)
	for name, c := range map[string]struct {
		changes changes
		asked   bool
	}{
		"only its revision":      {changes{same}, false},
		"another is suspended":   {changes{control(func(r *Record) { r.SuspendedTenants = []string{"other"} })}, false},
		"this one is suspended":  {changes{control(func(r *Record) { r.SuspendedTenants = []string{"other", "acme"} })}, true},
		"duplex is switched off": {changes{control(func(r *Record) { r.DuplexEnabled = false })}, true},
		"nothing changed":        {nil, true},
		"it is gone":             {changes{control(func(*Record) {}), func(s *standing, _ *Request) { s.view.Snapshot.Control = nil }}, false}, // the Floor's
		"it is malformed":        {changes{same, func(s *standing, _ *Request) { s.view.Snapshot.Malformed = []Kind{KindControl} }}, true},
		"the lease changed too": {changes{same, func(s *standing, _ *Request) {
			l := s.view.Snapshot.Lease
			s.view.Snapshot.Lease = &Record{Kind: l.Kind, ID: l.ID, TenantID: l.TenantID, Status: l.Status, Pin: l.Pin}
		}}, true},
		"an environment is new": {changes{same, func(s *standing, _ *Request) { s.view.Snapshot.Environment = &Record{} }}, true},
		"a plugin is new":       {changes{same, func(s *standing, _ *Request) { s.view.Snapshot.Plugin = &Record{} }}, true},
		"the worker's is new": {changes{same, func(s *standing, _ *Request) {
			w := s.view.Snapshot.Worker
			s.view.Snapshot.Worker = &Record{Kind: w.Kind, ID: w.ID, PluginID: w.PluginID, URL: w.URL}
		}}, true},
		"a new document":           {changes{same, func(s *standing, _ *Request) { s.live = newStanding().live }}, true},
		"the link dropped":         {changes{same, func(s *standing, _ *Request) { s.live = nil }}, true},
		"another process":          {changes{same, func(_ *standing, r *Request) { r.Channel.Generation = "g0" }}, true},
		"it is stale":              {changes{same, func(s *standing, _ *Request) { s.view.Fresh = false }}, true},
		"the credential changed":   {changes{same, func(_ *standing, r *Request) { r.Principal = &Principal{Subject: "s", TenantID: "acme"} }}, true},
		"rules that may look more": {changes{same, func(s *standing, _ *Request) { s.lasts = false }}, true},
	} {
		s := newStanding()
		s.view.Snapshot.Control.DuplexEnabled = true
		a := &Authorizer{Facts: s, Workers: s, Policy: s, Recorder: s, Now: func() time.Time { return s.now }}
		req := &Request{Phase: Open, LeaseID: "lease-1", Capability: DuplexCommandStream, Principal: &Principal{Subject: "s", TenantID: "acme"}}
		last := a.Authorize(t.Context(), req, nil)
		req.Phase, req.Channel = Recheck, &ChannelFacts{WorkerID: "wrk", Generation: "g1"}
		for _, change := range c.changes {
			change(s, req)
		}
		before := s.evaluated
		d := a.Recheck(t.Context(), req, &last)
		if asked := s.evaluated > before; asked != c.asked {
			t.Errorf("%s: asked %v, got %+v", name, asked, d)
		}
		if !c.asked && name != "it is gone" && (!d.Allow || d.View.Snapshot != s.view.Snapshot || s.inherited != s.view.Snapshot || d.ID == last.ID) {
			t.Errorf("%s: got %+v", name, d)
		}
		if len(s.recorded) != 2 || s.recorded[1].ID != d.ID {
			t.Errorf("%s: recorded %d decisions", name, len(s.recorded))
		}
	}
}
