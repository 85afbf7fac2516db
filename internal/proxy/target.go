package proxy

import (
	"errors"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// wireError is a refusal by one of the strict checks. Its words are fixed and
// hold nothing of what was received, so they may be shown to the caller.
type wireError struct {
	Status int         // HTTP status, 4xx or 5xx
	Detail string      // lower case, visible ASCII and spaces
	Header http.Header // headers that the answer must carry; usually nil
}

func (e *wireError) Error() string { return e.Detail }

func wireRefuse(status int, detail string) *wireError {
	return &wireError{Status: status, Detail: detail}
}

// wireStatus returns the status and words of err when a strict check refused,
// 400 and plain words for any other error.
func wireStatus(err error) (int, string) {
	if e, ok := errors.AsType[*wireError](err); ok {
		return e.Status, e.Detail
	}
	return http.StatusBadRequest, "the request is malformed"
}

// maxTarget bounds a request target, in bytes.
const maxTarget = 8 << 10

// checkTarget splits a raw request target (the request line's of HTTP/1.1, or
// :path) into path and query, when it already is in canonical form, and
// refuses it otherwise. It never repairs: two readers that disagree on what a
// repaired path means are how one path is judged and another one served.
//
// The path starts with a slash and holds RFC 3986 path characters only: no
// "%", no ";", no backslash, no empty segment but a last one, no dot segment.
// The query holds visible ASCII with well-formed %XX, and no ";" (some readers
// split there). A fragment, an absolute form, an authority or an asterisk is
// no canonical target. The error is a *wireError.
func checkTarget(raw string) (path, query string, err error) {
	if len(raw) > maxTarget {
		return "", "", wireRefuse(http.StatusRequestURITooLong, "the request target is too long")
	}
	if raw == "" || raw[0] != '/' {
		return "", "", errTarget
	}
	path, query, _ = strings.Cut(raw, "?")
	if !canonicalPath(path) || !canonicalQuery(query) {
		return "", "", errTarget
	}
	return path, query, nil
}

var errTarget = wireRefuse(http.StatusBadRequest, "the request target is not in canonical form")

func canonicalPath(path string) bool {
	start := 1 // of the segment being read
	for i := 1; i < len(path); i++ {
		if path[i] != '/' {
			if !isPathByte(path[i]) {
				return false
			}
			continue
		}
		if i == start || isDotSegment(path[start:i]) {
			return false
		}
		start = i + 1
	}
	return !isDotSegment(path[start:])
}

func isDotSegment(segment string) bool { return segment == "." || segment == ".." }

// isPathByte reports a pchar of RFC 3986 section 3.3, without "%" and ";".
func isPathByte(c byte) bool { return pathBytes[c] }

var pathBytes = bytesOf("-._~!$&'()*+,=:@")

// bytesOf is the set of letters, digits and others, one entry a byte.
func bytesOf(others string) (set [256]bool) {
	for c := range set {
		set[c] = isAlnum(byte(c)) || strings.IndexByte(others, byte(c)) >= 0
	}
	return set
}

func canonicalQuery(query string) bool {
	for i := 0; i < len(query); i++ {
		switch c := query[i]; {
		case c <= ' ' || c > '~' || c == '#' || c == ';':
			return false
		case c == '%':
			if i+2 >= len(query) || !isHex(query[i+1]) || !isHex(query[i+2]) {
				return false
			}
			i += 2
		}
	}
	return true
}

// checkHost refuses what is no plain "host" or "host:port": a name of letters,
// digits, "-", "_" and ".", an IPv4 address, or an IPv6 address in brackets,
// with a decimal port of 1 to 65535. It is meant for a Host header and for
// :authority; user information, percent escapes and lists are refused.
func checkHost(host string) error {
	name, rest := host, ""
	if strings.HasPrefix(host, "[") {
		end := strings.IndexByte(host, ']')
		if end < 0 || !isIPv6(host[1:end]) {
			return errHost
		}
		rest = host[end+1:]
	} else {
		if i := strings.IndexByte(host, ':'); i >= 0 {
			name, rest = host[:i], host[i:]
		}
		if !isHostName(name) {
			return errHost
		}
	}
	if rest != "" && (rest[0] != ':' || !isPort(rest[1:])) {
		return errHost
	}
	return nil
}

var errHost = wireRefuse(http.StatusBadRequest, "the host is malformed")

func isIPv6(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Is6() && a.Zone() == ""
}

func isHostName(s string) bool {
	if s == "" || len(s) > 255 || s[0] == '.' || strings.Contains(s, "..") {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; !isAlnum(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil && s[0] != '0'
}

func isAlnum(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}
