package snapshot

import (
	"bufio"
	"crypto/sha256"
	"encoding/json/jsontext"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// digest stands for the content of a record's whole value, dropped fields
// included: two texts have the same digest when they are the same JSON value,
// however they are written. Order of names, white space, escapes and the
// spelling of a number make no difference, nor does a null in place of an
// absent member, for the two mean the same everywhere. It is cut to half of
// a SHA-256: a writer must not be able to find a second content.
type digest [16]byte

func digestOf(n *node) digest {
	h := sha256.New()
	w := bufio.NewWriterSize(h, 4<<10) // the hash never fails
	writeCanonical(w, n)
	_ = w.Flush()
	return digest(h.Sum(nil)[:16])
}

func writeCanonical(h *bufio.Writer, n *node) {
	_ = h.WriteByte(byte(n.kind))
	switch n.kind {
	case jsontext.KindString:
		writeText(h, n.str)
	case jsontext.KindNumber:
		writeText(h, canonicalNumber(n.str))
	case jsontext.KindBeginArray:
		writeCount(h, len(n.items))
		for i := range n.items {
			writeCanonical(h, &n.items[i])
		}
	case jsontext.KindBeginObject:
		members := slices.DeleteFunc(slices.Clone(n.members), func(m member) bool {
			return m.value.kind == jsontext.KindNull
		})
		slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.name, b.name) })
		writeCount(h, len(members))
		for i := range members {
			writeText(h, members[i].name)
			writeCanonical(h, &members[i].value)
		}
	}
}

func writeCount(h *bufio.Writer, n int) {
	for shift := 24; shift >= 0; shift -= 8 {
		_ = h.WriteByte(byte(n >> shift))
	}
}

func writeText(h *bufio.Writer, s string) {
	writeCount(h, len(s))
	_, _ = h.WriteString(s)
}

// canonicalNumber writes a JSON number as its digits without zeros at either
// end, and a power of ten: 1, 1.0 and 10e-1 are all "1e0". Nothing is
// rounded, and a large exponent is never expanded.
func canonicalNumber(s string) string {
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	mantissa, exponent := s, "0"
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		mantissa, exponent = s[:i], strings.TrimPrefix(s[i+1:], "+")
	}
	whole, part, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+part, "0")
	trimmed := strings.TrimRight(digits, "0")
	if trimmed == "" {
		return "0"
	}
	if len(exponent) > 1000 {
		return sign + s // beyond any use: its literal text stands for it
	}
	shift := int64(len(digits) - len(trimmed) - len(part))
	if e, err := strconv.ParseInt(exponent, 10, 62); err == nil {
		return sign + trimmed + "e" + strconv.FormatInt(e+shift, 10)
	}
	e, _ := new(big.Int).SetString(exponent, 10)
	return sign + trimmed + "e" + e.Add(e, big.NewInt(shift)).String()
}
