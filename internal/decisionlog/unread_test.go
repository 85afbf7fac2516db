package decisionlog

import (
	"bytes"
	"context"
	"os"
	"sluice/internal/authz"
	"strings"
	"testing"
)

// A pipe that nobody reads fills up, and blocks whoever writes into it.
func TestALogThatIsNotReadHoldsUpNobodyAndIsCounted(t *testing.T) {
	unread, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	const queue, recorded = 64, 5000
	log := New(Options{Out: out, Queue: queue})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- log.Run(ctx) }()

	d := authz.Deny(authz.CodeDuplexDenied, authz.ReasonLeaseNotActive)
	for range recorded {
		log.RecordDecision(&authz.Request{Phase: authz.Open, LeaseID: "lease-1"}, &d) // returns, or the test times out
	}
	if n := log.Dropped(); n == 0 || n >= recorded {
		t.Errorf("%d of %d records were dropped", n, recorded)
	}
	before := log.Dropped()
	unread.Close() // frees the writer: what it writes now is lost, and counted
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if log.Dropped() <= before {
		t.Error("what could not be written was not counted")
	}
	_ = out.Close()
}

// What a lease can do is a list, also when nothing is known of it; and a denial
// that was reached without evaluating still names the process.
func TestADecisionThatWasNotEvaluatedIsWrittenWhole(t *testing.T) {
	var out bytes.Buffer
	log := New(Options{Out: &out})
	d := authz.Deny(authz.CodeDuplexDenied, authz.ReasonLeaseNotActive)
	d.Live = &authz.Live{Generation: "g1"}
	log.RecordDecision(&authz.Request{Phase: authz.Recheck, LeaseID: "lease-1"}, &d)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := log.Run(ctx); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"effective":[]`, `"worker_generation":"g1"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is missing in %s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "timer_rego_query_eval_ns") {
		t.Errorf("an evaluation is timed that was not: %s", out.String())
	}
}
