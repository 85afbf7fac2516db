package snapshot

import (
	"encoding/json"
	"sluice/internal/authz"
	"testing"
	"unicode/utf8"
)

// FuzzDecode holds the decoder to its promises for any text: no panic, a
// record or a placed fault, never both; a record's JSON is valid, decodes to
// itself, and what the standard library reads from the text says the same.
func FuzzDecode(f *testing.F) {
	for _, raw := range []string{goodLease, goodEnvironment, goodPlugin, goodWorker, goodControl, lease(`,"\u0069d":"l"`), lease(`,"x":[1e9,{"a":null}]`), "{\n"} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, kind := range Kinds() {
			var named struct{ ID string }
			_ = json.Unmarshal(raw, &named)
			if kind == authz.KindControl {
				named.ID = ""
			}
			r, d, err := decode(kind, named.ID, raw, nil)
			if (r == nil) == (err == nil) {
				t.Fatalf("%s: got %v and %v", kind, r, err)
			}
			if err != nil {
				continue
			}
			if !utf8.Valid(raw) || len(raw) > MaxText || !json.Valid(raw) || !json.Valid(r.JSON) {
				t.Fatalf("%s: accepted %q as %q", kind, raw, r.JSON)
			}
			again, _, err := decode(kind, named.ID, r.JSON, nil)
			if err != nil || string(again.JSON) != string(r.JSON) || again.Revision != r.Revision {
				t.Fatalf("%s: %q does not decode to itself: %v", kind, r.JSON, err)
			}
			if _, d2, _ := decode(kind, named.ID, append([]byte(" "), raw...), nil); len(raw) < MaxText && d2 != d {
				t.Fatalf("%s: white space changed the digest of %q", kind, raw)
			}
		}
		if live, err := DecodeLive(raw); (live == nil) == (err == nil) {
			t.Fatalf("live: got %v and %v", live, err)
		}
	})
}
