package pdp

import (
	"context"
	"sluice/internal/authz"
	"sluice/internal/snapshot"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
)

// facts are what an Authorizer asks, as a test sets them.
type facts struct {
	view authz.View
	live *authz.Live
}

func (f *facts) Snapshot(context.Context, string) authz.View    { return f.view }
func (f *facts) Enabled() bool                                  { return true }
func (f *facts) Live(*authz.Request, *authz.Record) *authz.Live { return f.live }
func (f *facts) RecordDecision(*authz.Request, *authz.Decision) {}
func (f *facts) Ask(context.Context, *authz.Request, *authz.Record) (*authz.Live, error) {
	return f.live, nil
}

// What the authorizer answers to a recheck after a write to the control record,
// asked or not, is what the policy says of it from the beginning.
func TestARecheckAfterAControlWriteIsAnsweredAsThePolicyWould(t *testing.T) {
	e := start(t, Options{})
	texts := []string{
		`{"duplexEnabled":true,"revision":1}`, `{"duplexEnabled":true,"revision":2}`, `{"duplexEnabled":false,"revision":3}`,
		`{"duplexEnabled":"true","revision":4}`, `{"duplexEnabled":1,"revision":5}`, `{"duplexEnabled":null,"revision":6}`, `{"revision":7}`,
		`{"duplexEnabled":true,"suspendedTenants":null,"revision":8}`, `{"duplexEnabled":true,"suspendedTenants":[],"revision":9}`,
		`{"duplexEnabled":true,"suspendedTenants":["other"],"revision":10}`, `{"duplexEnabled":true,"suspendedTenants":["other","TENANT"],"revision":11}`,
		`{"duplexEnabled":false,"suspendedTenants":["TENANT"],"revision":12}`, `{"duplexEnabled":true,"suspendedTenants":["tenant","TENANT2"],"revision":13}`,
	}
	base := question(t, "grants")
	tenant := base.View.Snapshot.Lease.TenantID
	asked, unasked := 0, 0
	for _, capability := range []authz.Capability{authz.DuplexCommandStream, "independentControlCommands"} {
		for _, before := range texts {
			for _, after := range texts {
				with := func(text string) *authz.Snapshot {
					r, err := snapshot.Decode(authz.KindControl, "", []byte(strings.ReplaceAll(text, "TENANT", tenant)), nil)
					if err != nil {
						t.Fatal(err)
					}
					s := base.View.Snapshot
					return &authz.Snapshot{LeaseID: s.LeaseID, Lease: s.Lease, Control: r, Environment: s.Environment, Plugin: s.Plugin, Worker: s.Worker}
				}
				f := &facts{view: authz.View{Fresh: true, Snapshot: with(before), Confirmed: base.View.Confirmed}, live: base.Live}
				a := &authz.Authorizer{Facts: f, Workers: f, Policy: e, Recorder: f, Now: func() time.Time { return base.Now }}
				req := *base.Request
				req.Capability, req.Principal = capability, base.Request.Principal
				last := a.Authorize(t.Context(), &req, nil)
				if !last.Allow {
					continue
				}
				req.Phase = authz.Recheck
				req.Channel = &authz.ChannelFacts{
					WorkerID: f.live.ID, Generation: f.live.Generation, Sandbox: authz.SandboxOf(f.view.Snapshot.Lease),
				}
				f.view.Snapshot = with(after)
				got := a.Recheck(t.Context(), &req, &last)
				fresh := authz.Question{Request: &req, View: f.view, Live: f.live, Now: base.Now, WorkersEnabled: true}
				fresh.View.Snapshot = with(after)
				want := authz.Answer(t.Context(), e, &fresh)
				if got.Allow != want.Allow || got.Reason != want.Reason || got.Code != want.Code {
					t.Errorf("%s: %s, then %s: got %s, the policy says %s", capability, before, after, got.Reason, want.Reason)
				}
				if got.Evaluated == 0 {
					unasked++
				} else {
					asked++
				}
			}
		}
	}
	if asked < 20 || unasked < 20 {
		t.Errorf("%d were asked, %d were not: one of the two is not tested", asked, unasked)
	}
}

// The authorizer knows what the shipped gates look at of the control record; a
// gate that looks at more must not be overlooked.
func TestTheShippedGatesLookAtNothingElseOfTheControlRecord(t *testing.T) {
	set := loaded(t, Options{}).set.Load()
	for name, m := range set.compiler.Modules {
		if strings.Contains(name, "/explain/") {
			continue
		}
		ast.WalkRefs(m, func(ref ast.Ref) bool {
			if ref[0].Equal(ast.InputRootDocument) && fieldName(ref, 1) == "snapshot" && fieldName(ref, 2) == "control" {
				switch fieldName(ref, 3) {
				case "duplexEnabled", "suspendedTenants", "revision":
				default:
					t.Errorf("%s looks at %s", name, ref)
				}
			}
			return false
		})
	}
}

func TestRulesThatLookAtTheControlRecordAreAskedAfterEveryWriteToIt(t *testing.T) {
	for rule, overlooks := range map[string]bool{
		`deny contains "d" if input.snapshot.lease.metadata.frozen`:             true,
		`deny contains "d" if input.principal.subject == "banned"`:              true,
		`deny contains "d" if input.snapshot.control.region == "x"`:             false,
		`deny contains "d" if input.snapshot["control"].duplexEnabled`:          false,
		`deny contains "d" if { some name; input.snapshot[name].revision > 5 }`: false,
		`deny contains "d" if { s := input.snapshot; s.control.revision > 5 }`:  false,
		`deny contains "d" if { all := input; all.snapshot.control }`:           false,
		`deny contains "d" if data.sluice.capability.kill_switch != {}`:         false,
		`deny contains "d" if input.now_ns > 5`:                                 false,
	} {
		e := loaded(t, Options{Path: custom(rule).dir(t)})
		d := authz.Decision{Allow: true, Policy: e.Revision()}
		if got := e.Overlooks(&d); got != overlooks {
			t.Errorf("%s: got %v", rule, got)
		}
		if e.Overlooks(&authz.Decision{Allow: true, Policy: "another"}) {
			t.Errorf("%s: an answer of another set is overlooked", rule)
		}
	}
	if set := replaced(t, `decision := {"allow": false}`); set.Overlooks(&authz.Decision{Policy: set.Revision()}) {
		t.Error("gates that a team brings may look at more")
	}
}
