package snapshot

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jws"
)

// FuzzSealed holds the reader of signed records to its promises for any text:
// no panic; what it reads, the standard library reads alike, and stands there
// in the one spelling that there is.
func FuzzSealed(f *testing.F) {
	k := someKey(f, "EdDSA", "")
	good := headerOf(k, leaseKey, time.Unix(1800000000, 0), time.Hour)
	for _, h := range []string{good.json(), good.with(members{"crit": []string{"exp"}}).json(), good.with(members{"id": "", "kind": "control"}).json(), `{"alg":"none"}`, "{}", ""} {
		f.Add([]byte(handmade(k.private, h, goodLease)))
		f.Add([]byte(handmade(k.private, h, "") + "\n"))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := readSealed(text)
		if err != nil {
			return
		}
		parts := bytes.Split(s.compact, []byte{'.'})
		if len(parts) != 3 || len(text) > MaxSigned || !bytes.HasPrefix(text, s.compact) || len(text) > len(s.compact)+1 {
			t.Fatalf("read %q as %q", text, s.compact)
		}
		for _, part := range parts {
			raw, err := base64.RawURLEncoding.DecodeString(string(part))
			if err != nil || base64.RawURLEncoding.EncodeToString(raw) != string(part) {
				t.Fatalf("%q has another spelling", part)
			}
		}
		header, _ := base64.RawURLEncoding.DecodeString(string(parts[0]))
		holdHeader(t, header)
		if _, err := jws.Parse(s.compact, jws.WithCompact()); err != nil {
			t.Fatalf("the library refuses %q: %v", s.compact, err)
		}
	})
}

// FuzzHeader is FuzzSealed for the header alone.
func FuzzHeader(f *testing.F) {
	k := someKey(f, "ES256", "acme")
	good := headerOf(k, leaseKey, time.Unix(1800000000, 0), time.Hour)
	for _, h := range []string{good.json(), good.with(members{"b64": false}).json(), `{"kid":"a","\u006bid":"b"}`, "[]", "{\"exp\":1e9}"} {
		f.Add([]byte(h))
	}
	f.Fuzz(holdHeader)
}

func holdHeader(t *testing.T, raw []byte) {
	h, err := readHeader(raw)
	if err != nil {
		return
	}
	var read map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&read); err != nil || len(read) != len(headerTypes) {
		t.Fatalf("%q was read: %v", raw, err)
	}
	exp, _ := read["exp"].(json.Number).Int64()
	iat, _ := read["iat"].(json.Number).Int64()
	if h.alg != read["alg"] || h.kid != read["kid"] || read["typ"] != SignedType || string(h.key.Kind) != read["kind"] || h.key.ID != read["id"] || h.exp != exp || h.iat != iat || !h.key.Valid() {
		t.Fatalf("%q was read as %+v", raw, h)
	}
}
