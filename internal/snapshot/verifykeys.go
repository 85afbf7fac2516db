package snapshot

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"encoding/base64"
	"fmt"
	"slices"
	"sluice/internal/strictyaml"
	"strings"
	"time"
)

// maxKeysFile bounds the keys file: some four thousand keys.
const maxKeysFile = 1 << 20

// KeyEntry is an entry of the keys file: a public key as a JWK (RFC 7517), and
// for whom and when it may sign.
type KeyEntry struct {
	Kid       string `yaml:"kid" json:"kid"`                       // 1 to 128 visible ASCII characters
	Alg       string `yaml:"alg" json:"alg"`                       // EdDSA or ES256
	Kty       string `yaml:"kty" json:"kty"`                       // OKP for EdDSA, EC for ES256
	Crv       string `yaml:"crv" json:"crv"`                       // Ed25519 for EdDSA, P-256 for ES256
	X         string `yaml:"x" json:"x"`                           // 32 bytes in base64url
	Y         string `yaml:"y" json:"y,omitempty"`                 // likewise; ES256 alone
	Use       string `yaml:"use" json:"use,omitempty"`             // "" or sig
	TenantID  string `yaml:"tenantId" json:"tenantId,omitempty"`   // signs that tenant's leases and environments; "": any record
	NotBefore string `yaml:"notBefore" json:"notBefore,omitempty"` // a time; "": since ever
	NotAfter  string `yaml:"notAfter" json:"notAfter,omitempty"`   // a time, from which on it is out of force; "": never
	D         string `yaml:"d" json:"-"`                           // must not be there: the private half
}

// KeysFileError is a keys file whose text is not well-formed.
type KeysFileError struct {
	Path   string
	Faults []strictyaml.Fault
}

func (e *KeysFileError) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		lines[i] = e.Path + ":" + f.String()
	}
	return strings.Join(lines, "\n")
}

// verifyingKey is a key that records are verified with. It is immutable.
type verifyingKey struct {
	KeyEntry
	public              any       // ed25519.PublicKey or *ecdsa.PublicKey
	notBefore, notAfter time.Time // zero: no bound
}

// parseKeys reads the whole file or refuses it. A key that stands for two is
// refused: whoever holds a tenant's key must not sign as the installation.
func parseKeys(path string, text []byte) (map[string]*verifyingKey, error) {
	var list []KeyEntry
	at, faults := strictyaml.Decode(text, &list, strictyaml.Options{MaxBytes: maxKeysFile})
	if len(faults) > 0 {
		return nil, &KeysFileError{path, faults}
	}
	keys := make(map[string]*verifyingKey, len(list))
	first := map[material]int{}
	kids := map[string]int{}
	for i, e := range list {
		key, wrong := e.read()
		if before, twice := kids[e.Kid]; twice && e.Kid != "" {
			wrong = append(wrong, keyFault("kid", "%q is also that of entry [%d]", e.Kid, before))
		}
		if before, twice := first[e.material()]; twice && e.X != "" {
			wrong = append(wrong, keyFault("x", "is the key of entry [%d]; a key speaks for one", before))
		}
		for _, f := range wrong {
			f.Path = fmt.Sprintf("[%d].%s", i, f.Path)
			f.Position = at.Near(f.Path)
			faults = append(faults, f)
		}
		kids[e.Kid], first[e.material()], keys[e.Kid] = i, i, key
	}
	if len(faults) > 0 {
		return nil, &KeysFileError{path, faults}
	}
	return keys, nil
}

func keyFault(field, format string, args ...any) strictyaml.Fault {
	return strictyaml.Fault{Path: field, Message: fmt.Sprintf(format, args...)}
}

// read judges the values of an entry; the faults name its fields.
func (e KeyEntry) read() (*verifyingKey, []strictyaml.Fault) {
	k := &verifyingKey{KeyEntry: e}
	var faults []strictyaml.Fault
	wrong := func(field, format string, args ...any) { faults = append(faults, keyFault(field, format, args...)) }
	if !validKid(e.Kid) {
		wrong("kid", "%q is not 1 to 128 visible ASCII characters", e.Kid)
	}
	if e.D != "" {
		wrong("d", "is the private half of a key; it belongs to the signer alone, and this key is to be replaced")
	}
	if e.Use != "" && e.Use != "sig" {
		wrong("use", "%q is not sig", e.Use)
	}
	if e.TenantID != "" && !ValidID(e.TenantID) {
		wrong("tenantId", "%q is not an id: letters, digits, - and _, beginning with a letter or digit, at most 128", e.TenantID)
	}
	for _, bound := range []struct {
		field, text string
		to          *time.Time
	}{{"notBefore", e.NotBefore, &k.notBefore}, {"notAfter", e.NotAfter, &k.notAfter}} {
		if bound.text == "" {
			continue
		}
		var err error
		if *bound.to, err = ParseTime(bound.text); err != nil {
			wrong(bound.field, "%q is not a time such as 2030-01-31T12:00:00Z", bound.text)
		}
	}
	if e.NotBefore != "" && e.NotAfter != "" && !k.notBefore.Before(k.notAfter) {
		wrong("notAfter", "is not after notBefore: the key is never in force")
	}
	var fault *strictyaml.Fault
	if k.public, fault = e.publicKey(); fault != nil {
		faults = append(faults, *fault)
	}
	return k, faults
}

// publicKey reads the key itself. The algorithm says what it must be, so that
// no header and no key can choose another.
func (e KeyEntry) publicKey() (any, *strictyaml.Fault) {
	wrong := func(field, format string, args ...any) (any, *strictyaml.Fault) {
		f := keyFault(field, format, args...)
		return nil, &f
	}
	shape, known := map[string]struct{ kty, crv string }{"EdDSA": {"OKP", "Ed25519"}, "ES256": {"EC", "P-256"}}[e.Alg]
	switch {
	case !known:
		return wrong("alg", "%q is none of EdDSA, ES256", e.Alg)
	case e.Kty != shape.kty:
		return wrong("kty", "%q is not %s, as %s wants", e.Kty, shape.kty, e.Alg)
	case e.Crv != shape.crv:
		return wrong("crv", "%q is not %s, as %s wants", e.Crv, shape.crv, e.Alg)
	}
	x, ok := readCoordinate(e.X)
	if !ok {
		return wrong("x", "is not 32 bytes in base64url without padding")
	}
	if e.Alg == "EdDSA" {
		if e.Y != "" {
			return wrong("y", "is no part of an Ed25519 key")
		}
		return ed25519.PublicKey(x), nil
	}
	y, ok := readCoordinate(e.Y)
	if !ok {
		return wrong("y", "is not 32 bytes in base64url without padding")
	}
	public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, x, y))
	if err != nil {
		return wrong("x", "and y are no point of P-256")
	}
	return public, nil
}

func readCoordinate(s string) ([]byte, bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	return b, err == nil && len(b) == 32 && !strings.ContainsAny(s, "\r\n")
}

// outOfForce says why the key may sign nothing at a time, and when that is to
// be asked again: at the next bound of its window.
func (k *verifyingKey) outOfForce(now time.Time) (why string, again time.Time) {
	switch {
	case !k.notBefore.IsZero() && now.Before(k.notBefore):
		return "is not in force before " + k.NotBefore, k.notBefore
	case !k.notAfter.IsZero() && !now.Before(k.notAfter):
		return "is out of force since " + k.NotAfter, time.Time{}
	}
	return "", k.notAfter
}
