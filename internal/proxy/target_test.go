package proxy

import (
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"
)

func TestACanonicalTargetIsSplitAndNotChanged(t *testing.T) {
	for _, tt := range []struct{ raw, path, query string }{
		{"/", "/", ""},
		{"/v1/leases/l1/duplex", "/v1/leases/l1/duplex", ""},
		{"/v1/leases/l1/duplex/", "/v1/leases/l1/duplex/", ""},
		{"/v1/leases/L_1-x/duplex?a=b&c=%20%2F", "/v1/leases/L_1-x/duplex", "a=b&c=%20%2F"},
		{"/x?", "/x", ""},
		{"/x?y?z/../?", "/x", "y?z/../?"},
		{"/x?[1]={2}|^`\"<>\\", "/x", "[1]={2}|^`\"<>\\"},
		{"/.../.a/a./..a", "/.../.a/a./..a", ""},
		{"/a:b@c,d=e+f*g(h)i'j&k$l!m~n", "/a:b@c,d=e+f*g(h)i'j&k$l!m~n", ""},
		{"/" + strings.Repeat("a", maxTarget-1), "/" + strings.Repeat("a", maxTarget-1), ""},
	} {
		p, q, err := checkTarget(tt.raw)
		if err != nil || p != tt.path || q != tt.query {
			t.Errorf("checkTarget(%.60q) = %.60q, %q, %v; want %.60q, %q", tt.raw, p, q, err, tt.path, tt.query)
		}
	}
}

// Rows are attack vectors on the way from one reader of a path to the next.
var badTargets = []string{
	"", "*", "x", "v1/leases/l1/duplex", "?a=b", "#f",
	"http://evil.test/v1/leases/l1/duplex", "https://gw/", "127.0.0.1:1", "//evil.test/", "///",
	"//v1/leases/l1/duplex", "/v1//leases/l1/duplex", "/v1/leases/l1//duplex", "/v1/leases/l1/duplex//",
	"/.", "/..", "/./v1/leases/l1/duplex", "/x/../v1/leases/l1/duplex", "/v1/leases/l1/duplex/.", "/v1/leases/l1/duplex/..",
	"/../v1", "/v1/./x", "/v1/leases/./duplex", "/v1/leases/../duplex",
	"/v1/leases/%2e%2e/duplex", "/v1/leases/l1%2f..%2fl2/duplex", "/v1/leases/%5c/duplex", "/v1/leases/%00/duplex",
	"/v1/leases/%252f/duplex", "/v1/leases/%0d%0a/duplex", "/v1/leases/l1%3f/duplex", "/v1/leases/l1%23/duplex",
	"/v1/leases/%6c1/duplex", "/v1/leases/l1/duplex%20", "/%", "/%zz",
	"/v1;x=1/leases/l1/duplex", "/v1/leases/l1;/duplex", "/v1/leases/l1/duplex;", "/v1/leases/l1/duplex?;", "/x?a=1;b=2",
	"/v1\\leases", "/v1/leases\\..\\x", "/v1/leases/l1/duplex#f", "/v1/leases/l1/duplex?a#f", "/#",
	"/x?%", "/x?%2", "/x?%2g", "/x?a=%zz", "/x?%%20",
	"/ x", "/x ", "/x?a b", "/x\t", "/x\x00", "/x\r\n", "/x\n", "/x\x7f", "/x?\x7f", "/x?\x00",
	"/caf\xc3\xa9", "/x?caf\xc3\xa9", "/\xff", "/\xc0\xae\xc0\xae/x",
	"/{lease}", "/[x]", "/x|y", "/\"x\"", "/<x>", "/x^y", "/`x`",
}

func TestATargetThatIsNotCanonicalIsRefused(t *testing.T) {
	for _, raw := range badTargets {
		_, _, err := checkTarget(raw)
		if status, _ := wireStatus(err); err == nil || status != http.StatusBadRequest {
			t.Errorf("checkTarget(%q) = %v, want 400", raw, err)
		}
	}
}

func TestATargetThatIsTooLongIsRefusedAsSuch(t *testing.T) {
	for _, raw := range []string{
		"/" + strings.Repeat("a", maxTarget),
		strings.Repeat("/a", 10_000),
		"/x?" + strings.Repeat("a", 64<<10),
	} {
		_, _, err := checkTarget(raw)
		if status, _ := wireStatus(err); err == nil || status != http.StatusRequestURITooLong {
			t.Errorf("a target of %d bytes: %v, want 414", len(raw), err)
		}
	}
}

// FuzzTarget holds what passes against the readers a target meets later: they
// must not see another path.
func FuzzTarget(f *testing.F) {
	for _, raw := range badTargets {
		f.Add(raw)
	}
	f.Add("/v1/leases/l1/duplex?a=b%20")
	f.Fuzz(func(t *testing.T, raw string) {
		p, q, err := checkTarget(raw)
		if err != nil {
			return
		}
		if raw != p && raw != p+"?"+q {
			t.Fatalf("%q was split into %q and %q", raw, p, q)
		}
		if clean := path.Clean(p); clean != p && clean+"/" != p {
			t.Fatalf("%q passed, and path.Clean makes %q of it", p, clean)
		}
		u, err := url.ParseRequestURI(raw)
		if err != nil {
			t.Fatalf("%q passed, and net/url refuses it: %v", raw, err)
		}
		if u.Path != p || u.EscapedPath() != p || u.RawQuery != q || u.Host != "" || u.Scheme != "" || u.Opaque != "" {
			t.Fatalf("%q passed as %q and %q, and net/url reads %#v", raw, p, q, u)
		}
		if strings.ContainsAny(p, "%;\\#?") || strings.ContainsAny(q, "#; ") {
			t.Fatalf("%q passed", raw)
		}
	})
}

func TestAHostIsOneNameOrAddressWithAPort(t *testing.T) {
	for _, host := range []string{
		"gw", "gw:8080", "gw.example.com", "gw.example.com.", "a_b-c.d", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:65535",
		"[2001:db8::1]", "[::ffff:1.2.3.4]:80",
	} {
		if err := checkHost(host); err != nil {
			t.Errorf("checkHost(%q) = %v", host, err)
		}
	}
	for _, host := range []string{
		"", ":80", "gw:", "gw:0", "gw:65536", "gw:080", "gw:+1", "gw:-1", "gw:8x", "gw:1:2", "a/b@c", "a@b", "gw\tx", "gw ", " gw",
		"a,b", "a..b", ".a", "gw%20", "gw%2f", "gw/x", "gw?x", "gw#x", "caf\xc3\xa9", "::1", "[::1", "::1]", "[]", "[::1%25eth0]", "[1.2.3.4]",
		"[::1]x", "[::1]:", "[gw]", "gw\\x", "gw\x00", strings.Repeat("a", 256),
	} {
		if err := checkHost(host); err == nil {
			t.Errorf("checkHost(%q) passed", host)
		}
	}
}
