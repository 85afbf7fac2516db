package pdp

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestASurveyCountsWhatTheGatewayAsksFor(t *testing.T) {
	s, err := Look(t.Context(), Options{Path: files{
		"a.rego": "package sluice.custom\n\ndeny contains \"x\" if input.version == helper\n\nhelper := 2\n",
		"b.rego": "package sluice.custom\n\ndeny contains \"y\" if input.version == 3\n\nlimits := {\"max_lifetime_ms\": 3} if data.team.rule\n",
		"c.rego": "package team\n\nrule if input.version == 4\n\nunused := 7\n",
	}.dir(t)})
	if err != nil || s.Denies != 2 || s.Limits != 1 || len(s.Faults)+len(s.Warnings) != 0 {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestASurveyFindsWhatIsProbablyNotMeant(t *testing.T) {
	for name, test := range map[string]struct {
		rules string
		want  []string
	}{
		"a misspelt deny":    {"denny contains \"x\" if true", []string{"3:1: nobody asks for denny", "0:0: there is no rule sluice.custom.deny"}},
		"a helper left over": {"deny contains \"x\" if true\n\nhelper(x) := x + 1\n\nhelper(x) := x + 2 if x > 9", []string{"5:1: nobody asks for helper"}},
		"limits of no form":  {"limits := 3", []string{"3:1: limits must be an object"}},
		"an unknown limit":   {`limits := {"max_lifetime": 3} if true`, []string{`3:1: limits: nobody knows "max_lifetime"; there are idle_timeout_ms`}},
	} {
		t.Run(name, func(t *testing.T) { compareSurvey(t, test.rules, test.want) })
	}
}

func TestASurveyFindsANotThatSkipsItsRule(t *testing.T) {
	for expression, skips := range map[string]bool{
		`not startswith(input.snapshot.lease.region, "eu-")`: true,
		`not input.snapshot.lease.region in {"eu"}`:          true,
		`not "x" in input.principal.roles`:                   true,
		`not input.snapshot.lease.revision > 3`:              true,
		`not is_object(input.snapshot.lease.metadata)`:       true,
		`not listed[input.snapshot.lease.tenantId]`:          true,
		`not lower(input.snapshot.lease.region) == "eu"`:     true,
		`not input.snapshot.lease.region != "eu"`:            true,
		`not startswith(place, "eu-")`:                       true,
		`not input.snapshot.lease.region == "eu"`:            false,
		`not input.snapshot.lease.region`:                    false,
		`not helper`:                                         false,
		`not "x" in listed`:                                  false,
		`not startswith("eu-1", "us-")`:                      false,
	} {
		rest := "\n\nhelper if place == \"x\"\n\nplace := input.snapshot.lease.place\n\nlisted contains place\n\ndeny contains \"y\" if \"a\" in listed\n\ndeny contains \"z\" if helper"
		rule := "deny contains \"x\" if " + expression + rest
		want := []string{}
		if skips {
			want = []string{"3:22: without import rego.v2 this not is undefined"}
		}
		compareSurvey(t, rule, want)
		compareSurvey(t, "import rego.v2\n\n"+rule, nil)
	}
}

func compareSurvey(t *testing.T, rules string, want []string) {
	t.Helper()
	s, err := Look(t.Context(), Options{Path: custom(rules).dir(t)})
	if err != nil {
		t.Errorf("%s: %v", rules, err)
		return
	}
	got := slices.Concat(s.Faults, s.Warnings)
	for i, r := range got {
		line := remarkText(r)
		if i >= len(want) || !strings.HasPrefix(line, want[i]) {
			t.Errorf("%s: found %q", rules, line)
		}
	}
	if len(got) < len(want) {
		t.Errorf("%s: found %v, want %q", rules, got, want)
	}
}

func remarkText(r Remark) string { return fmt.Sprintf("%d:%d: %s", r.Line, r.Col, r.Message) }
