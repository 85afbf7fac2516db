package main

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"sluice/internal/authz"
	"sluice/internal/snapshot"
	"sluice/internal/worker"
	"strconv"
	"strings"
)

// leaseSegment stands in a route's path where the lease id is.
const leaseSegment = "{lease}"

// ownPath is answered by the gateway itself.
const ownPath = "/v1/leases/{lease}/capabilities"

var (
	pathSegment    = regexp.MustCompile(`^[A-Za-z0-9._~!$&'()*+,=:@-]*$`) // RFC 3986 pchar, without % and ;
	capabilityName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,127}$`)
	headerName     = regexp.MustCompile(`^[A-Za-z0-9!#$%&'*+.^_|~-]{1,128}$`) // RFC 9110 token, without the grave accent
)

func (l *loader) judgeRoutes() {
	seen := map[string]int{}
	for i, r := range l.config.Routes {
		path := index("routes", i)
		l.judgeRoutePath(path, r)
		// A name that the policy's table does not know is no fault here: the
		// table is the policy's, and gate 3 refuses.
		if !capabilityName.MatchString(string(r.Capability)) {
			l.wrong(path+".capability", "%q is not the name of a capability such as duplexCommandStream", r.Capability)
		}
		l.oneOf(path+".kind", string(r.Kind), string(authz.Duplex), string(authz.Stream), string(authz.PlainRequest))
		l.judgeMethods(path, r)
		l.judgeUpgrade(path, r)
		if first, twice := seen[r.Path]; twice {
			l.wrong(path+".path", "is also the path of routes[%d]; each path has one route", first)
			continue
		}
		seen[r.Path] = i
	}
}

// judgeRoutePath wants one canonical path and exactly one place for the
// lease's id: with two, one could be judged and the other one served.
func (l *loader) judgeRoutePath(path string, r RouteConfig) {
	leases, ok := readPattern(r.Path)
	switch {
	case !ok:
		l.wrong(path+".path", "%q is not a path in canonical form, such as /v1/leases/{lease}/duplex: it starts with /, has no empty or dot segment, and none of %% ; ? # or a backslash", r.Path)
	case r.Path == ownPath:
		l.wrong(path+".path", "is answered by the gateway itself; take another path")
	case leases > 1:
		l.wrong(path+".path", "{lease} stands in it %d times; once is allowed", leases)
	case leases == 1 && r.LeaseHeader != "":
		l.wrong(path+".lease_header", "the path names the lease already; take {lease} out of the path or leave lease_header out")
	case leases == 0 && r.LeaseHeader == "":
		l.wrong(path+".path", "nothing names the lease; put {lease} into the path or set lease_header")
	}
	if r.LeaseHeader != "" && !isLeaseHeader(r.LeaseHeader) {
		l.wrong(path+".lease_header", "%q cannot carry the lease's id; take a header of your own such as X-Lease-Id", r.LeaseHeader)
	}
}

// readPattern counts the {lease} segments of a canonical path.
func readPattern(path string) (leases int, ok bool) {
	rest, ok := strings.CutPrefix(path, "/")
	if !ok || len(path) > 1024 {
		return 0, false
	}
	segments := strings.Split(rest, "/")
	for i, s := range segments {
		switch {
		case s == leaseSegment:
			leases++
		case s == "" && i < len(segments)-1, s == ".", s == "..", !pathSegment.MatchString(s):
			return 0, false
		}
	}
	return leases, true
}

// isLeaseHeader refuses the names that already mean something to the
// connection, the credential or the gateway.
func isLeaseHeader(name string) bool {
	lower := strings.ToLower(name)
	taken := []string{
		"authorization", "proxy-authorization", "cookie", "origin", "host", "connection", "upgrade", "te", "trailer",
		"transfer-encoding", "content-length", "expect", "keep-alive", "proxy-connection", "forwarded", "x-real-ip",
		"sluice-environment-id", "x-request-id", "traceparent", "tracestate",
	}
	return headerName.MatchString(name) && !slices.Contains(taken, lower) &&
		!strings.HasPrefix(lower, "sec-") && !strings.HasPrefix(lower, "x-forwarded-")
}

var methodName = regexp.MustCompile(`^[A-Z][A-Z-]{0,31}$`)

