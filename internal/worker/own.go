package worker

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// own is an address that belongs to the gateway or its store, where no worker
// can be.
type own struct {
	name string     // a host name, looked up whenever its port is dialled
	addr netip.Addr // the zero Addr: a name, or every address of this machine
	port uint16
}

// parseOwn reads "host:port" as listeners and store clients write it; an
// empty or unspecified host stands for every address of this machine.
func parseOwn(address string) (own, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return own{}, fmt.Errorf("own address %q: %w", address, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return own{}, fmt.Errorf("own address %q: the port must be a number from 1 to 65535", address)
	}
	o := own{port: uint16(n)}
	ip, err := netip.ParseAddr(host)
	switch {
	case err != nil:
		o.name = host
	case !ip.IsUnspecified():
		o.addr = ip.Unmap().WithZone("")
	}
	return o, nil
}

// covers says whether to is this address. A name that cannot be looked up
// covers everything on its port: what is not known is not allowed.
func (o own) covers(ctx context.Context, resolver *net.Resolver, to netip.AddrPort) (bool, error) {
	switch {
	case o.port != to.Port():
		return false, nil
	case o.addr.IsValid():
		return o.addr == to.Addr(), nil
	case o.name == "":
		return isLocal(to.Addr())
	}
	addrs, err := resolver.LookupNetIP(ctx, "ip", o.name)
	if err != nil {
		return true, fmt.Errorf("look up own address %s: %w", o.name, err)
	}
	for _, a := range addrs {
		if a.Unmap().WithZone("") == to.Addr() {
			return true, nil
		}
	}
	return false, nil
}

// isLocal says whether addr is one of this machine's.
func isLocal(addr netip.Addr) (bool, error) {
	if addr.IsLoopback() || addr.IsUnspecified() {
		return true, nil
	}
	local, err := net.InterfaceAddrs()
	if err != nil {
		return true, fmt.Errorf("list own addresses: %w", err)
	}
	for _, a := range local {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap() == addr {
				return true, nil
			}
		}
	}
	return false, nil
}
