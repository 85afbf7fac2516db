package pdp_test

import (
	"bufio"
	"encoding/json"
	"os"
	"sluice/internal/authz"
	"sluice/internal/pdp"
	"testing"
	"time"
)

// vector is one line of the vectors under policy_test.
type vector struct {
	Name string          `json:"name"`
	Why  string          `json:"why"`
	Case json.RawMessage `json:"case"`
	Want struct {
		Allow  bool         `json:"allow"`
		Code   authz.Code   `json:"code"`
		Ready  bool         `json:"ready"`
		Reason authz.Reason `json:"reason"`
	} `json:"want"`
}

func readVectors(t testing.TB, file string) []vector {
	t.Helper()
	f, err := os.Open("../../policy_test/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var vectors []vector
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var v vector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		vectors = append(vectors, v)
	}
	if err := lines.Err(); err != nil || len(vectors) == 0 {
		t.Fatalf("%d vectors in %s: %v", len(vectors), file, err)
	}
	return vectors
}

// runEngine is an engine with a policy set, at work until the test ends.
func runEngine(t testing.TB, o pdp.Options) *pdp.Engine {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = time.Minute // the machine may be busy with other tests
	}
	e, err := pdp.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended, ctx := make(chan error, 1), t.Context()
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return e
}

func TestEveryVectorIsDecidedAsItSays(t *testing.T) {
	e := runEngine(t, pdp.Options{})
	for _, v := range readVectors(t, "decision.jsonl") {
		t.Run(v.Name, func(t *testing.T) {
			q, err := pdp.ReadCase(v.Case, nil)
			if err != nil {
				t.Fatal(err)
			}
			d := e.Decide(t.Context(), q)
			if d.Allow != v.Want.Allow || d.Code != v.Want.Code || d.Reason != v.Want.Reason {
				t.Errorf("%s: %v %s %s, want %+v", v.Why, d.Allow, d.Code, d.Reason, v.Want)
			}
		})
	}
}

func TestEveryTeardownVectorIsAnsweredAsItSays(t *testing.T) {
	e := runEngine(t, pdp.Options{})
	for _, v := range readVectors(t, "teardown.jsonl") {
		t.Run(v.Name, func(t *testing.T) {
			q, err := pdp.ReadCase(v.Case, nil)
			if err != nil {
				t.Fatal(err)
			}
			ready, reason := e.Teardown(t.Context(), q)
			if ready != v.Want.Ready || authz.Reason(reason) != v.Want.Reason {
				t.Errorf("%s: %v %s, want %+v", v.Why, ready, reason, v.Want)
			}
		})
	}
}
