package snapshot

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"math/rand/v2"
	"sluice/internal/authz"
	"strings"
	"testing"
	"time"
)

// genuine is something that a key signed once.
type genuine struct {
	place    Key
	text     string // the record
	by       *SigningKey
	iat, exp time.Time
	compact  string
}

// forger is somebody who has read everything in the store, knows the public
// keys, has a key of their own, and writes what they like.
type forger struct {
	random  *rand.Rand
	seen    []genuine
	keys    []*SigningKey
	foreign []*SigningKey
}

var forgeriesAt = time.Unix(1800000000, 0)

func newForger(t *testing.T, seed uint64) *forger {
	f := &forger{
		random:  rand.New(rand.NewPCG(seed, 4)),
		keys:    []*SigningKey{someKey(t, "EdDSA", ""), someKey(t, "ES256", ""), someKey(t, "EdDSA", "acme"), someKey(t, "ES256", "evil")},
		foreign: []*SigningKey{someKey(t, "EdDSA", ""), someKey(t, "ES256", "")},
	}
	tenants := func(text string) string { return strings.Replace(text, `"acme"`, `"evil"`, 1) }
	texts := []struct {
		place Key
		text  string
	}{
		{leaseKey, goodLease},
		{leaseKey, leaseOf("lease-1", 2, "active")},
		{leaseKey, leaseOf("lease-1", 4, "revoked")},
		{leaseKey, tenants(goodLease)},
		{Key{authz.KindLease, "lease-2"}, leaseOf("lease-2", 1, "active")},
		{envKey, goodEnvironment},
		{envKey, tenants(goodEnvironment)},
		// the same id and the same text, under another kind
		{Key{authz.KindLease, "env-1"}, goodEnvironment},
		{Key{authz.KindEnvironment, "lease-1"}, goodLease},
		{pluginKey, goodPlugin},
		{workerKey, goodWorker},
		{workerKey, strings.Replace(goodWorker, "{", `{"tenantId":"evil",`, 1)},
		{ControlKey, goodControl},
		{ControlKey, strings.Replace(goodControl, "true", "false", 1)},
	}
	for _, c := range texts {
		for _, key := range f.keys {
			for _, iat := range []time.Time{forgeriesAt, forgeriesAt.Add(-30 * time.Minute)} {
				g := genuine{place: c.place, text: c.text, by: key, iat: iat, exp: iat.Add(time.Hour)}
				g.compact = handmade(key.private, headerOf(key, c.place, iat, time.Hour).json(), c.text)
				f.seen = append(f.seen, g)
			}
		}
	}
	return f
}

func pick[T any](f *forger, from []T) T { return from[f.random.IntN(len(from))] }

// forge makes a text to be written under a key.
func (f *forger) forge() (place Key, text string) {
	g, other := pick(f, f.seen), pick(f, f.seen)
	place = pick(f, f.seen).place
	if f.random.IntN(2) == 0 {
		place = g.place
	}
	mine, theirs := strings.Split(g.compact, "."), strings.Split(other.compact, ".")
	switch f.random.IntN(10) {
	case 0: // as it is, where it may not belong
	case 1: // parts of two
		for i := range mine {
			if f.random.IntN(2) == 0 {
				mine[i] = theirs[i]
			}
		}
	case 2, 3: // some bytes altered
		return place, f.mutate(g.compact)
	case 4: // the header rewritten, the old signature kept
		mine[0] = b64(f.header(g).json())
	case 5: // signed anew with a key of their own
		return place, handmade(pick(f, f.foreign).private, f.header(g).json(), pick(f, f.seen).text)
	case 6: // signed anew with what is public as the secret
		return place, handmade(f.secret(g.by), f.header(g).with(members{"alg": "HS256"}).json(), other.text)
	case 7: // not signed
		mine[0] = b64(f.header(g).with(members{"alg": pick(f, []string{"none", "None", "", "HS256", "ES256", "EdDSA"})}).json())
		mine[2] = pick(f, []string{"", mine[2], b64(strings.Repeat("\x00", 64)), b64(strings.Repeat("\x00", 32) + "\x01" + strings.Repeat("\x00", 31))})
	case 8: // another spelling of the same signature
		mine[2] = negated(g, mine[2])
	case 9: // one object behind another, or within
		return place, pick(f, []string{
			g.compact + other.compact, g.compact + "\n" + other.compact, other.text, "[" + g.text + "]",
			mine[0] + "." + mine[1] + theirs[1] + "." + mine[2], mine[0] + "." + mine[1] + "." + mine[2] + theirs[2],
		})
	}
	return place, strings.Join(mine, ".")
}

func (f *forger) mutate(s string) string {
	b := []byte(s)
	for range 1 + f.random.IntN(3) {
		i := f.random.IntN(len(b))
		switch f.random.IntN(4) {
		case 0:
			b[i] = byte(f.random.IntN(256))
		case 1:
			b[i] = pick(f, []byte("ABab01-_.=\n {"))
		case 2:
			b = append(b[:i], b[min(i+1+f.random.IntN(4), len(b)):]...)
		case 3:
			b = append(b[:i], append([]byte{pick(f, []byte("Aa0-_."))}, b[i:]...)...)
		}
		if len(b) == 0 {
			break
		}
	}
	return string(b)
}

