package snapshot

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sluice/internal/authz"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jws"
)

// SigningKey is a private key that signs records. It never leaves the signer:
// gateways are told of its Entry alone.
type SigningKey struct {
	entry   KeyEntry
	private crypto.Signer
}

// NewSigningKey makes a key for alg, EdDSA or ES256, that speaks for a tenant,
// or, with "", for the installation. Its kid is taken from its own content.
func NewSigningKey(alg, tenantID string) (*SigningKey, error) {
	var private crypto.Signer
	var err error
	switch alg {
	case "EdDSA":
		_, private, err = ed25519.GenerateKey(rand.Reader)
	case "ES256":
		private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	default:
		err = fmt.Errorf("no algorithm for records is called %q: EdDSA or ES256", alg)
	}
	if err != nil {
		return nil, fmt.Errorf("make a signing key: %w", err)
	}
	if tenantID != "" && !ValidID(tenantID) {
		return nil, fmt.Errorf("make a signing key: the tenant %q is no id", tenantID)
	}
	public, err := jwk.Import(private.Public())
	if err != nil {
		return nil, fmt.Errorf("make a signing key: %w", err)
	}
	thumbprint, err := public.Thumbprint(crypto.SHA256) // RFC 7638
	if err != nil {
		return nil, fmt.Errorf("make a signing key: %w", err)
	}
	return newSigningKey(private, KeyEntry{Kid: hex.EncodeToString(thumbprint[:8]), Alg: alg, TenantID: tenantID})
}

// newSigningKey completes the entry with the public half.
func newSigningKey(private crypto.Signer, entry KeyEntry) (*SigningKey, error) {
	switch public := private.Public().(type) {
	case ed25519.PublicKey:
		entry.Kty, entry.Crv, entry.X = "OKP", "Ed25519", coordinate(public)
	case *ecdsa.PublicKey:
		point, err := public.Bytes() // 4, x, y
		if err != nil {
			return nil, fmt.Errorf("read a signing key: %w", err)
		}
		entry.Kty, entry.Crv, entry.X, entry.Y = "EC", "P-256", coordinate(point[1:33]), coordinate(point[33:])
	}
	if _, faults := entry.read(); len(faults) > 0 {
		return nil, fmt.Errorf("read a signing key: %s %s", faults[0].Path, faults[0].Message)
	}
	return &SigningKey{entry, private}, nil
}

func coordinate(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// Entry is what gateways need to know of the key, for their keys file.
func (k *SigningKey) Entry() KeyEntry { return k.entry }

// privateKey is a SigningKey as a JWK (RFC 7517), with the tenant that it
// speaks for.
type privateKey struct {
	Kty      string `json:"kty"`
	Crv      string `json:"crv"`
	X        string `json:"x"`
	Y        string `json:"y,omitempty"`
	D        string `json:"d"`
	Use      string `json:"use,omitempty"`
	Alg      string `json:"alg"`
	Kid      string `json:"kid"`
	TenantID string `json:"tenantId,omitempty"`
}

// MarshalJSON writes the private key as a JWK.
func (k *SigningKey) MarshalJSON() ([]byte, error) {
	e := k.entry
	j := privateKey{Kty: e.Kty, Crv: e.Crv, X: e.X, Y: e.Y, Use: "sig", Alg: e.Alg, Kid: e.Kid, TenantID: e.TenantID}
	switch private := k.private.(type) {
	case ed25519.PrivateKey:
		j.D = coordinate(private.Seed())
	case *ecdsa.PrivateKey:
		d, err := private.Bytes()
		if err != nil {
			return nil, fmt.Errorf("write a signing key: %w", err)
		}
		j.D = coordinate(d)
	}
	return json.Marshal(j)
}

var errNoSigningKey = errors.New("is no private key to sign records with: a JWK of kty OKP, crv Ed25519, alg EdDSA, or of kty EC, crv P-256, alg ES256, with d and kid")

// ParseSigningKey reads what MarshalJSON writes. Its error quotes nothing of
// the text.
func ParseSigningKey(text []byte) (*SigningKey, error) {
	var j privateKey
	if err := json.Unmarshal(text, &j); err != nil {
		return nil, errNoSigningKey
	}
	d, ok := readCoordinate(j.D)
	if !ok {
		return nil, errNoSigningKey
	}
	var private crypto.Signer = ed25519.NewKeyFromSeed(d)
	if j.Kty == "EC" {
		ec, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), d)
		if err != nil {
			return nil, errNoSigningKey
		}
		private = ec
	}
	k, err := newSigningKey(private, KeyEntry{Kid: j.Kid, Alg: j.Alg, TenantID: j.TenantID})
	if err != nil || k.entry.Kty != j.Kty || k.entry.Crv != j.Crv || k.entry.X != j.X || k.entry.Y != j.Y {
		return nil, errNoSigningKey // the public half is another key's: nobody could verify what it signs
	}
	return k, nil
}

// Sign signs a record's text for its key, from now and for life, both to the
// second. What no gateway would take is not signed: a text that is no
// well-formed record, one that the key may not speak for.
func (k *SigningKey) Sign(key Key, text []byte, now time.Time, life time.Duration) ([]byte, *authz.Record, error) {
	if !key.Valid() {
		return nil, nil, fmt.Errorf("sign %q: %w", key, ErrKey)
	}
	record, err := Decode(key.Kind, key.ID, text, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("sign %s: %w: %w", key, ErrMalformed, err)
	}
	if err := k.entry.speaksFor(key, text); err != nil {
		return nil, nil, fmt.Errorf("sign %s: %w", key, err)
	}
	if life < time.Second || life%time.Second != 0 {
		return nil, nil, fmt.Errorf("sign %s: its life, %s, is not one or more whole seconds", key, life)
	}
	compact, err := k.seal(key, text, now.Unix(), now.Unix()+int64(life/time.Second))
	if err != nil {
		return nil, nil, fmt.Errorf("sign %s: %w", key, err)
	}
	return compact, record, nil
}

// seal signs any text.
func (k *SigningKey) seal(key Key, text []byte, iat, exp int64) ([]byte, error) {
	h := jws.NewHeaders()
	for _, member := range []struct {
		name  string
		value any
	}{
		{"kid", k.entry.Kid}, {"typ", SignedType}, {"kind", string(key.Kind)}, {"id", key.ID}, {"iat", iat}, {"exp", exp},
	} {
		if err := h.Set(member.name, member.value); err != nil {
			return nil, err
		}
	}
	return jws.Sign(text, jws.WithCompact(), jws.WithKey(algorithms[k.entry.Alg], k.private, jws.WithProtectedHeaders(h)))
}

// material tells one public key from another.
type material [sha256.Size]byte

func (e KeyEntry) material() material { return sha256.Sum256([]byte(e.Crv + "\n" + e.X + "\n" + e.Y)) }
