package proxy

import (
	"bytes"
	"net/http"
	"strings"
)

// fieldChecker judges the fields of one head.
type fieldChecker struct {
	minor   int // of the version
	seen    uint
	length  int64
	hop     bool // Connection names "upgrade"
	chunked bool
}

// The fields that may be there once.
const (
	seenHost = 1 << iota
	seenLength
	seenCoding
	seenType
	seenOrigin
	seenExpect
	seenUpgrade // may be repeated; the handshake's check refuses it then
)

func (f *fieldChecker) check(name, value []byte) *wireError {
	var lower [32]byte
	switch string(lowerName(lower[:0], name)) {
	case "host":
		if checkHost(string(value)) != nil {
			return headFault("the Host header is malformed")
		}
		return f.once(seenHost)
	case "content-length":
		var ok bool
		if f.length, ok = parseLength(value); !ok {
			return headFault("the Content-Length header is malformed")
		}
		return f.once(seenLength)
	case "transfer-encoding":
		return f.coding(value)
	case "content-type":
		return f.once(seenType)
	case "origin":
		return f.once(seenOrigin)
	case "expect":
		if !bytes.EqualFold(value, []byte("100-continue")) {
			return wireRefuse(http.StatusExpectationFailed, "the expectation cannot be met")
		}
		return f.once(seenExpect)
	case "connection":
		return f.connection(value)
	case "upgrade":
		f.seen |= seenUpgrade
	case "trailer":
		return checkTrailerList(value)
	case refusalField:
		return headFault("a header field is malformed")
	}
	return nil
}

func (f *fieldChecker) once(field uint) *wireError {
	if f.seen&field != 0 {
		return headFault("a header field that may be there once is repeated")
	}
	f.seen |= field
	return nil
}

func (f *fieldChecker) coding(value []byte) *wireError {
	switch {
	case f.minor == 0:
		return headFault("HTTP/1.0 has no transfer coding")
	case bytes.EqualFold(value, []byte("chunked")):
		f.chunked = true
		return f.once(seenCoding)
	case isToken(value):
		return wireRefuse(http.StatusNotImplemented, "the transfer coding is not supported")
	}
	return headFault("the Transfer-Encoding header is malformed")
}

func (f *fieldChecker) connection(value []byte) *wireError {
	for part := range bytes.SplitSeq(value, []byte(",")) {
		part = bytes.Trim(part, " \t")
		if !isToken(part) {
			return headFault("the Connection header is malformed")
		}
		f.hop = f.hop || bytes.EqualFold(part, []byte("upgrade"))
	}
	return nil
}

// facts ends the check with what only the whole head shows.
func (f *fieldChecker) facts() (headFacts, *wireError) {
	switch {
	case f.minor == 1 && f.seen&seenHost == 0:
		return headFacts{}, headFault("the Host header is missing")
	case f.chunked && f.seen&seenLength != 0:
		return headFacts{}, headFault("the head has both a Content-Length and a Transfer-Encoding")
	}
	upgrade := f.minor == 1 && f.hop && f.seen&seenUpgrade != 0
	return headFacts{length: f.length, chunked: f.chunked, upgrade: upgrade}, nil
}

func checkTrailerList(value []byte) *wireError {
	names, ok := listOfTokens([]string{string(value)})
	if !ok || len(names) > maxTrailerFields {
		return headFault("the Trailer header is malformed")
	}
	for _, name := range names {
		if !mayTrail(name) {
			return headFault("the Trailer header names a field that cannot be a trailer")
		}
	}
	return nil
}

// mayTrail reports a field that may come behind a body: none that frames,
// routes, authenticates or vouches (RFC 9110 section 6.5.1).
func mayTrail(name string) bool {
	folded := foldName(name)
	if dropsFromRequest(name, folded, false) || strings.HasPrefix(folded, "content-") || strings.HasPrefix(folded, "if-") {
		return false
	}
	switch folded {
	case "cookie", "origin", "range", "cache-control", "max-forwards", "pragma", "age", "date", "location", "vary":
		return false
	}
	return !strings.HasPrefix(folded, "sec-")
}

// lowerName appends name in lower case to dst, if it is short enough to be one
// that is looked for.
func lowerName(dst, name []byte) []byte {
	if len(name) > cap(dst) {
		return dst
	}
	for _, c := range name {
		if isUpper(c) {
			c += 'a' - 'A'
		}
		dst = append(dst, c)
	}
	return dst
}
