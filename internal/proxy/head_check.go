package proxy

import "bytes"

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
