package proxy

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
)

// handshakeKind says what a request asks its connection to become.
type handshakeKind int

const (
	notUpgrade       handshakeKind = iota // an ordinary request
	websocketUpgrade                      // a complete WebSocket handshake
	otherUpgrade                          // another protocol, named by Token
)

const (
	// gatewayProtocol is the subprotocol that a browser offers beside its
	// credential when the worker has none of its own.
	gatewayProtocol = "sluice.v1"
	// credentialProtocol is how a subprotocol that is a credential begins.
	credentialProtocol = "sluice.bearer."

	maxOffers        = 32 // subprotocols, and extensions, in one handshake
	websocketVersion = "13"
)

// handshake is what an upgrade request offers.
type handshake struct {
	Kind       handshakeKind
	Token      string   // the Upgrade token: "websocket", or another as it was sent
	Key        string   // Sec-WebSocket-Key
	Protocols  []string // offered subprotocols in order, without the credential
	Extensions []string // names of the offered extensions, lower case
}

// handshakeOf classifies r and checks the handshake that it is (RFC 9110
// section 7.8, RFC 6455 section 4.2.1). An upgrade is an HTTP/1.1 request with
// the token "upgrade" in Connection and an Upgrade header; the Upgrade header
// of any other request means nothing. The error is a *wireError.
//
// Everything that two readers could take for different handshakes is refused:
// that is how a tunnel is opened past the one that judges it.
func handshakeOf(r *http.Request) (handshake, error) {
	if r.ProtoMajor != 1 || r.ProtoMinor < 1 {
		return handshake{}, nil
	}
	hops, ok := listOfTokens(r.Header["Connection"])
	if !ok {
		return handshake{}, badHandshake("the Connection header is malformed")
	}
	upgrade := r.Header["Upgrade"]
	if !containsFold(hops, "upgrade") || len(upgrade) == 0 {
		return handshake{}, nil
	}
	if slices.ContainsFunc(hops, isEndToEnd) {
		return handshake{}, badHandshake("the Connection header names a header that is not the connection's")
	}
	if len(upgrade) != 1 || !isProtocol(upgrade[0]) {
		return handshake{}, badHandshake("the Upgrade header must name exactly one protocol")
	}
	if r.ContentLength != 0 || len(r.TransferEncoding) > 0 || len(r.Header["Expect"]) > 0 {
		return handshake{}, badHandshake("an upgrade takes no body")
	}
	if strings.EqualFold(upgrade[0], "websocket") {
		return websocketHandshake(r)
	}
	if r.Method == http.MethodHead {
		return handshake{}, badHandshake("a HEAD request cannot be an upgrade")
	}
	return handshake{Kind: otherUpgrade, Token: upgrade[0]}, nil
}

func websocketHandshake(r *http.Request) (handshake, error) {
	h := handshake{Kind: websocketUpgrade, Token: "websocket"}
	if r.Method != http.MethodGet {
		return handshake{}, badHandshake("a WebSocket handshake is a GET request")
	}
	if v := r.Header["Sec-Websocket-Version"]; len(v) != 1 || v[0] != websocketVersion {
		return handshake{}, &wireError{
			Status: http.StatusUpgradeRequired,
			Detail: "the WebSocket version must be 13",
			Header: http.Header{"Sec-Websocket-Version": {websocketVersion}},
		}
	}
	keys := r.Header["Sec-Websocket-Key"]
	if len(keys) != 1 || !isWebsocketKey(keys[0]) {
		return handshake{}, badHandshake("the WebSocket key must be one value of 16 bytes in base64")
	}
	h.Key = keys[0]
	if len(r.Header["Sec-Websocket-Accept"]) > 0 {
		return handshake{}, badHandshake("Sec-WebSocket-Accept is the server's to send")
	}
	return h, h.readOffers(r.Header)
}

// readOffers fills in what the handshake offers to the worker.
func (h *handshake) readOffers(header http.Header) error {
	var err error
	if h.Protocols, err = offeredProtocols(header["Sec-Websocket-Protocol"]); err != nil {
		return err
	}
	var ok bool
	if h.Extensions, ok = extensionNames(header["Sec-Websocket-Extensions"]); !ok {
		return badHandshake("the offered WebSocket extensions are malformed")
	}
	return nil
}

