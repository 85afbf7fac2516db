package proxy

import (
	"net"
	"net/netip"
	"slices"
)

// readPeer finds out who is at the other end, and on whose behalf. Its error is
// of what a trusted proxy says of that.
func (x *exchange) readPeer() error {
	host, _, err := net.SplitHostPort(x.r.RemoteAddr)
	if err != nil {
		host = x.r.RemoteAddr
	}
	x.peer, x.client = host, host
	address, _ := netip.ParseAddr(host)
	if !address.IsValid() { // a Unix socket's peer
		return nil
	}
	x.peer = address.Unmap().String()
	x.trusted, x.client = x.isTrusted(address), x.peer
	if !x.trusted {
		return nil
	}
	chain, err := forwardedFor(x.r.Header["X-Forwarded-For"])
	if err == nil {
		x.client = x.behindProxies(chain)
	}
	return err
}

func (x *exchange) isTrusted(address netip.Addr) bool {
	return slices.ContainsFunc(x.settings.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(address.Unmap()) })
}

// behindProxies is the last address of X-Forwarded-For that is no trusted proxy:
// each of them vouches for the one before it. One that is not known ends that.
func (x *exchange) behindProxies(chain []string) string {
	client := x.peer
	for _, said := range slices.Backward(chain) {
		address, err := netip.ParseAddr(said)
		if withPort, portErr := netip.ParseAddrPort(said); portErr == nil {
			address, err = withPort.Addr(), nil
		}
		if err != nil {
			return client
		}
		if client = address.Unmap().String(); !x.isTrusted(address) {
			return client
		}
	}
	return client
}

func (x *exchange) callerKey() callerKey {
	if p := x.request.Principal; p != nil {
		return callerKey{tenant: p.TenantID, subject: p.Subject}
	}
	return callerKey{peer: neighbourhood(x.client)}
}

// neighbourhood is an IPv4 address itself and an IPv6 address's /64, of which
// one host has as many as it likes.
func neighbourhood(address string) string {
	a, err := netip.ParseAddr(address)
	if err != nil || !a.Is6() {
		return address
	}
	block, err := a.WithZone("").Prefix(64)
	if err != nil {
		return address
	}
	return block.String()
}
