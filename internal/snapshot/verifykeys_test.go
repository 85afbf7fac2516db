package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAKeysFileIsReadWholeOrRefused(t *testing.T) {
	ed, es := someKey(t, "EdDSA", "").Entry(), someKey(t, "ES256", "acme").Entry()
	edKey := "kty: OKP, crv: Ed25519, x: '" + ed.X + "'"
	esKey := "kty: EC, crv: P-256, x: '" + es.X + "', y: '" + es.Y + "'"
	for name, c := range map[string]struct {
		text string
		want string // "": it is read
	}{
		"nothing":               {"", ""},
		"an empty list":         {"[]", ""},
		"both sorts of keys":    {"- {kid: a, alg: EdDSA, " + edKey + "}\n- {kid: b, alg: ES256, tenantId: acme, use: sig, " + esKey + "}", ""},
		"a window":              {"- {kid: a, alg: EdDSA, notBefore: '2026-01-01T00:00:00Z', notAfter: '2027-01-01T00:00:00+01:00', " + edKey + "}", ""},
		"no list":               {"keys: []", "1:1: a mapping, where a list is wanted"},
		"an unknown field":      {"- {kid: a, alg: EdDSA, tenant: acme, " + edKey + "}", `1:24: [0]: unknown key "tenant"`},
		"a field twice":         {"- {kid: a, kid: b, alg: EdDSA, " + edKey + "}", "duplicate key"},
		"a kid twice":           {"- {kid: a, alg: EdDSA, " + edKey + "}\n- {kid: a, alg: ES256, " + esKey + "}", `2:9: [1].kid: "a" is also that of entry [0]`},
		"a key twice":           {"- {kid: a, alg: EdDSA, " + edKey + "}\n- {kid: b, alg: EdDSA, tenantId: acme, " + edKey + "}", "[1].x: is the key of entry [0]; a key speaks for one"},
		"no kid":                {"- {alg: EdDSA, " + edKey + "}", `1:3: [0].kid: "" is not 1 to 128`},
		"a kid with a space":    {"- {kid: a b, alg: EdDSA, " + edKey + "}", `[0].kid: "a b" is not 1 to 128`},
		"no algorithm":          {"- {kid: a, " + edKey + "}", `[0].alg: "" is none of EdDSA, ES256`},
		"a secret's":            {"- {kid: a, alg: HS256, " + edKey + "}", `[0].alg: "HS256" is none of EdDSA, ES256`},
		"none":                  {"- {kid: a, alg: none, " + edKey + "}", `[0].alg: "none" is none of EdDSA, ES256`},
		"of another algorithm":  {"- {kid: a, alg: ES256, " + edKey + "}", `[0].kty: "OKP" is not EC, as ES256 wants`},
		"of another curve":      {"- {kid: a, alg: EdDSA, kty: OKP, crv: X25519, x: " + ed.X + "}", `[0].crv: "X25519" is not Ed25519`},
		"cut off":               {"- {kid: a, alg: EdDSA, kty: OKP, crv: Ed25519, x: " + ed.X[:40] + "}", "[0].x: is not 32 bytes"},
		"padded":                {"- {kid: a, alg: EdDSA, kty: OKP, crv: Ed25519, x: " + ed.X + "=}", "[0].x: is not 32 bytes"},
		"without y":             {"- {kid: a, alg: ES256, kty: EC, crv: P-256, x: " + es.X + "}", "[0].y: is not 32 bytes"},
		"with y":                {"- {kid: a, alg: EdDSA, y: " + es.Y + ", " + edKey + "}", "[0].y: is no part of an Ed25519 key"},
		"no point":              {"- {kid: a, alg: ES256, kty: EC, crv: P-256, x: " + es.X + ", y: " + es.X + "}", "[0].x: and y are no point of P-256"},
		"the private half":      {"- {kid: a, alg: EdDSA, d: " + ed.X + ", " + edKey + "}", "[0].d: is the private half of a key"},
		"to encrypt":            {"- {kid: a, alg: EdDSA, use: enc, " + edKey + "}", `[0].use: "enc" is not sig`},
		"a tenant that is none": {"- {kid: a, alg: EdDSA, tenantId: '*', " + edKey + "}", `[0].tenantId: "*" is not an id`},
		"a date alone":          {"- {kid: a, alg: EdDSA, notAfter: '2027-01-01', " + edKey + "}", `[0].notAfter: "2027-01-01" is not a time`},
		"a window of nothing":   {"- {kid: a, alg: EdDSA, notBefore: '2027-01-01T00:00:00Z', notAfter: '2027-01-01T00:00:00Z', " + edKey + "}", "[0].notAfter: is not after notBefore"},
		"too large":             {strings.Repeat("# \n", maxKeysFile/3+1), "larger than"},
	} {
		path := filepath.Join(t.TempDir(), "keys.yaml")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		keys, err := OpenKeys(path)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if _, placed := errors.AsType[*KeysFileError](err); keys != nil || !placed || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	for _, path := range []string{"", filepath.Join(t.TempDir(), "none.yaml"), t.TempDir()} {
		if _, err := OpenKeys(path); err == nil {
			t.Errorf("%q was read", path)
		}
	}
}
