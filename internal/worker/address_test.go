package worker

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParseURLTakesOnlyTheCanonicalForm(t *testing.T) {
	for raw, want := range map[string]Target{
		"http://127.0.0.1":            {Name: "127.0.0.1", Port: "80", authority: "127.0.0.1"},
		"http://127.0.0.1/":           {Name: "127.0.0.1", Port: "80", authority: "127.0.0.1"},
		"https://workers.example:443": {TLS: true, Name: "workers.example", Port: "443", authority: "workers.example:443"},
		"https://worker-1":            {TLS: true, Name: "worker-1", Port: "443", authority: "worker-1"},
		"http://[::1]:65535":          {Name: "::1", Port: "65535", authority: "[::1]:65535"},
		"http://my_worker.ns.svc:1":   {Name: "my_worker.ns.svc", Port: "1", authority: "my_worker.ns.svc:1"},
		"http://3f2a9c1d77aa:8080/":   {Name: "3f2a9c1d77aa", Port: "8080", authority: "3f2a9c1d77aa:8080"},
	} {
		got, err := ParseURL(raw)
		if err != nil || got != want {
			t.Errorf("%s: %+v, error %v", raw, got, err)
		}
	}
}

func TestParseURLRefusesWhatParsersDisagreeOn(t *testing.T) {
	for _, raw := range []string{
		"", "worker", "//worker", "/worker", "http:", "http:worker", "http:/worker", "http://", "http:///",
		"HTTP://worker", "Http://worker", "ftp://worker", "ws://worker", "unix:///run/x.sock", "file:///etc/passwd",
		"gopher://worker", "http+unix://%2Frun%2Fx.sock", "javascript:alert(1)",
		"http://user@worker", "http://user:pw@worker", "http://@worker",
		"http://worker/path", "http://worker//", "http://worker/.", "http://worker/?", "http://worker?q", "http://worker#f", "http://worker/#",
		"http://worker:", "http://worker:0", "http://worker:00080", "http://worker:65536", "http://worker:99999", "http://worker:-1",
		"http://worker:+80", "http://worker:80a", "http://worker:http", "http://worker:80:80", "http://:80",
		"http://127.1", "http://2130706433", "http://0x7f.1", "http://0x7f000001", "http://127.0.0.01", "http://0177.0.0.1",
		"http://127.0.0.1.", "http://worker.", "http://.worker", "http://wor..ker", "http://1.2.3", "http://1.2.3.4.5",
		"http://[::1", "http://::1", "http://[::1]x", "http://[::ffff:127.0.0.1]", "http://[fe80::1%25eth0]", "http://[0:0:0:0:0:0:0:1]", "http://[127.0.0.1]", "http://[]",
		"http://wörker", "http://worker\\x", "http://worker ", " http://worker", "http://wor\tker", "http://worker\r\nX: y", "http://worker\x00",
		"http://wor%6ber", "http://worker*", "http://worker,other", "http://" + strings.Repeat("a", 64), "http://" + strings.Repeat("a.", 127) + "a",
	} {
		if got, err := ParseURL(raw); err == nil {
			t.Errorf("%q was taken as %+v", raw, got)
		}
	}
}

func TestAnAllowedAddressCoversItsNetworkAndPort(t *testing.T) {
	for _, row := range []struct {
		entry, to string
		want      bool
	}{
		{"127.0.0.0/8", "127.0.0.2:80", true},
		{"127.0.0.0/8", "128.0.0.2:80", false},
		{"127.0.0.2/32:8080", "127.0.0.2:8080", true},
		{"127.0.0.2/32:8080", "127.0.0.2:8081", false},
		{"127.0.0.2/32", "127.0.0.3:8080", false},
		{"::1/128", "[::1]:80", true},
		{"::1/128:80", "[::1]:81", false},
		{"::1/128:80", "[::1]:80", true},
		{"0.0.0.0/0", "[::1]:80", false},
		{"::/0", "127.0.0.1:80", false},
		{"fe80::/10", "[fe80::1%eth0]:80", false},
	} {
		a, err := parseAllowed(row.entry)
		if err != nil {
			t.Fatal(err)
		}
		if got := a.covers(netip.MustParseAddrPort(row.to)); got != row.want {
			t.Errorf("%s covers %s: %v", row.entry, row.to, got)
		}
	}
}

func TestAnAllowedAddressThatIsNotCanonicalIsRefused(t *testing.T) {
	for _, entry := range []string{
		"", "127.0.0.1", "127.0.0.1:80", "localhost/8", "127.0.0.1/8", "127.0.0.0/33", "127.0.0.0/08", "127.0.0.0/8:", "127.0.0.0/8:0",
		"127.0.0.0/8:70000", "127.0.0.0/8:080", "127.0.0.0/8:80:80", "::ffff:127.0.0.0/104", "[::1]/128", "::1%lo/128", "127.0.0.0/8 ",
	} {
		if a, err := parseAllowed(entry); err == nil {
			t.Errorf("%q was taken as %v", entry, a)
		}
	}
}

func FuzzParseURL(f *testing.F) {
	for _, seed := range []string{"http://127.0.0.1:80/", "https://worker", "http://[::1]", "http://u@h:1/p?q#f"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		target, err := ParseURL(raw)
		if err != nil {
			return
		}
		scheme := "http://"
		if target.TLS {
			scheme = "https://"
		}
		if back := scheme + target.Authority(); raw != back && raw != back+"/" {
			t.Errorf("%q was read as %q", raw, back)
		}
		if _, err := netip.ParseAddrPort(target.Address()); err != nil && strings.ContainsAny(target.Name, ":/@%") {
			t.Errorf("%q gives the name %q", raw, target.Name)
		}
	})
}
