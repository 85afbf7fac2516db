package main

import (
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

func (l *loader) judgeListen() {
	c := &l.config.Listen
	l.bothOrNeither("listen.tls", c.TLS.CertFile, c.TLS.KeyFile)
	if c.TLS.ClientCAFile != "" && c.TLS.CertFile == "" {
		l.wrong("listen.tls.client_ca_file", "asks for client certificates on a listener without TLS; set cert_file and key_file too")
	}
	for i, host := range c.AllowedHosts {
		if !isHost(host) {
			l.wrong(index("listen.allowed_hosts", i), "%q is not a host name or host:port", host)
		}
	}
	if c.MaxHeaderBytes < 1<<10 || c.MaxHeaderBytes > 16<<20 {
		l.wrong("listen.max_header_bytes", "%s is outside 1KiB to 16MiB", c.MaxHeaderBytes)
	}
	l.positive("listen.header_timeout", c.HeaderTimeout)
}

// judgeListeners wants an address for each listener, and no address twice.
func (l *loader) judgeListeners() {
	listeners := []struct{ path, address string }{
		{"listen.address", l.config.Listen.Address},
		{"probes.address", l.config.Probes.Address},
		{"admin.address", l.config.Admin.Address},
	}
	for i, one := range listeners {
		host, port, ok := splitAddress(one.address)
		if !ok {
			l.wrong(one.path, "%q is not host:port, such as 127.0.0.1:8080", one.address)
			continue
		}
		for _, other := range listeners[:i] {
			otherHost, otherPort, ok := splitAddress(other.address)
			if ok && port != 0 && port == otherPort && hostsOverlap(host, otherHost) {
				l.wrong(one.path, "%s is also %s; give each listener its own", one.address, other.path)
			}
		}
	}
}

// splitAddress reads host:port. Port 0 is any free one.
func splitAddress(address string) (host string, port uint64, ok bool) {
	host, text, err := net.SplitHostPort(address)
	if err != nil || (host != "" && !isHost(net.JoinHostPort(host, "1"))) {
		return "", 0, false
	}
	port, err = strconv.ParseUint(text, 10, 16)
	return host, port, err == nil && strconv.FormatUint(port, 10) == text
}

func hostsOverlap(a, b string) bool {
	return anyHost(a) || anyHost(b) || loopbackName(a) == loopbackName(b)
}

func anyHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

func loopbackName(host string) string {
	if host == "localhost" || host == "::1" {
		return "127.0.0.1"
	}
	return host
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?$`)

// isHost takes a name or an address, with a port or without.
func isHost(host string) bool {
	name := host
	if h, port, err := net.SplitHostPort(host); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return false
		}
		name = "[" + h + "]"
		if !strings.Contains(h, ":") {
			name = h
		}
	}
	if inner, ok := strings.CutPrefix(name, "["); ok {
		ip, err := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		return err == nil && ip.Is6() && strings.HasSuffix(name, "]")
	}
	return hostName.MatchString(name) && !strings.Contains(name, "..")
}
