package snapshot

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json/jsontext"
	"hash"
	"math/big"
	"slices"
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
	writeCanonical(h, n)
	return digest(h.Sum(nil)[:16])
}

func writeCanonical(h hash.Hash, n *node) {
	h.Write([]byte{byte(n.kind)})
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

func writeCount(h hash.Hash, n int) {
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(n)))
}

func writeText(h hash.Hash, s string) {
	writeCount(h, len(s))
	h.Write([]byte(s))
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
	e, _ := new(big.Int).SetString(exponent, 10)
	e.Add(e, big.NewInt(int64(len(digits)-len(trimmed)-len(part))))
	return sign + trimmed + "e" + e.String()
}
