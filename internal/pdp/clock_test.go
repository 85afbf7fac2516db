package pdp

import (
	"sluice/internal/authz"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestExpiriesAreExactWhereverTheyLie(t *testing.T) {
	at := func(s string) time.Time {
		parsed, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	for _, test := range []struct {
		now, expiry string
		expired     bool
	}{
		{"2026-10-10T12:00:00Z", "2026-10-10T12:00:00.000000001Z", false},
		{"2026-10-10T12:00:00.000000001Z", "2026-10-10T12:00:00.000000001Z", true},
		{"2026-10-10T12:00:00Z", "9999-12-31T23:59:59Z", false},
		{"2026-10-10T12:00:00Z", "0001-01-01T00:00:00Z", true},
		{"2300-01-01T00:00:00Z", "2301-01-01T00:00:00Z", false},
		{"2300-01-01T00:00:00Z", "2300-01-01T00:00:00Z", true},
		{"2301-01-01T00:00:00Z", "2300-01-01T00:00:00Z", true},
		{"1500-01-01T00:00:00Z", "1501-01-01T00:00:00Z", false},
		{"1500-01-01T00:00:00Z", "1500-01-01T00:00:00Z", true},
		{"2262-04-11T23:47:16.854775807Z", "2262-04-11T23:47:16.854775808Z", false},
	} {
		expiry := at(test.expiry)
		q := question(t, "grants")
		q.Now = at(test.now)
		q.Request.Principal.ExpiresAt = &expiry
		q.View.Snapshot.Lease.ExpiresAt = nil
		input, err := inputTerm(q, nothingClassified, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := readDecision(mustAsk(t, loaded(t, Options{}).set.Load(), input)); (got.Reason == authz.ReasonCredentialExpired) != test.expired {
			t.Errorf("now %s, expiry %s: %s", test.now, test.expiry, got.Reason)
		}
	}
}

// Two expiries and one now: in integers each is later than now exactly when
// it is in truth.
func TestSaturationKeepsTheOrder(t *testing.T) {
	instant := rapid.Custom(func(t *rapid.T) time.Time {
		year := rapid.SampledFrom([]int{1, 1500, 1677, 1678, 2026, 2262, 2263, 2300, 9999}).Draw(t, "year")
		return time.Date(year, 1, 1, 0, 0, 0, rapid.IntRange(0, 3).Draw(t, "nanosecond"), time.UTC).
			Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "days")) * 24 * time.Hour)
	})
	rapid.Check(t, func(t *rapid.T) {
		now, a, b := instant.Draw(t, "now"), instant.Draw(t, "a"), instant.Draw(t, "b")
		at := readInstants(now, &a, &b)
		if (at.principal > at.now) != a.After(now) || (at.lease > at.now) != b.After(now) {
			t.Fatalf("%+v", at)
		}
	})
}
