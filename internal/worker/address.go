package worker

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Target is where a worker is reached, as its URL says.
type Target struct {
	TLS  bool   // https
	Name string // host name or IP literal, without brackets
	Port string // 1 to 65535; the scheme's own when the URL names none

	authority string // host and port as the URL writes them
}

// Address is the host:port to dial.
func (t Target) Address() string { return net.JoinHostPort(t.Name, t.Port) }

// Authority is what stands in the Host header of a request to the worker.
func (t Target) Authority() string { return t.authority }

// ParseURL reads a worker's URL: http or https in lower case, a host, an
// optional port, and nothing else but one closing slash. It refuses what
// different parsers read differently (user names, escapes, zones, numbers
// that stand for an IPv4 address) since a URL that two programs understand in
// two ways leads past the check of one of them.
func ParseURL(raw string) (Target, error) {
	t, err := parseURL(raw)
	if err != nil {
		return Target{}, fmt.Errorf("worker url %q: %w", raw, err)
	}
	return t, nil
}

func parseURL(raw string) (Target, error) {
	for _, c := range []byte(raw) {
		if c <= ' ' || c > '~' || strings.IndexByte(`\%@?#`, c) >= 0 {
			return Target{}, fmt.Errorf("it may not contain %q", c)
		}
	}
	t := Target{Port: "80"}
	rest, ok := strings.CutPrefix(raw, "http://")
	if !ok {
		rest, ok = strings.CutPrefix(raw, "https://")
		t.TLS, t.Port = true, "443"
	}
	if !ok {
		return Target{}, errors.New("the scheme must be http or https")
	}
	u, err := url.Parse(raw)
	if err != nil {
		return Target{}, err
	}
	if u.Path != "" && u.Path != "/" {
		return Target{}, errors.New("it must end after host and port")
	}
	t.Name, t.authority = u.Hostname(), u.Host
	if u.Host != strings.TrimSuffix(rest, "/") || !canonicalHost(t.Name, u.Host) {
		return Target{}, errors.New("the host is neither a name nor an IP address")
	}
	if port := u.Port(); port != "" {
		t.Port = port
	} else if strings.HasSuffix(u.Host, ":") {
		return Target{}, errors.New("the port is empty")
	}
	if !canonicalPort(t.Port) {
		return Target{}, errors.New("the port must be a number from 1 to 65535")
	}
	return t, nil
}

// canonicalHost takes an IP literal in the form that netip writes, or a name
// of letters, digits, hyphens, underscores and dots whose last label is no
// number (127.1 and 0x7f.1 are addresses to some resolvers).
func canonicalHost(name, host string) bool {
	if strings.HasPrefix(host, "[") {
		ip, err := netip.ParseAddr(name)
		return err == nil && ip.Is6() && !ip.Is4In6() && ip.String() == strings.ToLower(name)
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	if name == "" || len(name) > 253 {
		return false
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || strings.Trim(label, letters+"0123456789-_") != "" {
			return false
		}
	}
	last := strings.ToLower(labels[len(labels)-1])
	return strings.Trim(last, "0123456789") != "" && !strings.HasPrefix(last, "0x")
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

func canonicalPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == port
}

// allowed is one entry of workers.allow.
type allowed struct {
	prefix netip.Prefix
	port   uint16 // 0: every port
}

func (a allowed) covers(to netip.AddrPort) bool {
	return a.prefix.Contains(to.Addr()) && (a.port == 0 || a.port == to.Port())
}

// parseAllowed reads "10.0.0.0/8", "10.0.0.0/8:8080", "::1/128" or
// "::1/128:8080".
func parseAllowed(entry string) (allowed, error) {
	var a allowed
	address, bits, ok := strings.Cut(entry, "/")
	if !ok {
		return a, fmt.Errorf("allowed address %q: write it with its length, such as 10.1.2.3/32", entry)
	}
	if length, port, withPort := strings.Cut(bits, ":"); withPort {
		if !canonicalPort(port) {
			return a, fmt.Errorf("allowed address %q: the port must be a number from 1 to 65535", entry)
		}
		n, _ := strconv.ParseUint(port, 10, 16)
		bits, a.port = length, uint16(n)
	}
	prefix, err := netip.ParsePrefix(address + "/" + bits)
	switch {
	case err != nil:
		return a, fmt.Errorf("allowed address %q: %w", entry, err)
	case prefix.Addr().Is4In6():
		return a, fmt.Errorf("allowed address %q: write it as IPv4", entry)
	case prefix != prefix.Masked():
		return a, fmt.Errorf("allowed address %q: bits are set beyond the length; write %s", entry, prefix.Masked())
	}
	a.prefix = prefix
	return a, nil
}
