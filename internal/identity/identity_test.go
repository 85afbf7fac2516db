package identity

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	aliceToken = "sluice_alice-token"
	bobToken   = "sluice_bob-token"
)

// line is an entry of the tokens file for token.
func line(name, tenant, token, more string) string {
	sum := sha256.Sum256([]byte(token))
	return fmt.Sprintf("- {name: %s, tenantId: %s, sha256: %q%s}\n", name, tenant, hex.EncodeToString(sum[:]), more)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func openTokens(t *testing.T, text string) (*Tokens, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	write(t, path, text)
	tokens, err := OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	return tokens, path
}

// asked is a request with header lines "Name: value".
func asked(target string, lines ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	for _, l := range lines {
		name, value, _ := strings.Cut(l, ": ")
		r.Header.Add(name, value)
	}
	return r
}

func offer(token string) string {
	return protocolPrefix + base64.RawURLEncoding.EncodeToString([]byte(token))
}

func TestTheCallerIsFoundByTheDocumentedFormsAlone(t *testing.T) {
	tokens, _ := openTokens(t, line("alice", "acme", aliceToken, "")+line("bob", "beta", bobToken, ""))
	identifier := New(tokens)
	alice, bob := "Authorization: Bearer "+aliceToken, "Authorization: Bearer "+bobToken
	protocols := "Sec-WebSocket-Protocol: "
	tests := []struct {
		name    string
		request *http.Request
		subject string // "": not known
		err     error
	}{
		{"bearer", asked("/", alice), "alice", nil},
		{"another bearer", asked("/", bob), "bob", nil},
		{"subprotocol", asked("/", protocols+"worker.v2, "+offer(bobToken)), "bob", nil},
		{"subprotocol on a line of its own", asked("/", protocols+"worker.v2", protocols+offer(bobToken)), "bob", nil},
		{"subprotocol beside the gateway's", asked("/", protocols+offer(aliceToken)+",sluice.v1"), "alice", nil},

		{"nothing", asked("/"), "", nil},
		{"unknown token", asked("/", alice+"x"), "", nil},
		{"lower case scheme", asked("/", "Authorization: bearer "+aliceToken), "", nil},
		{"upper case scheme", asked("/", "Authorization: BEARER "+aliceToken), "", nil},
		{"two spaces", asked("/", "Authorization: Bearer  "+aliceToken), "", nil},
		{"tab", asked("/", "Authorization: Bearer\t"+aliceToken), "", nil},
		{"space behind", asked("/", alice+" "), "", nil},
		{"scheme alone", asked("/", "Authorization: Bearer"), "", nil},
		{"empty token", asked("/", "Authorization: Bearer "), "", nil},
		{"no space", asked("/", "Authorization: Bearer"+aliceToken), "", nil},
		{"two words", asked("/", alice+" y"), "", nil},
		{"basic", asked("/", "Authorization: Basic YWxpY2U6"+aliceToken), "", nil},
		{"no scheme", asked("/", "Authorization: "+aliceToken), "", nil},
		{"parameters of one credential", asked("/", `Authorization: Digest username="a b", realm="c d", qop=auth`), "", nil},
		{"quotes", asked("/", `Authorization: Bearer "`+aliceToken+`"`), "", nil},
		{"too long", asked("/", "Authorization: Bearer "+strings.Repeat("a", MaxToken+1)), "", nil},
		{"query", asked("/?access_token=" + aliceToken + "&token=" + aliceToken), "", nil},
		{"cookie", asked("/", "Cookie: token="+aliceToken), "", nil},
		{"other headers", asked("/", "X-Api-Key: "+aliceToken, "Proxy-Authorization: Bearer "+aliceToken, "X-Authorization: Bearer "+aliceToken), "", nil},
		{"misspelt prefix", asked("/", protocols+"v1, Sluice.Bearer."+offer(aliceToken)[len(protocolPrefix):]), "", nil},
		{"padded encoding", asked("/", protocols+"v1, "+offer(aliceToken)+"="), "", nil},
		{"encoding with spare bits", asked("/", protocols+"v1, "+protocolPrefix+"YR"), "", nil},
		{"token in the clear", asked("/", protocols+"v1, "+protocolPrefix+aliceToken), "", nil},
		{"empty subprotocol token", asked("/", protocols+"v1, "+protocolPrefix), "", nil},
		{"too long a subprotocol", asked("/", protocols+"v1, "+offer(strings.Repeat("a", MaxToken+1))), "", nil},
		{"digest in place of the token", asked("/", "Authorization: Bearer "+fmt.Sprintf("%x", sha256.Sum256([]byte(aliceToken)))), "", nil},

		{"two headers", asked("/", alice, bob), "", ErrSeveralCredentials},
		{"the same twice", asked("/", alice, alice), "", ErrSeveralCredentials},
		{"a list", asked("/", alice+", Bearer "+bobToken), "", ErrSeveralCredentials},
		{"a list of schemes", asked("/", "Authorization: Basic eA==,Bearer "+bobToken), "", ErrSeveralCredentials},
		{"header and subprotocol", asked("/", alice, protocols+"v1, "+offer(aliceToken)), "", ErrSeveralCredentials},
		{"unreadable header and subprotocol", asked("/", "Authorization: x", protocols+"v1, "+offer(aliceToken)), "", ErrSeveralCredentials},
		{"two subprotocols", asked("/", protocols+"v1, "+offer(aliceToken)+", "+offer(bobToken)), "", ErrSeveralCredentials},
		{"two subprotocols, one misspelt", asked("/", protocols+"v1, "+offer(aliceToken)+", SLUICE.bearer.eA"), "", ErrSeveralCredentials},
		{"subprotocol alone", asked("/", protocols+offer(aliceToken)), "", ErrCredentialAlone},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			principal, err := identifier.Identify(tt.request)
			if !errors.Is(err, tt.err) {
				t.Fatalf("error is %v, want %v", err, tt.err)
			}
			subject := ""
			if principal != nil {
				subject = principal.Subject
			}
			if subject != tt.subject {
				t.Errorf("caller is %q, want %q", subject, tt.subject)
			}
		})
	}
}

