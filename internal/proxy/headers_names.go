package proxy

import (
	"net/http"
	"strings"
)

// foldName is a header's name as a server that maps headers to variables sees
// it: lower case, "_" and "." read as "-". Such servers take X_Forwarded_For
// for X-Forwarded-For, so it is removed like it.
func foldName(name string) string { return nameFolder.Replace(strings.ToLower(name)) }

var nameFolder = strings.NewReplacer("_", "-", ".", "-")

// connectionNames are the names, lower case, that the Connection headers list.
func connectionNames(in http.Header) map[string]bool {
	var names map[string]bool
	for _, v := range in["Connection"] {
		for part := range strings.SplitSeq(v, ",") {
			if names == nil {
				names = make(map[string]bool)
			}
			names[strings.ToLower(strings.Trim(part, " \t"))] = true
		}
	}
	return names
}

func dropsFromRequest(name, folded string, trusted bool) bool {
	switch {
	case isHopByHop(folded), isGatewayHeader(folded), isDisguise(folded), isCredential(folded), folded == "host":
		return true
	case isForwardingHeader(folded):
		return !trusted || isAlias(name)
	}
	return isAlias(name) && isOwnedByHTTP(folded)
}

// dropSpoofed takes from what policy and log see of a request what its worker
// does not get either: what could be taken for the gateway's word, or for that
// of a proxy that is not trusted.
func dropSpoofed(h http.Header, trusted bool) {
	for name := range h {
		if strings.HasPrefix(name, "Sec-") || !strings.ContainsAny(name[:1], "BCDFPRSTX") {
			continue // none begins so: the HTTP server made the names canonical
		}
		folded := foldName(name)
		own := strings.HasPrefix(folded, ownPrefix) && name != "Sluice-Environment-Id"
		if own || isDisguise(folded) || isForwardingHeader(folded) && (!trusted || isAlias(name)) {
			delete(h, name)
		}
	}
}

// isAlias reports a name that only folding makes equal to another one.
func isAlias(name string) bool { return strings.ContainsAny(name, "_.") }

// isGatewayHeader reports what only the gateway says to a worker.
func isGatewayHeader(folded string) bool {
	switch folded {
	case "x-request-id", "traceparent":
		return true
	}
	return strings.HasPrefix(folded, ownPrefix)
}

// ownPrefix begins the names of the gateway's own headers.
const ownPrefix = "sluice-"

// isForwardingHeader reports what only a trusted proxy may say.
func isForwardingHeader(folded string) bool {
	switch folded {
	case "forwarded", "x-forwarded", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "true-client-ip",
		"client-ip", "cf-connecting-ip", "fastly-client-ip", "x-original-forwarded-for":
		return true
	}
	return strings.HasPrefix(folded, "x-forwarded-")
}

// isHopByHop reports what belongs to one connection (RFC 9110 section 7.6.1).
// Expect is among them because the gateway answers it itself, Trailer because
// it forwards none.
func isHopByHop(folded string) bool {
	switch folded {
	case "connection", "proxy-connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade",
		"proxy-authenticate", "proxy-authentication-info", "http2-settings", "expect":
		return true
	}
	return false
}

// isCredential reports the caller's credentials for the gateway.
func isCredential(folded string) bool {
	return folded == "authorization" || folded == "proxy-authorization"
}

// isDisguise reports headers by which other servers are told to treat a
// request as another one, or as another caller's: rewritten paths and methods,
// certificates that a TLS terminator vouches for, Envoy's own, and "Proxy",
// which CGI turns into HTTP_PROXY.
func isDisguise(folded string) bool {
	switch folded {
	case "x-rewrite-url", "x-http-method", "x-http-method-override", "x-method-override",
		"x-host", "x-http-host-override", "x-http-destinationurl", "base-url", "destination-url",
		"x-remote-user", "remote-user", "x-authenticated-user", "x-authenticated-userid",
		"x-client-cert", "client-cert", "client-cert-chain", "x-tls-client-cert", "proxy":
		return true
	}
	for _, prefix := range [...]string{"x-original-", "x-envoy-", "x-ssl-", "ssl-client-", "x-client-cert-", "x-forwarded-client-cert", "x-auth-request-"} {
		if strings.HasPrefix(folded, prefix) {
			return true
		}
	}
	return false
}

// isOwnedByHTTP reports headers whose aliases would let a worker read another
// message than the gateway forwarded.
func isOwnedByHTTP(folded string) bool {
	switch folded {
	case "content-length", "content-type", "content-encoding", "cookie", "origin":
		return true
	}
	return strings.HasPrefix(folded, "sec-")
}

// isSteering reports answer headers that send a client to another server, or
// make a proxy in front of the gateway serve something else in its name.
func isSteering(folded string) bool {
	switch folded {
	case "alt-svc", "x-accel-redirect", "x-accel-expires", "x-accel-limit-rate", "x-accel-charset",
		"x-sendfile", "x-lighttpd-send-file", "x-lighttpd-send-tempfile", "x-litespeed-location", "x-reproxy-url":
		return true
	}
	return false
}