// offeredProtocols returns the subprotocols without the credential. The
// credential is offered beside at least one other, since a server has to
// select one of those and the credential is never selected.
func offeredProtocols(values []string) ([]string, error) {
	offered, ok := listOfTokens(values)
	if !ok || len(offered) > maxOffers || hasDuplicates(offered) {
		return nil, badHandshake("the offered WebSocket subprotocols are malformed")
	}
	all := len(offered)
	offered = slices.DeleteFunc(offered, isCredentialProtocol)
	switch credentials := all - len(offered); {
	case credentials > 1:
		return nil, badHandshake("more than one credential")
	case credentials == 1 && len(offered) == 0:
		return nil, badHandshake("a credential must be offered beside another subprotocol")
	}
	return offered, nil
}

func isCredentialProtocol(token string) bool {
	return len(token) >= len(credentialProtocol) &&
		strings.EqualFold(token[:len(credentialProtocol)], credentialProtocol)
}

func badHandshake(detail string) error { return wireRefuse(http.StatusBadRequest, detail) }

// isEndToEnd reports a header that no sender may declare to be the
// connection's own: the gateway's, the forwarding ones, and what the
// handshake itself rests on.
func isEndToEnd(name string) bool {
	name = foldName(name)
	switch name {
	case "host", "authorization", "cookie", "origin":
		return true
	}
	return isGatewayHeader(name) || isForwardingHeader(name) || strings.HasPrefix(name, "sec-websocket-")
}

// isWebsocketKey reports 16 bytes in canonical base64.
func isWebsocketKey(s string) bool {
	if len(s) != 24 {
		return false
	}
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	return err == nil && len(b) == 16
}

// isProtocol reports a name, or a name and a version (RFC 9110 section 7.8).
func isProtocol(s string) bool {
	name, version, versioned := strings.Cut(s, "/")
	return isToken(name) && (!versioned || isToken(version))
}

// listOfTokens reads a header that is a list of tokens (RFC 9110 section
// 5.6.1), however many fields it is spread over. An empty field or element is
// malformed.
func listOfTokens(values []string) ([]string, bool) {
	var tokens []string
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			part = strings.Trim(part, " \t")
			if !isToken(part) {
				return nil, false
			}
			tokens = append(tokens, part)
		}
	}
	return tokens, true
}

// extensionNames reads Sec-WebSocket-Extensions (RFC 6455 section 9.1) and
// returns the names, lower case.
func extensionNames(values []string) ([]string, bool) {
	var names []string
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			name, params, _ := strings.Cut(part, ";")
			name = strings.Trim(name, " \t")
			if !isToken(name) || !areParams(part[len(part)-len(params):], strings.Contains(part, ";")) {
				return nil, false
			}
			names = append(names, strings.ToLower(name))
		}
	}
	return names, len(names) <= maxOffers
}

// areParams reports a list of ";"-separated parameters, each a token with or
// without a value; a value is a token, or one in quotes.
func areParams(s string, present bool) bool {
	if !present {
		return s == ""
	}
	for param := range strings.SplitSeq(s, ";") {
		name, value, valued := strings.Cut(strings.Trim(param, " \t"), "=")
		if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
			value = value[1 : n-1]
		}
		if !isToken(name) || valued && !isToken(value) {
			return false
		}
	}
	return true
}

func containsFold(list []string, want string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.EqualFold(s, want) })
}

func hasDuplicates(list []string) bool {
	for i, s := range list {
		if slices.Contains(list[:i], s) {
			return true
		}
	}
	return false
}

// isToken reports a token of RFC 9110 section 5.6.2.
func isToken[T string | []byte](s T) bool {
	for i := 0; i < len(s); i++ {
		if !isTokenByte(s[i]) {
			return false
		}
	}
	return len(s) > 0
}

func isTokenByte(c byte) bool { return tokenBytes[c] }

var tokenBytes = bytesOf("!#$%&'*+-.^_`|~")
