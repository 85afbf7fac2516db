// Package policy_test keeps the vectors that `opa test` reads equal to the
// cases that they are made of. The Rego tests beside it are run by
//
//	go tool opa test policies policy_test
package policy_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"sluice/internal/pdp"
	"testing"
)

var update = flag.Bool("update", false, "rewrite vectors.json")

type vector struct {
	Why   string          `json:"why"`
	Input json.RawMessage `json:"input"`
	Want  json.RawMessage `json:"want"`
}

func TestTheVectorsOfOPAAreTheCasesAsPolicyInputs(t *testing.T) {
	got, err := json.MarshalIndent(map[string]any{
		"vectors":          readCases(t, "decision.jsonl"),
		"teardown_vectors": readCases(t, "teardown.jsonl"),
	}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *update {
		if err := os.WriteFile("vectors.json", got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile("vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatal("vectors.json is not what the cases make; run: go test ./policy_test -update")
	}
}

func readCases(t *testing.T, file string) map[string]vector {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	vectors := map[string]vector{}
	for line := range bytes.Lines(text) {
		var c struct {
			Name, Why  string
			Case, Want json.RawMessage
		}
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		q, err := pdp.ReadCase(c.Case, nil)
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		input, err := pdp.PrintInput(q)
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		if _, twice := vectors[c.Name]; twice {
			t.Fatalf("two vectors are called %s", c.Name)
		}
		vectors[c.Name] = vector{c.Why, input, c.Want}
	}
	return vectors
}
