package decisionlog

import (
	"context"
	"os"
	"sluice/internal/authz"
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
	unread.Close() // frees the writer: what it writes now is lost, and counted
	before := log.Dropped()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if log.Dropped() <= before {
		t.Error("what could not be written was not counted")
	}
	_ = out.Close()
}
