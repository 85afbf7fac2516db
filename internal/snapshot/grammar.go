package snapshot

import (
	"errors"
	"strings"
	"time"
)

const (
	idGrammar   = "[A-Za-z0-9][A-Za-z0-9_-]{0,127}"
	timeGrammar = "YYYY-MM-DDThh:mm:ss, an optional fraction, then Z or ±hh:mm"
	maxToken    = 512
	maxID       = 128
)

// ValidID reports whether s is an id: [A-Za-z0-9][A-Za-z0-9_-]{0,127}. What
// is no id is never looked up, so that no text of a stranger becomes a path
// or a key.
func ValidID(s string) bool {
	if s == "" || len(s) > maxID || s[0] == '_' || s[0] == '-' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !digit(c) && !('a' <= c && c <= 'z') && !('A' <= c && c <= 'Z') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// ValidToken reports whether s is 1 to 512 visible ASCII characters.
func ValidToken(s string) bool {
	if s == "" || len(s) > maxToken {
		return false
	}
	for i := range len(s) {
		if s[i] < 0x21 || s[i] > 0x7E {
			return false
		}
	}
	return true
}

var errTime = errors.New("is no time (" + timeGrammar + ")")

// ParseTime reads a time of a record, strictly YYYY-MM-DDThh:mm:ss, an
// optional point and digits, then Z or ±hh:mm: capital T and Z, a real date,
// no leap second, offsets to 23:59. Digits beyond the nanosecond are cut off.
// Any year from 0000 to 9999 is held, also beyond what int64 nanoseconds are.
func ParseTime(s string) (time.Time, error) {
	const seconds = len("2006-01-02T15:04:05")
	if len(s) <= seconds || !shaped(s[:seconds], "dddd-dd-ddTdd:dd:dd") {
		return time.Time{}, errTime
	}
	nanos, rest, ok := fraction(s[seconds:])
	if !ok {
		return time.Time{}, errTime
	}
	offset, ok := zone(rest)
	if !ok {
		return time.Time{}, errTime
	}
	year, month, day := number(s[0:4]), number(s[5:7]), number(s[8:10])
	hour, minute, second := number(s[11:13]), number(s[14:16]), number(s[17:19])
	t := time.Date(year, time.Month(month), day, hour, minute, second, nanos, time.UTC)
	// time.Date carries what is too large over into the next field; a field
	// that came back changed was not real.
	if t.Year() != year || int(t.Month()) != month || t.Day() != day ||
		t.Hour() != hour || t.Minute() != minute || t.Second() != second {
		return time.Time{}, errTime
	}
	return t.Add(-offset), nil
}

// fraction reads an optional ".digits" and returns what is behind it.
func fraction(s string) (nanos int, rest string, ok bool) {
	if s == "" || s[0] != '.' {
		return 0, s, true
	}
	digits := s[1:]
	if i := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		digits, rest = digits[:i], digits[i:]
	}
	if digits == "" {
		return 0, "", false
	}
	return number((digits + "000000000")[:9]), rest, true
}

func zone(s string) (time.Duration, bool) {
	if s == "Z" {
		return 0, true
	}
	if !shaped(s, "+dd:dd") && !shaped(s, "-dd:dd") {
		return 0, false
	}
	hours, minutes := number(s[1:3]), number(s[4:6])
	if hours > 23 || minutes > 59 {
		return 0, false
	}
	offset := time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute
	if s[0] == '-' {
		offset = -offset
	}
	return offset, true
}

// shaped compares s with a shape in which d stands for a digit.
func shaped(s, shape string) bool {
	if len(s) != len(shape) {
		return false
	}
	for i := range len(s) {
		if shape[i] == 'd' && digit(s[i]) || shape[i] != 'd' && shape[i] == s[i] {
			continue
		}
		return false
	}
	return true
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

// number reads digits; the callers have looked at each.
func number(s string) (n int) {
	for i := range len(s) {
		n = n*10 + int(s[i]-'0')
	}
	return n
}
