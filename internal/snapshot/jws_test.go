package snapshot

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"sluice/internal/authz"
	"strings"
	"testing"
	"time"
)

// someKey makes a key; "" is the installation's.
func someKey(t testing.TB, alg, tenantID string) *SigningKey {
	t.Helper()
	k, err := NewSigningKey(alg, tenantID)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// members are those of a header, as somebody who has no need to be careful
// writes them; nil leaves one out.
type members map[string]any

func (m members) with(changes members) members {
	out := maps.Clone(m)
	for name, value := range changes {
		if out[name] = value; value == nil {
			delete(out, name)
		}
	}
	return out
}

func headerOf(k *SigningKey, place Key, iat time.Time, life time.Duration) members {
	return members{
		"alg": k.entry.Alg, "kid": k.entry.Kid, "typ": SignedType, "kind": string(place.Kind), "id": place.ID,
		"iat": iat.Unix(), "exp": iat.Add(life).Unix(),
	}
}

func (m members) json() string {
	text, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func b64(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// handmade is a compact JWS that no library wrote.
func handmade(private any, header, payload string) string {
	input := b64(header) + "." + b64(payload)
	return input + "." + b64(string(signatureOf(private, input)))
}

func signatureOf(private any, input string) []byte {
	sum := sha256.Sum256([]byte(input))
	switch k := private.(type) {
	case ed25519.PrivateKey:
		return ed25519.Sign(k, []byte(input))
	case *ecdsa.PrivateKey:
		r, s, err := ecdsa.Sign(rand.Reader, k, sum[:])
		if err != nil {
			panic(err)
		}
		return append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	case []byte: // HS256
		mac := hmac.New(sha256.New, k)
		mac.Write([]byte(input))
		return mac.Sum(nil)
	}
	return nil // none
}

func TestWhatIsSignedIsTakenFromTheLibraryAndFromByHandAlike(t *testing.T) {
	now := time.Unix(1800000000, 0)
	for _, alg := range []string{"EdDSA", "ES256"} {
		k := someKey(t, alg, "")
		v := verifierOn(t, now, k)
		for place, text := range map[Key]string{
			leaseKey: goodLease, envKey: goodEnvironment, pluginKey: goodPlugin, workerKey: goodWorker, ControlKey: goodControl,
		} {
			signed, r, err := k.Sign(place, []byte(text), now, time.Hour)
			if err != nil || r.Kind != place.Kind {
				t.Fatal(err)
			}
			for _, compact := range []string{string(signed), handmade(k.private, headerOf(k, place, now, time.Hour).json(), text), string(signed) + "\n"} {
				got := v.ask(place, compact)
				if got.Odd != "" || string(got.Text) != text || got.Tenant != "" || got.TTL != time.Hour-time.Millisecond {
					t.Errorf("%s %s: got %+v", alg, place, got)
				}
			}
		}
	}
}

func TestWhatIsNoSignedRecordInEveryDetailIsNone(t *testing.T) {
	now := time.Unix(1800000000, 0)
	ed, es, foreign := someKey(t, "EdDSA", ""), someKey(t, "ES256", ""), someKey(t, "EdDSA", "")
	v := verifierOn(t, now, ed, es)
	good := headerOf(ed, leaseKey, now, time.Hour)
	by := func(changes members) string { return handmade(ed.private, good.with(changes).json(), goodLease) }
	raw := func(header string) string { return handmade(ed.private, header, goodLease) }
	whole := by(nil)
	header, rest, _ := strings.Cut(whole, ".")
	payload, signature, _ := strings.Cut(rest, ".")
	public := []byte(ed.private.Public().(ed25519.PublicKey))
	for name, c := range map[string]struct{ text, want string }{
		"unsigned":                 {goodLease, "is not signed"},
		"unsigned, behind a space": {"\n " + goodLease, "is not signed"},
		"null":                     {"null", "is no compact JWS"},
		"nothing":                  {"", "is no compact JWS"},
		"two parts":                {header + "." + payload, "is no compact JWS"},
		"four parts":               {whole + ".", "is no compact JWS"},
		"five parts, as a JWE":     {whole + "." + payload + "." + payload, "is no compact JWS"},
		"JSON serialization":       {`{"payload":"` + payload + `","protected":"` + header + `","signature":"` + signature + `"}`, "is not signed"},
		"a space before":           {" " + whole, "header: is no compact JWS"},
		"a space behind":           {whole + " ", "signature: is not 64 bytes"},
		"two line ends":            {whole + "\n\n", "signature: is not 64 bytes"},
		"a line end inside":        {header + "\n." + rest, "header: is no compact JWS"},
		"a return in the payload":  {header + "." + payload[:8] + "\r" + payload[8:] + "." + signature, "payload: is no compact JWS"},
		"padding":                  {header + "=." + rest, "header: is no compact JWS"},
		"plus for minus":           {header + "." + payload[:4] + "+" + payload[5:] + "." + signature, "payload: is no compact JWS"},
		"bits beyond the end":      {strings.TrimSuffix(whole, signature) + signature[:85] + nextLetter(signature[85]), "signature: is not 64 bytes"},
		"a short signature":        {whole[:len(whole)-2], "signature: is not 64 bytes"},
		"no signature":             {header + "." + payload + ".", "signature: is not 64 bytes"},
		"too large":                {strings.Repeat("A", MaxSigned+1), "is larger than"},
		"a header too large":       {b64(strings.Repeat(" ", maxHeader)+good.json()) + "." + rest, "header: is larger than 1024 bytes"},
		"a payload too large":      {handmade(ed.private, good.json(), strings.Repeat(" ", MaxText)+goodLease), "larger than"},

		"a header that is no object": {raw(`[]`), "header: is no JSON object"},
		"a header and more":          {raw(good.json() + "{}"), "header: something follows"},
		"a duplicate member":         {raw(strings.Replace(good.json(), "{", `{"kid":"x",`, 1)), "header: kid has a duplicate name"},
		"a duplicate, escaped":       {raw(strings.Replace(good.json(), "{", `{"\u006bid":"x",`, 1)), "has a duplicate name"},
		"another member":             {by(members{"x": 1}), `header: "x" is no member`},
		"a member in capitals":       {by(members{"Kid": "x"}), `header: "Kid" is no member`},
		"crit":                       {by(members{"crit": []string{"exp"}}), `header: "crit" is no member`},
		"crit, null":                 {raw(strings.Replace(good.json(), "{", `{"crit":null,`, 1)), `header: "crit" is no member`},
		"b64":                        {by(members{"b64": true}), `header: "b64" is no member`},
		"jku":                        {by(members{"jku": "https://example.com/keys"}), `header: "jku" is no member`},
		"jwk":                        {by(members{"jwk": foreign.entry}), `header: "jwk" is no member`},
		"x5u":                        {by(members{"x5u": "https://example.com/cert"}), `header: "x5u" is no member`},
		"x5c":                        {by(members{"x5c": []string{"MII"}}), `header: "x5c" is no member`},
		"zip":                        {by(members{"zip": "DEF"}), `header: "zip" is no member`},
		"without alg":                {by(members{"alg": nil}), "header: alg is missing"},
		"without kid":                {by(members{"kid": nil}), "header: kid is missing"},
		"without typ":                {by(members{"typ": nil}), "header: typ is missing"},
		"without kind":               {by(members{"kind": nil}), "header: kind is missing"},
		"without id":                 {by(members{"id": nil}), "header: id is missing"},
		"without iat":                {by(members{"iat": nil}), "header: iat is missing"},
		"without exp":                {by(members{"exp": nil}), "header: exp is missing"},
		"typ of a token":             {by(members{"typ": "JWT"}), "header: typ is not " + SignedType},
		"typ in capitals":            {by(members{"typ": strings.ToUpper(SignedType)}), "header: typ is not"},
		"exp as text":                {by(members{"exp": "1800003600"}), "header: exp is no whole number"},
		"exp with a fraction":        {raw(strings.Replace(good.json(), "1800003600", "1800003600.0", 1)), "header: exp is no whole number"},
		"exp with an exponent":       {raw(strings.Replace(good.json(), "1800003600", "18e8", 1)), "header: exp is no whole number"},
		"exp beyond the year 9999":   {by(members{"exp": int64(253402300800)}), "header: exp is no whole number"},
		"exp below zero":             {by(members{"exp": -1}), "header: exp is no whole number"},
		"kid not visible":            {by(members{"kid": "a b"}), "header: kid is not 1 to 128"},
		"kid too long":               {by(members{"kid": strings.Repeat("k", 129)}), "header: kid is not 1 to 128"},
		"no such kind":               {by(members{"kind": "Lease"}), "header: kind and id name no record"},
		"an id that is none":         {by(members{"id": "../lease-1"}), "header: kind and id name no record"},

		"for another kind":     {by(members{"kind": "environment"}), "is signed for another record, environment:lease-1"},
		"for another id":       {by(members{"id": "lease-2"}), "is signed for another record, lease:lease-2"},
		"for the control":      {by(members{"kind": "control", "id": ""}), "is signed for another record, control"},
		"an unknown key":       {handmade(foreign.private, headerOf(foreign, leaseKey, now, time.Hour).json(), goodLease), "is signed with a key that is not known"},
		"another's key":        {handmade(foreign.private, good.json(), goodLease), "its signature is wrong"},
		"the other known key":  {handmade(es.private, good.with(members{"alg": "ES256"}).json(), goodLease), "its algorithm is not EdDSA"},
		"none":                 {handmade(nil, good.with(members{"alg": "none"}).json(), goodLease), "signature: is not 64 bytes"},
		"none, with something": {by(members{"alg": "none"}), "header: alg is none of EdDSA, ES256"},
		"the public key as HS256's": {
			handmade(public, good.with(members{"alg": "HS256"}).json(), goodLease), "signature: is not 64 bytes",
		},
		"alg of another case":   {by(members{"alg": "eddsa"}), "header: alg is none of"},
		"alg by its newer name": {by(members{"alg": "Ed25519"}), "header: alg is none of"},
		"an altered payload":    {header + "." + b64(strings.Replace(goodLease, "acme", "evil", 1)) + "." + signature, "its signature is wrong"},
		"an altered header":     {b64(good.with(members{"exp": now.Unix() + 3599}).json()) + "." + rest, "its signature is wrong"},
	} {
		got := v.ask(leaseKey, c.text)
		if !strings.Contains(got.Odd, c.want) {
			t.Errorf("%s: got %q, want %q", name, got.Odd, c.want)
		}
		if !got.Found || string(got.Text) != c.text || got.TTL != 0 {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	if got := v.ask(leaseKey, whole); got.Odd != "" {
		t.Errorf("what all of them were made from: %s", got.Odd)
	}
}

// nextLetter sets a bit beyond the last byte: it decodes to the same.
func nextLetter(c byte) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return string(alphabet[strings.IndexByte(alphabet, c)+1])
}

func TestTheLargestRecordFits(t *testing.T) {
	now := time.Unix(1800000000, 0)
	long := strings.Repeat("i", maxID)
	place := Key{authz.KindEnvironment, long}
	private := someKey(t, "ES256", "")
	private.entry.Kid = strings.Repeat("k", maxKid)
	text := fmt.Sprintf(`{"id":%q,"tenantId":"acme","status":"active","revision":1,"x":""}`, long)
	text = strings.Replace(text, `"x":"`, `"x":"`+strings.Repeat("a", MaxText-len(text)), 1)
	compact, _, err := private.Sign(place, []byte(text), now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if len(compact) > MaxSigned {
		t.Errorf("%d bytes signed are more than %d", len(compact), MaxSigned)
	}
	if got := verifierOn(t, now, private).ask(place, string(compact)); got.Odd != "" || string(got.Text) != text {
		t.Errorf("got %q", got.Odd)
	}
	if _, _, err := private.Sign(place, []byte(text+" "), now, time.Hour); err == nil {
		t.Error("a larger one was signed")
	}
}

func TestTheTimesOfASignatureAreExact(t *testing.T) {
	issued := time.Unix(1800000000, 0)
	k := someKey(t, "EdDSA", "")
	signed := func(life time.Duration) string {
		return handmade(k.private, headerOf(k, leaseKey, issued, life).json(), goodLease)
	}
	for _, c := range []struct {
		name string
		life time.Duration
		now  time.Duration // since it was issued
		want string
	}{
		{"at once", time.Hour, 0, ""},
		{"a nanosecond before exp", time.Hour, time.Hour - 1, ""},
		{"at exp", time.Hour, time.Hour, "its signature has expired, at 2027-01-15T09:00:00Z"},
		{"long after exp", time.Hour, 1000 * time.Hour, "its signature has expired"},
		{"as long as max_life", time.Hour, time.Minute, ""},
		{"a second longer", time.Hour + time.Second, time.Minute, "its signature is for longer than 1h0m0s"},
		{"for no time", 0, -time.Second, "its signature expires before it begins"},
		{"for less than none", -time.Second, -3 * time.Second, "its signature expires before it begins"},
		{"from a clock that is 5s ahead", time.Hour, -signerAhead, ""},
		{"from one that is more", time.Hour, -signerAhead - 1, "its signature is of a time to come, 2027-01-15T08:00:00Z"},
	} {
		v := verifierOn(t, issued.Add(c.now), k)
		if got := v.ask(leaseKey, signed(c.life)); (c.want == "") != (got.Odd == "") || !strings.Contains(got.Odd, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got.Odd, c.want)
		}
	}
	early := verifierOn(t, issued.Add(-time.Minute), k).ask(leaseKey, signed(time.Hour))
	if early.Odd == "" || early.TTL != time.Minute-signerAhead-time.Millisecond {
		t.Errorf("what begins later is not looked at again then: %+v", early)
	}
}

func TestAPrivateKeyIsReadAsItWasWritten(t *testing.T) {
	for _, alg := range []string{"EdDSA", "ES256"} {
		k := someKey(t, alg, "acme")
		text, err := json.Marshal(k)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseSigningKey(text)
		if err != nil || again.Entry() != k.Entry() || !again.private.(interface{ Equal(crypto.PrivateKey) bool }).Equal(k.private) {
			t.Errorf("%s: got %+v, %v", alg, again, err)
		}
		other := someKey(t, alg, "").Entry()
		for what, bad := range map[string]string{
			"nothing":                "",
			"no JSON":                string(text[1:]),
			"the public half":        strings.Replace(string(text), `"d":`, `"e":`, 1),
			"another's public x":     strings.Replace(string(text), k.entry.X, other.X, 1),
			"another algorithm":      strings.Replace(string(text), alg, "HS256", 1),
			"another type of key":    strings.Replace(string(text), `"kty":"`, `"kty":"x`, 1),
			"without kid":            strings.Replace(string(text), `"kid":`, `"kit":`, 1),
			"a tenant that is no id": strings.Replace(string(text), "acme", "*", 1),
		} {
			if _, err := ParseSigningKey([]byte(bad)); err == nil {
				t.Errorf("%s: %s was read", alg, what)
			}
		}
	}
	for _, alg := range []string{"", "none", "HS256", "RS256", "ES384", "eddsa"} {
		if _, err := NewSigningKey(alg, ""); err == nil {
			t.Errorf("a key for %q was made", alg)
		}
	}
	if _, err := NewSigningKey("EdDSA", "../acme"); err == nil {
		t.Error("a key for no tenant was made")
	}
}

func TestWhatNoGatewayWouldTakeIsNotSigned(t *testing.T) {
	now := time.Unix(1800000000, 0)
	all, acme := someKey(t, "EdDSA", ""), someKey(t, "ES256", "acme")
	for _, c := range []struct {
		name string
		key  *SigningKey
		at   Key
		text string
		life time.Duration
		want string // "": signed
	}{
		{"a lease", all, leaseKey, goodLease, time.Hour, ""},
		{"a tenant's lease", acme, leaseKey, goodLease, time.Second, ""},
		{"a tenant's environment", acme, envKey, goodEnvironment, time.Hour, ""},
		{"another's lease", acme, leaseKey, strings.Replace(goodLease, `"acme"`, `"evil"`, 1), time.Hour, "another tenant's"},
		{"a worker by a tenant", acme, workerKey, goodWorker, time.Hour, "leases and environments alone"},
		{"the control by a tenant", acme, ControlKey, goodControl, time.Hour, "leases and environments alone"},
		{"malformed", all, leaseKey, `{"id":"lease-1"}`, time.Hour, "malformed record"},
		{"of another id", all, Key{authz.KindLease, "lease-2"}, goodLease, time.Hour, "malformed record"},
		{"for no record", all, Key{authz.KindLease, "a/b"}, goodLease, time.Hour, "no key of a record"},
		{"for no time", all, leaseKey, goodLease, 0, "whole seconds"},
		{"for less than none", all, leaseKey, goodLease, -time.Hour, "whole seconds"},
		{"for half a second more", all, leaseKey, goodLease, 1500 * time.Millisecond, "whole seconds"},
	} {
		compact, r, err := c.key.Sign(c.at, []byte(c.text), now, c.life)
		switch {
		case c.want == "" && (err != nil || r == nil || len(compact) == 0):
			t.Errorf("%s: got %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || compact != nil):
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}
