package snapshot

import (
	"strings"
	"testing"
	"time"
)

func TestValidID(t *testing.T) {
	for _, s := range []string{"a", "0", "A-b_C", strings.Repeat("x", 128)} {
		if !ValidID(s) {
			t.Errorf("%q is an id", s)
		}
	}
	for _, s := range []string{"", "-a", "_a", "a b", "a.b", "a/b", "../x", "a\x00", "ä", "a\n", strings.Repeat("x", 129), "a%", "a:b", "a*"} {
		if ValidID(s) {
			t.Errorf("%q is no id", s)
		}
	}
}

func TestValidToken(t *testing.T) {
	for _, s := range []string{"a", "!~", strings.Repeat("x", 512)} {
		if !ValidToken(s) {
			t.Errorf("%q is a token", s)
		}
	}
	for _, s := range []string{"", " ", "a b", "\x7f", "ä", "a\n", strings.Repeat("x", 513)} {
		if ValidToken(s) {
			t.Errorf("%q is no token", s)
		}
	}
}

func TestParseTime(t *testing.T) {
	for s, want := range map[string]time.Time{
		"2026-10-10T13:00:00Z":                time.Date(2026, 10, 10, 13, 0, 0, 0, time.UTC),
		"2026-10-10T13:00:00+02:30":           time.Date(2026, 10, 10, 10, 30, 0, 0, time.UTC),
		"2026-10-10T13:00:00-23:59":           time.Date(2026, 10, 11, 12, 59, 0, 0, time.UTC),
		"2026-10-10T13:00:00-00:00":           time.Date(2026, 10, 10, 13, 0, 0, 0, time.UTC),
		"2026-10-10T13:00:00.5Z":              time.Date(2026, 10, 10, 13, 0, 0, 500_000_000, time.UTC),
		"2026-10-10T13:00:00.0000000019Z":     time.Date(2026, 10, 10, 13, 0, 0, 1, time.UTC),
		"2024-02-29T23:59:59Z":                time.Date(2024, 2, 29, 23, 59, 59, 0, time.UTC),
		"9999-12-31T23:59:59.999999999-23:59": time.Date(10000, 1, 1, 23, 58, 59, 999_999_999, time.UTC),
		"0000-01-01T00:00:00+00:01":           time.Date(-1, 12, 31, 23, 59, 0, 0, time.UTC),
		"2262-04-11T23:47:16.854775808Z":      time.Date(2262, 4, 11, 23, 47, 16, 854_775_808, time.UTC),
	} {
		if got, err := ParseTime(s); err != nil || !got.Equal(want) {
			t.Errorf("%s: got %v, %v", s, got, err)
		}
	}
	for _, s := range []string{
		"", "2026-10-10", "2026-10-10T13:00:00", "2026-10-10t13:00:00Z", "2026-10-10T13:00:00z", "2026-10-10 13:00:00Z",
		"2026-10-10T13:00:00.Z", "2026-10-10T13:00:00,5Z", "2026-10-10T13:00:00.5", "2026-10-10T13:00Z", "2026-10-10T24:00:00Z",
		"2026-10-10T13:60:00Z", "2026-10-10T13:00:60Z", "2026-02-29T13:00:00Z", "2026-00-10T13:00:00Z", "2026-13-10T13:00:00Z",
		"2026-04-31T13:00:00Z", "2026-10-00T13:00:00Z", "2026-10-10T13:00:00+24:00", "2026-10-10T13:00:00+02:60",
		"2026-10-10T13:00:00+0200", "2026-10-10T13:00:00+02", "2026-10-10T13:00:00 Z", "2026-10-10T13:00:00ZZ", " 2026-10-10T13:00:00Z",
		"26-10-10T13:00:00Z", "2026-1-10T13:00:00Z", "+2026-10-10T13:00:00Z", "20260-10-10T13:00:00Z", "2026-10-10T13:00:00−02:00",
		"٢٠٢٦-10-10T13:00:00Z", "2026-10-10T13:00:00.5.5Z", "2026-10-10T13:00:00.1٢Z",
	} {
		if got, err := ParseTime(s); err == nil {
			t.Errorf("%q was read as %v", s, got)
		}
	}
}
