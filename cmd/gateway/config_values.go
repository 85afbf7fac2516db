package main

import (
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"strconv"
	"strings"
)

// Secret is a text that is never printed.
type Secret string

const redacted = "[redacted]"

// Reveal returns the text, for handing it to the one who needs it.
func (s Secret) Reveal() string { return string(s) }

// String returns a placeholder, or "" for the empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// Format keeps the text out of every verb, %#v and %x included.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.String()) }

// MarshalText keeps the text out of JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { //nolint:unparam // encoding.TextMarshaler
	return []byte(s.String()), nil
}

// LogValue keeps the text out of logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Size is a number of bytes, written as a whole number with KiB, MiB or GiB
// behind it, or with nothing.
type Size int64

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}}

// UnmarshalText reads a size.
func (s *Size) UnmarshalText(text []byte) error {
	for _, unit := range sizeUnits {
		digits, ok := strings.CutSuffix(string(text), unit.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 63)
		if err != nil || strconv.FormatUint(n, 10) != digits || int64(n) > math.MaxInt64/unit.bytes {
			break
		}
		*s = Size(int64(n) * unit.bytes)
		return nil
	}
	return fmt.Errorf("%q is not %s", text, s.Wanted())
}

// Wanted names what is read.
func (*Size) Wanted() string { return "a size in bytes such as 65536 or 64KiB" }

// String writes the size with the largest unit that divides it.
func (s Size) String() string {
	for _, unit := range sizeUnits {
		if s != 0 && int64(s)%unit.bytes == 0 {
			return strconv.FormatInt(int64(s)/unit.bytes, 10) + unit.suffix
		}
	}
	return "0"
}

// CIDR is a range of addresses in canonical form.
type CIDR netip.Prefix

// UnmarshalText reads a range such as 10.0.0.0/8.
func (c *CIDR) UnmarshalText(text []byte) error {
	prefix, err := parseCIDR(string(text))
	*c = CIDR(prefix)
	return err
}

// String writes the range.
func (c CIDR) String() string { return netip.Prefix(c).String() }

// MarshalText writes the range.
func (c CIDR) MarshalText() ([]byte, error) { return netip.Prefix(c).MarshalText() }

// Wanted names what is read.
func (*CIDR) Wanted() string { return "a range of addresses such as 10.0.0.0/8" }

// parseCIDR refuses what could be meant in two ways: an address without a
// length, bits beyond the length, IPv4 written as IPv6.
func parseCIDR(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil && !strings.Contains(text, "/"):
		return prefix, fmt.Errorf("%q is not a range of addresses; write it with its length, such as 10.1.2.3/32", text)
	case err != nil:
		return prefix, fmt.Errorf("%q is not a range of addresses such as 10.0.0.0/8 or ::1/128", text)
	case prefix.Addr().Is4In6():
		return prefix, fmt.Errorf("%q is IPv4 written as IPv6; write it as IPv4", text)
	case prefix != prefix.Masked():
		return prefix, fmt.Errorf("%q has bits beyond its length; write %s", text, prefix.Masked())
	}
	return prefix, nil
}
