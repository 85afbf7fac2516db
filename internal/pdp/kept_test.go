package pdp

import (
	"context"
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

// What stands above or below a rule's path, in another package, is part of the
// same document.
func TestARuleThatSharesItsPathIsNotKept(t *testing.T) {
	for name, above := range map[string]string{
		"a partial rule": `p[k] := v if { some k, v in {"x": input.principal.subject} }`,
		"a ref head":     `p.x := input.principal.subject`,
	} {
		e := start(t, Options{Path: files{
			"team.rego":  "package sluice.custom\n\ndeny contains \"banned\" if data.acme.p.x == \"banned\"\n",
			"acme.rego":  "package acme\n\n" + above + "\n",
			"acmep.rego": "package acme.p\n\nx := \"q\" if input.capability == \"never\"\n",
		}.dir(t)})
		q := question(t, "grants")
		if d := e.Decide(t.Context(), q); !d.Allow {
			t.Fatalf("%s: got %+v", name, d)
		}
		q.Request.Principal = &authz.Principal{Subject: "banned", TenantID: q.Request.Principal.TenantID}
		if d := e.Decide(t.Context(), q); d.Allow {
			t.Errorf("%s: the banned caller is allowed", name)
		}
	}
}

// A team's file is a team's file, wherever it lies.
func TestATeamsFileIsNeverTakenForAShippedOne(t *testing.T) {
	dir := files{"policies/sluice/custom/custom.rego": "package sluice.custom\n\ndeny contains \"admitted\" if input.phase == \"admit\"\n"}.dir(t)
	t.Chdir(dir)
	for _, path := range []string{"policies", "./policies", dir} {
		if loaded(t, Options{Path: path}).set.Load().lasting {
			t.Errorf("%s: its rules are not looked at", path)
		}
	}
}

// A team's large list is not kept once more for every lease.
func TestOnlySmallValuesAreKept(t *testing.T) {
	e := start(t, Options{Path: files{
		"team.rego": "package sluice.custom\n\nbanned := {sprintf(\"subject-%d\", [n]) | some n in numbers.range(1, 1000)}\n\n" +
			"deny contains \"banned\" if input.principal.subject in banned\n",
	}.dir(t)})
	q := question(t, "grants")
	if d := e.Decide(t.Context(), q); !d.Allow {
		t.Fatalf("got %+v", d)
	}
	set := e.set.Load()
	kept := 0
	for i := range set.capabilities {
		for _, v := range keptFor(set, q.View.Snapshot, q.WorkersEnabled).last.Load().rules[i].values() {
			kept++
			if !isSmall(v.term) {
				t.Errorf("kept %v", v.term)
			}
		}
	}
	if kept == 0 {
		t.Error("nothing is kept")
	}
}

func TestAfterItsEndAnEngineLetsNoAnswerLast(t *testing.T) {
	e := loaded(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	d := e.Decide(t.Context(), question(t, "grants"))
	if !d.Allow || !e.Lasts(&d) {
		t.Fatalf("got %+v", d)
	}
	cancel()
	<-ended
	if e.Lasts(&d) {
		t.Error("it lasts")
	}
}