// header is g's, bent to the forger's ends.
func (f *forger) header(g genuine) members {
	h := headerOf(g.by, g.place, g.iat, g.exp.Sub(g.iat))
	own := pick(f, f.foreign)
	public, _ := json.Marshal(own.Entry())
	place := pick(f, f.seen).place
	for range 1 + f.random.IntN(2) {
		h = h.with(pick(f, []members{
			{},
			{"kid": pick(f, f.keys).entry.Kid},
			{"kid": own.entry.Kid},
			{"kind": string(place.Kind), "id": place.ID},
			{"exp": forgeriesAt.Add(time.Hour).Unix()},
			{"iat": forgeriesAt.Unix(), "exp": forgeriesAt.Add(time.Hour).Unix()},
			{"jwk": json.RawMessage(public)},
			{"jku": "http://127.0.0.1/keys"},
			{"crit": []string{"kind"}},
			{"b64": false},
			{"alg": own.entry.Alg},
			{"typ": nil},
			{"kind": nil},
		}))
	}
	return h
}

// secret is the public key as somebody might feed it to HMAC.
func (f *forger) secret(k *SigningKey) []byte {
	entry, _ := json.Marshal(k.Entry())
	der, _ := x509.MarshalPKIXPublicKey(k.private.Public())
	raw, _ := k.private.Public().(ed25519.PublicKey)
	return pick(f, [][]byte{
		entry, der, raw, []byte(k.entry.X), []byte(k.entry.Kid), nil,
		pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}),
	})
}

// negated is the other signature of ECDSA over the same content, which anyone
// can make.
func negated(g genuine, signature string) string {
	if _, ok := g.by.private.(*ecdsa.PrivateKey); !ok {
		return signature
	}
	raw, _ := decodePart([]byte(signature), signatureSize)
	s := new(big.Int).Sub(elliptic.P256().Params().N, new(big.Int).SetBytes(raw[32:]))
	return b64(string(raw[:32]) + string(s.FillBytes(make([]byte, 32))))
}

// TestNobodyGrantsWhatNoKeySigned writes forgeries of every sort, and at every
// time. What is handed on is, to the byte, what a key in force signed for that
// place, what that key may sign, and not expired; and it says whose key it
// was.
func TestNobodyGrantsWhatNoKeySigned(t *testing.T) {
	f := newForger(t, uint64(time.Now().UnixNano()))
	retired := f.keys[1].Entry()
	retired.NotAfter = forgeriesAt.Add(10 * time.Minute).UTC().Format(time.RFC3339)
	now := forgeriesAt
	opt := VerifierOptions{}
	a := verifierBy(t, now, opt, f.keys[0].Entry(), retired, f.keys[2].Entry(), f.keys[3].Entry())
	a.opt.Now = func() time.Time { return now }
	may := func(g genuine) bool {
		tenant := g.by.entry.TenantID
		own := tenant == "" || (g.place.Kind == authz.KindLease || g.place.Kind == authz.KindEnvironment) &&
			strings.Contains(g.text, `"tenantId":"`+tenant+`"`)
		inForce := g.by != f.keys[1] || now.Before(forgeriesAt.Add(10*time.Minute))
		return own && inForce && now.Before(g.exp) && !g.iat.After(now.Add(signerAhead))
	}
	taken := 0
	for range 15000 {
		now = forgeriesAt.Add(time.Duration(f.random.IntN(80*60*1000)-60*1000) * time.Millisecond)
		place, text := f.forge()
		got := a.ask(place, text)
		if got.Odd != "" {
			continue
		}
		taken++
		rightful := false
		for _, g := range f.seen {
			if _, err := Decode(g.place.Kind, g.place.ID, []byte(g.text), nil); err != nil && g.by.entry.TenantID != "" {
				continue // judged by the decoder behind
			}
			rightful = rightful || g.place == place && g.text == string(got.Text) && g.by.entry.TenantID == got.Tenant && may(g)
		}
		if _, err := Decode(place.Kind, place.ID, got.Text, nil); !rightful && err == nil {
			t.Fatalf("%s at %s: %q was taken as %q, by %q", place, now.Sub(forgeriesAt), text, got.Text, got.Tenant)
		}
	}
	if taken < 300 {
		t.Errorf("only %d of 15000 were taken, the genuine ones among them", taken)
	}
	for _, g := range f.seen { // the other way round: what is rightful is taken
		for _, now = range []time.Time{forgeriesAt, forgeriesAt.Add(20 * time.Minute), forgeriesAt.Add(40 * time.Minute)} {
			if got := a.ask(g.place, g.compact); (got.Odd == "") != may(g) {
				if _, err := Decode(g.place.Kind, g.place.ID, []byte(g.text), nil); err == nil {
					t.Errorf("%s by %q at %s: got %q", g.place, g.by.entry.TenantID, now, got.Odd)
				}
			}
		}
	}
}
