package proxy

import (
	"bytes"
	"net/http"
)

const (
	maxMethod = 32  // bytes
	maxFields = 256 // header fields of a head; net/http stops at 500
)

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" // RFC 9113 section 3.4

// isPreface reports that b begins with the HTTP/2 preface, as far as b goes.
func isPreface(b []byte) bool {
	n := min(len(b), len(preface))
	return string(b[:n]) == preface[:n]
}

// headFacts are what a good head says of its body and its connection.
type headFacts struct {
	length  int64 // Content-Length, or 0
	chunked bool
	upgrade bool // the connection is asked to change its protocol
}

// scanHead looks for the end of the head that b begins with, from b[from:] on,
// and returns its length, or 0 when it is not there yet. It refuses a head as
// soon as it holds what none may hold, so that a peer that will never send a
// CRLF gets its answer.
func scanHead(b []byte, from, limit int) (end int, fault *wireError) {
	if from == 0 && !isUpper(b[0]) {
		return 0, headFault("the request line is malformed")
	}
	for i := from; i < len(b) && i < limit; i++ {
		c := b[i]
		afterCR := i > 0 && b[i-1] == '\r'
		switch {
		case c == '\n' && !afterCR:
			return 0, headFault("a line ends without a carriage return")
		case c != '\n' && afterCR:
			return 0, headFault("a carriage return without a line feed")
		case c == '\n' && b[i-2] == '\n':
			return i + 1, nil
		case c < ' ' && c != '\t' && c != '\r' && c != '\n' || c == 0x7f:
			return 0, headFault("the head holds a control byte")
		}
	}
	if len(b) < limit {
		return 0, nil
	}
	if bytes.IndexByte(b[:limit], '\n') < 0 {
		return 0, wireRefuse(http.StatusRequestURITooLong, "the request line is too long")
	}
	return 0, wireRefuse(http.StatusRequestHeaderFieldsTooLarge, "the request head is too large")
}

// checkHead judges a whole head, with its empty line at the end, that scanHead
// found. It knows RFC 9112 and is stricter where that lets a server be
// lenient.
func checkHead(head []byte) (headFacts, *wireError) {
	line, rest, _ := bytes.Cut(head, []byte("\r\n"))
	minor, fault := checkRequestLine(line)
	if fault != nil {
		return headFacts{}, fault
	}
	f := fieldChecker{minor: minor}
	for n := 0; ; n++ {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		if len(line) == 0 {
			return f.facts()
		}
		if n == maxFields {
			return headFacts{}, wireRefuse(http.StatusRequestHeaderFieldsTooLarge, "too many header fields")
		}
		name, value, ok := splitField(line)
		if !ok {
			return headFacts{}, headFault("a header field is malformed")
		}
		if fault := f.check(name, value); fault != nil {
			return headFacts{}, fault
		}
	}
}

// checkRequestLine takes "METHOD SP target SP HTTP/1.x" and nothing else.
func checkRequestLine(line []byte) (minor int, fault *wireError) {
	method, rest, _ := bytes.Cut(line, []byte(" "))
	target, version, ok := bytes.Cut(rest, []byte(" "))
	if !ok || !isMethod(method) || !isVersion(version) {
		return 0, headFault("the request line is malformed")
	}
	switch string(version) {
	case "HTTP/1.1":
		minor = 1
	case "HTTP/1.0":
	default:
		return 0, wireRefuse(http.StatusHTTPVersionNotSupported, "the HTTP version is not supported")
	}
	// net/http answers these two by itself.
	if string(method) == http.MethodConnect || string(method) == http.MethodOptions && string(target) == "*" {
		return 0, wireRefuse(http.StatusMethodNotAllowed, "the method is not allowed")
	}
	if _, _, err := checkTarget(string(target)); err != nil {
		status, detail := wireStatus(err)
		return 0, wireRefuse(status, detail)
	}
	return minor, nil
}

// isMethod reports upper-case letters: every registered method but a few with
// hyphens, which the gateway does not take.
func isMethod(b []byte) bool {
	for _, c := range b {
		if !isUpper(c) {
			return false
		}
	}
	return len(b) > 0 && len(b) <= maxMethod
}

func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }

func isVersion(b []byte) bool {
	return len(b) == len("HTTP/1.1") && string(b[:5]) == "HTTP/" && isDigit(b[5]) && b[6] == '.' && isDigit(b[7])
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// splitField splits one header line, without its CRLF, into name and value
// (RFC 9112 section 5): a token, a colon right behind it, and text. It
// refuses a folded line, a space before the colon and every control byte.
func splitField(line []byte) (name, value []byte, ok bool) {
	name, value, ok = bytes.Cut(line, []byte(":"))
	if !ok || !isToken(name) {
		return nil, nil, false
	}
	value = bytes.Trim(value, " \t")
	return name, value, isText(value)
}

// isText reports visible bytes, spaces and tabs. Bytes above 0x7F are opaque
// (RFC 9110 section 5.5).
func isText(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

func headFault(detail string) *wireError { return wireRefuse(http.StatusBadRequest, detail) }