func TestScrubbedHeadersHoldNoCredential(t *testing.T) {
	r := asked("/", "Authorization: Bearer x", "Proxy-Authorization: Basic y", "Cookie: z=1", "Cookie: z=2",
		"X-Other: kept", "Sec-WebSocket-Protocol: a, "+offer(aliceToken), "Sec-WebSocket-Protocol: SLUICE.BEARER.eA, b")
	before := r.Header.Clone()
	got := New().Scrub(r.Header)
	want := http.Header{"X-Other": {"kept"}, "Sec-Websocket-Protocol": {"a, b"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, r.Header); diff != "" {
		t.Errorf("the request's own headers changed: %s", diff)
	}
	if got = New().Scrub(http.Header{"Sec-Websocket-Protocol": {offer(aliceToken)}}); len(got) != 0 {
		t.Errorf("left are %v", got)
	}
	if got = New().Scrub(nil); len(got) != 0 {
		t.Errorf("of nothing, left are %v", got)
	}
}

func TestWithoutBearersNobodyIsKnown(t *testing.T) {
	principal, err := New().Identify(asked("/", "Authorization: Bearer "+aliceToken))
	if err != nil || principal != nil {
		t.Errorf("got %v, %v", principal, err)
	}
	if New().Current(nil) != nil {
		t.Error("nobody became somebody")
	}
}

func FuzzIdentify(f *testing.F) {
	path := filepath.Join(f.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, []byte(line("alice", "acme", aliceToken, "")), 0o600); err != nil {
		f.Fatal(err)
	}
	tokens, err := OpenTokens(path)
	if err != nil {
		f.Fatal(err)
	}
	identifier := New(tokens)
	f.Add("Bearer "+aliceToken, "")
	f.Add("", "a, "+offer(aliceToken))
	f.Add("Bearer a, Bearer b", "sluice.v1")
	f.Fuzz(func(t *testing.T, authorization, protocols string) {
		h := http.Header{}
		if authorization != "" {
			h["Authorization"] = []string{authorization}
		}
		if protocols != "" {
			h["Sec-Websocket-Protocol"] = []string{protocols}
		}
		principal, err := identifier.Identify(&http.Request{Header: h})
		if err != nil && principal != nil {
			t.Error("an error came with a principal")
		}
		if principal != nil && authorization != "Bearer "+aliceToken && !strings.Contains(protocols, offer(aliceToken)) {
			t.Errorf("%q and %q were taken for alice", authorization, protocols)
		}
		for _, value := range identifier.Scrub(h)["Sec-Websocket-Protocol"] {
			if strings.Contains(strings.ToLower(value), "sluice.bearer.") && holdsCredential(value) {
				t.Errorf("a credential is left in %q", value)
			}
		}
	})
}

func BenchmarkIdentify(b *testing.B) {
	path := filepath.Join(b.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, []byte(line("alice", "acme", aliceToken, "")), 0o600); err != nil {
		b.Fatal(err)
	}
	tokens, err := OpenTokens(path)
	if err != nil {
		b.Fatal(err)
	}
	identifier, r := New(tokens), asked("/", "Authorization: Bearer "+aliceToken)
	b.ReportAllocs()
	for b.Loop() {
		if p, _ := identifier.Identify(r); p == nil {
			b.Fatal("alice is not known")
		}
	}
}
