package main

import (
	"strings"
	"testing"
)

const (
	halfTested = "package sluice.custom\n\nimport rego.v2\n\ndeny contains \"x\" if input.capability == \"a\"\n\ndeny contains \"y\" if input.capability == \"b\"\n"
	someTests  = `package sluice.custom_test

import rego.v2

test_good if count(data.sluice.custom.deny) == 1 with input as {"capability": "a"}

test_bad if {
	found := data.sluice.custom.deny with input as {"capability": "c"}
	print("found", found)
	count(found) == 1
}
`
)

func TestAFailedTestShowsWhatItPrintedAndWhereItFailedWithWhat(t *testing.T) {
	dir := writeFiles(t, map[string]string{"a.rego": halfTested, "a_test.rego": someTests})
	got := runWith(t, "", "test", dir)
	if got.code != exitNo || got.stderr != "" || strings.Contains(got.stdout, "test_good") {
		t.Errorf("got %+v", got)
	}
	wantLines(t, got.stdout, "a_test.rego:7: data.sluice.custom_test.test_bad: FAIL\n", "a_test.rego:10:\n", "count(found) == 1\n", "|     set()\n", "  found set()\n", "1 passed, 1 failed")
}

func TestTestsAreChosenByNameAndListedWhenAskedFor(t *testing.T) {
	dir := writeFiles(t, map[string]string{"a.rego": halfTested, "a_test.rego": someTests})
	got := runWith(t, "", "test", "--run", "test_g", "-v", dir)
	if got.code != exitFine || !strings.Contains(got.stdout, "test_good: PASS\n") || !strings.HasSuffix(got.stdout, "1 passed, 0 failed, 0 skipped\n") {
		t.Errorf("got %+v", got)
	}
	if got := runWith(t, "", "test", "--run", "(", dir); got.code != exitUsage {
		t.Errorf("got %+v", got)
	}
}

func TestCoverageCountsTheRulesAndNotTheirTests(t *testing.T) {
	dir := writeFiles(t, map[string]string{"a.rego": halfTested, "a_test.rego": someTests})
	got := runWith(t, "", "test", "--run", "test_good", "--threshold", "60", dir)
	if got.code != exitNo || !strings.Contains(got.stdout, "coverage: 50.00%\n") || strings.Contains(got.stdout, "not covered") {
		t.Errorf("got %+v", got)
	}
	got = runWith(t, "", "test", "--run", "test_good", "--coverage", dir)
	if got.code != exitFine || !strings.Contains(got.stdout, "a.rego:7: not covered\n") || strings.Contains(got.stdout, "_test.rego:") {
		t.Errorf("got %+v", got)
	}
}

func TestTestWarnsOfASetThatTheGatewayWouldRefuse(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"a.rego":      "package sluice.custom\n\ndeny contains \"x\" if time.now_ns() > 3\n",
		"a_test.rego": "package sluice.custom_test\n\ntest_x if data.sluice.custom.deny == {\"x\"}\n",
	})
	got := runWith(t, "", "test", dir)
	if got.code != exitFine || !strings.Contains(got.stdout, "1 passed") {
		t.Errorf("got %+v", got)
	}
	wantLines(t, got.stderr, "warning: the gateway would refuse this set", "a.rego:3:22", "the time is input.now_ns")
}
