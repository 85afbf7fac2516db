package pdp

import (
	"encoding/json"
	"slices"
	"sluice/internal/authz"
	"testing"
	"time"
)

func TestAnExplanationNamesEveryGateAndWhatItLookedAt(t *testing.T) {
	e := start(t, Options{})
	x := e.Explain(t.Context(), question(t, "released-and-expired"))
	var failing []int
	for i, g := range x.Gates {
		if g.Gate != i+1 || g.Stage == "" || g.Reason == "" || g.FailsWhen == "" {
			t.Errorf("gate %d: %+v", i+1, g)
		}
		if !g.Pass {
			failing = append(failing, g.Gate)
		}
	}
	if len(x.Gates) != 32 || !slices.Equal(failing, []int{9, 12}) || x.Decision.Reason != authz.ReasonLeaseExpired {
		t.Errorf("%d gates, %v fail, %+v", len(x.Gates), failing, x.Decision)
	}
	if got := x.Gates[11].Values["snapshot.lease.status"]; got != "released" {
		t.Errorf("the status is %v", got)
	}
	if _, there := x.Gates[12].Values["snapshot.environment.status"]; !there {
		t.Error("a value is missing")
	}
	if x.Revision != e.Revision() || x.Effective == nil {
		t.Errorf("got %+v", x)
	}
	if _, err := json.Marshal(x); err != nil {
		t.Error(err)
	}
}

func TestAnExplanationOfAnErrorIsOne(t *testing.T) {
	e := start(t, Options{Path: custom(`deny contains "x" if to_number(input.request.method) == 1`).dir(t)})
	x := e.Explain(t.Context(), question(t, "grants"))
	if x.Decision.Allow || x.Decision.Reason != authz.ReasonEvaluationError || len(x.Gates) != 0 {
		t.Errorf("got %+v", x)
	}
}

func TestAnExplanationRunsOutOfTimeToo(t *testing.T) {
	e := start(t, Options{Path: custom(runaways["a comprehension"]).dir(t), Timeout: 30 * time.Millisecond})
	if x := e.Explain(t.Context(), question(t, "grants")); x.Decision.Reason != authz.ReasonEvaluationTimeout {
		t.Errorf("got %+v", x)
	}
}

func TestEffectiveIsGrantedAndVerified(t *testing.T) {
	e := start(t, Options{})
	q := question(t, "grants")
	if got := e.Effective(q.View.Snapshot, q.Live); got != nil {
		t.Errorf("before any decision: %v", got)
	}
	e.Decide(t.Context(), q)
	want := []authz.Capability{"duplexCommandStream", "independentControlCommands", "nativeSyncIn", "nativeSyncOut", "persistentProcessSessions"}
	if got := e.Effective(q.View.Snapshot, q.Live); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	fewer := &authz.Live{SupportedMethods: []string{"environmentSyncIn", "duplexChannelOpen"}}
	if got := e.Effective(q.View.Snapshot, fewer); !slices.Equal(got, []authz.Capability{"nativeSyncIn"}) {
		t.Errorf("got %v", got)
	}
	if got := e.Effective(q.View.Snapshot, nil); got == nil || len(got) != 0 {
		t.Errorf("without a worker: %v", got)
	}
	if got := e.Effective(nil, q.Live); got != nil {
		t.Errorf("without a snapshot: %v", got)
	}
}
