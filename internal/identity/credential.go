package identity

import (
	"encoding/base64"
	"strings"
)

const (
	// scheme is taken as it is documented, in this case and with one space.
	// RFC 9110 lets schemes vary in case; a second spelling would only be a
	// second way past whatever else looks at this header.
	scheme = "Bearer "

	// protocolPrefix begins a subprotocol that is a credential; behind it
	// stands the token in base64url without padding.
	protocolPrefix = "sluice.bearer."
)

// tokenOfHeader reads "Bearer" SP token68 (RFC 6750 section 2.1); "" is none.
func tokenOfHeader(value string) string {
	token, ok := strings.CutPrefix(value, scheme)
	if !ok || !isToken68(token) {
		return ""
	}
	return token
}

// tokenOfProtocol reads the token out of a subprotocol; "" is none. The prefix
// counts in its documented case alone, the encoding in its canonical form.
func tokenOfProtocol(protocol string) string {
	encoded, ok := strings.CutPrefix(protocol, protocolPrefix)
	if !ok || len(encoded) > base64.RawURLEncoding.EncodedLen(MaxToken) {
		return ""
	}
	token, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil || !isToken68(string(token)) {
		return ""
	}
	return string(token)
}

// isToken68 reports 1 to MaxToken characters of RFC 9110 section 11.2.
func isToken68(s string) bool {
	if len(s) > MaxToken {
		return false
	}
	body := strings.TrimRight(s, "=")
	for i := range len(body) {
		c := body[i]
		alphanumeric := '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !alphanumeric && strings.IndexByte("-._~+/", c) < 0 {
			return false
		}
	}
	return body != ""
}

// isSeveral says whether one Authorization value holds several credentials in
// a list: behind a comma stands a scheme, a space and more. (The parameters of
// one credential are behind commas too, but have "=" in their first word.)
func isSeveral(value string) bool {
	_, rest, _ := strings.Cut(value, ",")
	for part := range strings.SplitSeq(rest, ",") {
		word, more, spaced := strings.Cut(strings.TrimLeft(part, " \t"), " ")
		if spaced && word != "" && more != "" && !strings.ContainsAny(word, `="`) {
			return true
		}
	}
	return false
}

// splitProtocols parts the credentials from the other offered subprotocols,
// however many header lines they are spread over.
func splitProtocols(values []string) (others, credentials []string) {
	for _, value := range values {
		for protocol := range strings.SplitSeq(value, ",") {
			protocol = strings.Trim(protocol, " \t")
			switch {
			case isCredential(protocol):
				credentials = append(credentials, protocol)
			case protocol != "":
				others = append(others, protocol)
			}
		}
	}
	return others, credentials
}

// isCredential takes the prefix in any case, so that a misspelt credential is
// kept from worker and log all the same.
func isCredential(protocol string) bool {
	return len(protocol) >= len(protocolPrefix) && strings.EqualFold(protocol[:len(protocolPrefix)], protocolPrefix)
}

func holdsCredential(value string) bool {
	_, credentials := splitProtocols([]string{value})
	return len(credentials) > 0
}