func (l *loader) judgeMethods(path string, r RouteConfig) {
	if r.Kind == authz.Duplex && len(r.Methods) > 0 {
		l.wrong(path+".methods", "a route of kind duplex takes handshakes, whose method is fixed; leave methods out")
	}
	for i, m := range r.Methods {
		if !methodName.MatchString(m) || m == "CONNECT" || m == "TRACE" {
			l.wrong(index(path+".methods", i), "%q is not a method that can be forwarded, such as GET or POST", m)
		}
		if slices.Contains(r.Methods[:i], m) {
			l.wrong(index(path+".methods", i), "%s is there twice", m)
		}
	}
}

func (l *loader) judgeUpgrade(path string, r RouteConfig) {
	if len(r.Upgrade) > 0 && r.Kind != authz.Duplex {
		l.wrong(path+".upgrade", "only a route of kind duplex takes upgrades; leave it out")
	}
	for i, token := range r.Upgrade {
		place := index(path+".upgrade", i)
		name, _, _ := strings.Cut(strings.ToLower(token), "/")
		switch {
		case !protocolName.MatchString(token):
			l.wrong(place, "%q is no name of a protocol, such as websocket or tcp", token)
		case slices.Contains(r.Upgrade[:i], token):
			l.wrong(place, "%s is there twice", token)
		case name == "websocket" && token != "websocket":
			l.wrong(place, "%q is written websocket", token)
		case slices.Contains([]string{"h2c", "h2", "http", "https", "tls"}, name):
			l.wrong(place, "%q would make a tunnel for requests that nobody judges; name a protocol of the worker's own", token)
		}
	}
}

var protocolName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._+-]{0,63}(/[A-Za-z0-9._-]{1,32})?$`)

func (l *loader) judgeWorkers() {
	c := &l.config.Workers
	l.oneOf("workers.link", c.Link, "auto", "watch", "probe", "static", "none")
	if leases, ok := readPattern(c.ProbePath); !ok || leases > 0 {
		l.wrong("workers.probe_path", "%q is not a path in canonical form, such as /v1/worker", c.ProbePath)
	}
	for i, entry := range c.Allow {
		if _, err := parseAllow(entry); err != nil {
			l.wrong(index("workers.allow", i), "%v", err)
		}
	}
	l.positive("workers.dial_timeout", c.DialTimeout)
	l.positive("workers.handshake_timeout", c.HandshakeTimeout)
	l.bothOrNeither("workers.tls", c.TLS.CertFile, c.TLS.KeyFile)
	if len(c.Static) > 0 && c.Link != "static" {
		l.wrong("workers.static", "counts only with workers.link: static, and the link is %s", c.Link)
	}
	ids := map[string]bool{}
	for i, w := range c.Static {
		l.judgeStatic(index("workers.static", i), w)
		if ids[w.ID] {
			l.wrong(index("workers.static", i)+".id", "%s is there twice", w.ID)
		}
		ids[w.ID] = true
	}
}

func (l *loader) judgeStatic(path string, w StaticWorkerConfig) {
	for _, id := range []struct{ path, value string }{{path + ".id", w.ID}, {path + ".pluginId", w.PluginID}} {
		if !snapshot.ValidID(id.value) {
			l.wrong(id.path, "%q is not an id: letters, digits, - and _, beginning with a letter or digit, at most 128", id.value)
		}
	}
	if _, err := worker.ParseURL(w.URL); err != nil {
		l.wrong(path+".url", "%v", err)
	}
	for i, m := range w.Methods {
		if !printable(m, 512) {
			l.wrong(index(path+".methods", i), "%q is not the name of a method such as duplexChannelOpen", m)
		}
	}
}

// allowEntry is one entry of workers.allow.
type allowEntry struct {
	prefix netip.Prefix
	port   uint16 // 0: every port
}

// parseAllow reads CIDR or CIDR:port.
func parseAllow(entry string) (allowEntry, error) {
	address, bits, _ := strings.Cut(entry, "/")
	length, port, hasPort := strings.Cut(bits, ":")
	if !hasPort {
		prefix, err := parseCIDR(entry)
		return allowEntry{prefix: prefix}, err
	}
	prefix, err := parseCIDR(address + "/" + length)
	if err != nil {
		return allowEntry{}, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		return allowEntry{}, fmt.Errorf("%q: the port must be a number from 1 to 65535", entry)
	}
	return allowEntry{prefix, uint16(n)}, nil
}
