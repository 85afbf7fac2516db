package proxy

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// gatewayHeaders are the headers that the gateway itself sets on what it sends
// to a worker. An empty value is not sent.
type gatewayHeaders struct {
	LeaseID, TenantID, EnvironmentID string
	DriverKey, ProviderLeaseID       string
	Subject                          string
	DecisionID                       string
	WorkerGeneration                 string
	RequestID                        string
	Traceparent                      string

	ForwardedFor   string // address of the peer, without port
	ForwardedHost  string
	ForwardedProto string // "http" or "https"
}

// workerHeaders builds the header set that a worker gets for a request whose
// headers are in. What belongs to the caller's connection, what could be taken
// for the gateway's own word, and the caller's credential are left out; the
// gateway's own headers come last, so that nothing the caller sends can remove
// or precede them. trusted says that the peer is a trusted proxy: its
// forwarding headers are believed and its X-Forwarded-For is extended. h is
// the request's handshake.
//
// A value of the gateway's own that is not visible ASCII is an error: sent, it
// could be read as another value, or as another header.
func workerHeaders(in http.Header, trusted bool, h handshake, own gatewayHeaders) (http.Header, error) {
	out := make(http.Header, len(in)+14)
	hops := connectionNames(in)
	for name, values := range in {
		folded := foldName(name)
		if hops[strings.ToLower(name)] || dropsFromRequest(name, folded, trusted) {
			continue
		}
		if strings.HasPrefix(folded, "sec-websocket-") && h.Kind != websocketUpgrade {
			continue // it may hold a credential
		}
		out[name] = slices.Clone(values)
	}
	h.setOn(out)
	return out, own.setOn(out, trusted)
}

// setOn writes the handshake's own headers as the worker gets them.
func (h *handshake) setOn(out http.Header) {
	if h.Kind == notUpgrade {
		return
	}
	delete(out, "Content-Length") // "0", at most
	out["Connection"] = []string{"Upgrade"}
	out["Upgrade"] = []string{h.Token}
	if h.Kind != websocketUpgrade {
		return
	}
	out["Sec-Websocket-Version"] = []string{websocketVersion}
	out["Sec-Websocket-Key"] = []string{h.Key}
	delete(out, "Sec-Websocket-Protocol")
	if len(h.Protocols) > 0 {
		out["Sec-Websocket-Protocol"] = []string{strings.Join(h.Protocols, ", ")}
	}
}

func (own *gatewayHeaders) setOn(out http.Header, trusted bool) error {
	chain, err := forwardedFor(out["X-Forwarded-For"])
	if err != nil {
		return err
	}
	if own.ForwardedFor != "" {
		chain = append(chain, own.ForwardedFor)
	}
	values := [...]struct{ name, value string }{
		{"Sluice-Lease-Id", own.LeaseID},
		{"Sluice-Tenant-Id", own.TenantID},
		{"Sluice-Environment-Id", own.EnvironmentID},
		{"Sluice-Driver-Key", own.DriverKey},
		{"Sluice-Provider-Lease-Id", own.ProviderLeaseID},
		{"Sluice-Subject", own.Subject},
		{"Sluice-Decision-Id", own.DecisionID},
		{"Sluice-Worker-Generation", own.WorkerGeneration},
		{"X-Request-Id", own.RequestID},
		{"Traceparent", own.Traceparent},
		{"X-Forwarded-For", strings.Join(chain, ", ")},
		{"X-Forwarded-Host", own.ForwardedHost},
		{"X-Forwarded-Proto", own.ForwardedProto},
	}
	for _, v := range values {
		if !isVisible(v.value) {
			return fmt.Errorf("setting %s: the value is not visible ASCII", v.name)
		}
		if v.value != "" && !(trusted && isBelieved(v.name, out[v.name])) {
			out[v.name] = []string{v.value}
		}
	}
	return nil
}

// isBelieved reports what a trusted proxy says of the request's host and
// protocol, when it says one thing.
func isBelieved(name string, sent []string) bool {
	return (name == "X-Forwarded-Host" || name == "X-Forwarded-Proto") && len(sent) == 1 && isVisible(sent[0])
}

// maxForwarded bounds the addresses of an X-Forwarded-For chain.
const maxForwarded = 32

// forwardedFor reads the addresses that a trusted proxy sent.
func forwardedFor(sent []string) ([]string, error) {
	if len(sent) == 0 {
		return nil, nil
	}
	chain := strings.Split(strings.Join(sent, ","), ",")
	for i, part := range chain {
		chain[i] = strings.Trim(part, " \t")
		if !isAddress(chain[i]) {
			return nil, wireRefuse(http.StatusBadRequest, "the X-Forwarded-For header is malformed")
		}
	}
	if len(chain) > maxForwarded {
		return nil, wireRefuse(http.StatusBadRequest, "the X-Forwarded-For header is too long")
	}
	return chain, nil
}

func isAddress(s string) bool {
	if s == "unknown" {
		return true
	}
	_, err := netip.ParseAddr(s)
	if err != nil {
		_, err = netip.ParseAddrPort(s)
	}
	return err == nil
}

// isVisible reports text that stands in a header as it is: visible ASCII, with
// single spaces inside. The empty text is visible.
func isVisible(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] > ' ' && s[i] <= '~' {
			continue
		}
		inside := i > 0 && i < len(s)-1
		if s[i] != ' ' || !inside || s[i-1] == ' ' {
			return false
		}
	}
	return true
}

// callerHeaders returns the headers of a worker's answer as the caller gets
// them: without what belongs to the worker's connection, the gateway's own
// names, and what would steer a client or a proxy in front of the gateway past
// it.
func callerHeaders(in http.Header) http.Header {
	out := make(http.Header, len(in))
	hops := connectionNames(in)
	for name, values := range in {
		folded := foldName(name)
		if !hops[strings.ToLower(name)] && !isHopByHop(folded) && !strings.HasPrefix(folded, ownPrefix) && !isSteering(folded) {
			out[name] = slices.Clone(values)
		}
	}
	return out
}

// switchingHeaders returns the headers of the 101 that the caller gets for a
// worker's checked 101. Where the worker selected no subprotocol and the
// caller offered the gateway's, the gateway selects that.
func switchingHeaders(h handshake, in http.Header) http.Header {
	out := callerHeaders(in)
	out["Connection"] = []string{"Upgrade"}
	out["Upgrade"] = []string{h.Token}
	selected := len(in["Sec-Websocket-Protocol"]) > 0
	if h.Kind == websocketUpgrade && !selected && slices.Contains(h.Protocols, gatewayProtocol) {
		out["Sec-Websocket-Protocol"] = []string{gatewayProtocol}
	}
	return out
}
