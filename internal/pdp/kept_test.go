package pdp

import (
	"slices"
	"sluice/internal/authz"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
)

// What a rule of the team's looks at says whether an open's answer is its
// admit's, and whether its value is kept with the snapshot.
func TestWhatATeamsRulesLookAtSaysHowLongTheirAnswersLast(t *testing.T) {
	for rule, want := range map[string]struct{ lasts, kept bool }{
		`deny contains "d" if input.snapshot.lease.metadata.frozen`:                          {true, true},
		`deny contains "d" if input.snapshot.live.generation == input.capability`:            {true, true},
		`deny contains "d" if data.sluice.authz.worker_available`:                            {true, true},
		`deny contains "d" if input.principal.subject == "banned"`:                           {true, false},
		`deny contains "d" if input.request.method == "DELETE"`:                              {true, false},
		`deny contains "d" if helper`:                                                        {true, false}, // see below
		`deny contains "d" if input.phase == "admit"`:                                        {false, false},
		`deny contains "d" if input.now_ns > 5`:                                              {false, false},
		`deny contains "d" if input.channel.id == "c"`:                                       {false, false},
		`deny contains "d" if input.snapshot.age_ms > 5`:                                     {false, false},
		`deny contains "d" if input.snapshot["age_ms"] > 5`:                                  {false, false},
		`deny contains "d" if { some field; input.snapshot[field] == 5 }`:                    {false, false},
		`deny contains "d" if { some field; input[field] == "admit" }`:                       {false, false},
		`deny contains "d" if { whole := input; whole.phase == "admit" }`:                    {false, false},
		`deny contains "d" if data.sluice.authz.credential_current`:                          {false, false},
		`deny contains "d" if not data.sluice.authz.generation_kept`:                         {false, false},
		`deny contains "d" if data.sluice.authz.lease_never_expires with input.phase as "x"`: {false, false},
	} {
		module := rule
		if rule == `deny contains "d" if helper` {
			module += "\n\nhelper if { 1 == 2 } else if input.principal.subject == \"banned\""
		}
		set := loaded(t, Options{Path: custom(module).dir(t)}).set.Load()
		kept := slices.ContainsFunc(set.steady, func(path ast.Ref) bool { return path.String() == "data.sluice.custom.deny" })
		if set.lasting != want.lasts || kept != want.kept {
			t.Errorf("%s: lasts %v, kept %v; want %+v", rule, set.lasting, kept, want)
		}
	}
}

func TestGatesThatATeamBringsItselfAnswerAnAdmitAnew(t *testing.T) {
	set := replaced(t, `decision := {"allow": false}`).set.Load()
	if set.lasting {
		t.Error("they may be other gates")
	}
}

func TestAnAnswerLastsUnderTheSetThatGaveItAlone(t *testing.T) {
	dir := custom(`deny contains "no" if false`).dir(t)
	e := start(t, Options{Path: dir})
	d := e.Decide(t.Context(), question(t, "grants"))
	if !d.Allow || !e.Lasts(&d) {
		t.Fatalf("got %+v", d)
	}
	custom(`deny contains "yes" if true`).write(t, dir)
	if err := e.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e.Lasts(&d) {
		t.Error("it outlives its set")
	}
}

// A value that was kept for one question is no other question's.
func TestKeptRulesAnswerOnlyForTheirSnapshotDocumentAndCapability(t *testing.T) {
	e := start(t, Options{})
	q := question(t, "grants")
	decide := func(want bool, change func(*authz.Question)) {
		t.Helper()
		other, request := *q, *q.Request
		other.Request = &request
		change(&other)
		if d := e.Decide(t.Context(), &other); d.Allow != want {
			t.Errorf("got %+v", d)
		}
	}
	same := func(*authz.Question) {}
	decide(true, same)
	decide(true, same) // from what is kept
	decide(false, func(q *authz.Question) { q.Request.Capability = "unheardOf" })
	decide(false, func(q *authz.Question) { q.Live = nil })
	decide(false, func(q *authz.Question) {
		l := q.Live
		q.Live = &authz.Live{ID: l.ID, PluginID: l.PluginID, Status: "stopping", Generation: l.Generation, SupportedMethods: l.SupportedMethods}
	})
	decide(false, func(q *authz.Question) { q.View.Fresh = false })
	decide(false, func(q *authz.Question) { q.WorkersEnabled = false })
	decide(false, func(q *authz.Question) { q.Request.Principal = &authz.Principal{Subject: "s", TenantID: "other"} })
	past := q.Now.Add(-time.Hour)
	decide(false, func(q *authz.Question) {
		p := q.Request.Principal
		q.Request.Principal = &authz.Principal{Subject: p.Subject, TenantID: p.TenantID, ExpiresAt: &past}
	})
	decide(true, same)
}
