package snapshot

import (
	"bytes"
	"encoding/base64"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"sluice/internal/authz"
	"strconv"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jws"
)

// SignedType is the typ of every signed record: what the same keys signed for
// another purpose is no record.
const SignedType = "sluice-record+jws"

// signedHeader is the protected header of a signed record. Each of these
// stands in it once, and nothing else does: no crit, no b64, no zip, and no
// way to bring a key along (jku, jwk, x5u, x5c).
type signedHeader struct {
	alg, kid string
	key      Key // kind and id
	iat, exp int64
}

// algorithms are those that a key may be made for. The key says which; the
// header must only agree.
var algorithms = map[string]jwa.SignatureAlgorithm{
	"EdDSA": jwa.EdDSA(), // RFC 8037, on Ed25519
	"ES256": jwa.ES256(), // RFC 7518, section 3.4
}

// sealed is a signed record that was read but not yet believed.
type sealed struct {
	header  signedHeader
	compact []byte
}

var (
	errUnsigned = errors.New("is not signed")
	errCompact  = errors.New("is no compact JWS: three parts in base64url without padding, joined by dots")
)

// readSealed reads a compact JWS (RFC 7515, section 7.1), exactly. A line's
// end behind it is no part of it: a file may end with one. Sizes are judged
// before anything is decoded.
func readSealed(text []byte) (sealed, error) {
	if looksUnsigned(text) {
		return sealed{}, errUnsigned
	}
	if len(text) > MaxSigned {
		return sealed{}, fmt.Errorf("is larger than %d bytes", MaxSigned)
	}
	compact := bytes.TrimSuffix(text, []byte{'\n'})
	parts := bytes.Split(compact, []byte{'.'})
	if len(parts) != 3 {
		return sealed{}, errCompact
	}
	header, err := decodePart(parts[0], maxHeader)
	if err != nil {
		return sealed{}, fmt.Errorf("header: %w", err)
	}
	if _, err := decodePart(parts[1], MaxText); err != nil {
		return sealed{}, fmt.Errorf("payload: %w", err)
	}
	if signature, err := decodePart(parts[2], signatureSize); err != nil || len(signature) != signatureSize {
		return sealed{}, fmt.Errorf("signature: is not %d bytes in base64url without padding", signatureSize)
	}
	h, err := readHeader(header)
	if err != nil {
		return sealed{}, fmt.Errorf("header: %w", err)
	}
	return sealed{h, compact}, nil
}

// looksUnsigned reports a text that begins as a JSON object does. No compact
// JWS does.
func looksUnsigned(text []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte{'{'})
}

// decodePart decodes base64url without padding: one spelling for each
// content, so no line ends and no bits that are set beyond the last byte.
func decodePart(part []byte, limit int) ([]byte, error) {
	if base64.RawURLEncoding.DecodedLen(len(part)) > limit {
		return nil, fmt.Errorf("is larger than %d bytes", limit)
	}
	if bytes.ContainsAny(part, "\r\n") { // which the decoder would skip
		return nil, errCompact
	}
	out, err := base64.RawURLEncoding.Strict().DecodeString(string(part))
	if err != nil {
		return nil, errCompact
	}
	return out, nil
}

// headerTypes are the members of the header, all required.
var headerTypes = []fieldType{
	{"alg", true, isAlgorithm},
	{"kid", true, isKid},
	{"typ", true, isSignedType},
	{"kind", true, isString},
	{"id", true, isString},
	{"iat", true, isSeconds},
	{"exp", true, isSeconds},
}

// readHeader reads the decoded header as strictly as a record is read.
func readHeader(raw []byte) (signedHeader, error) {
	object, fault := parseObject(raw, headerTypes)
	if fault != nil {
		return signedHeader{}, errors.New(fault.words())
	}
	for _, m := range object.members {
		if !knownHeader(m.name) {
			return signedHeader{}, fmt.Errorf("%q is no member of a signed record's header", shortened(m.name))
		}
	}
	h := signedHeader{
		alg: object.text("alg"), kid: object.text("kid"),
		key: Key{Kind: authz.Kind(object.text("kind")), ID: object.text("id")},
	}
	h.iat, _ = seconds(object.get("iat"))
	h.exp, _ = seconds(object.get("exp"))
	if !h.key.Valid() {
		return signedHeader{}, errors.New("kind and id name no record")
	}
	return h, nil
}

func knownHeader(name string) bool {
	for _, t := range headerTypes {
		if t.name == name {
			return true
		}
	}
	return false
}

// words is the fault without its place, which is of no use to anybody where
// the text is encoded.
func (f *Fault) words() string {
	if f.Field == "" {
		return f.What
	}
	return f.Field + " " + f.What
}

// shortened keeps what a stranger wrote from filling the log.
func shortened(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

const maxKid = 128

// validKid reports 1 to 128 visible ASCII characters.
func validKid(s string) bool { return len(s) <= maxKid && ValidToken(s) }

func isAlgorithm(n *node) *Fault {
	if _, known := algorithms[n.str]; n.kind != jsontext.KindString || !known {
		return wrong(n, "is none of EdDSA, ES256")
	}
	return nil
}

func isKid(n *node) *Fault {
	if n.kind != jsontext.KindString || !validKid(n.str) {
		return wrong(n, "is not 1 to 128 visible ASCII characters")
	}
	return nil
}

func isSignedType(n *node) *Fault {
	if n.kind != jsontext.KindString || n.str != SignedType {
		return wrong(n, "is not "+SignedType)
	}
	return nil
}

func isSeconds(n *node) *Fault {
	if _, ok := seconds(n); !ok {
		return wrong(n, "is no whole number of seconds since 1970, to the year 9999")
	}
	return nil
}

// seconds reads a NumericDate (RFC 7519, section 2) without fraction or
// exponent.
func seconds(n *node) (int64, bool) {
	const endOf9999 = 253402300799
	if n == nil || n.kind != jsontext.KindNumber || n.str[0] == '-' {
		return 0, false
	}
	v, err := strconv.ParseInt(n.str, 10, 64)
	return v, err == nil && v <= endOf9999
}

var errSignature = errors.New("its signature is wrong")

// open returns the payload when public signed it, with alg.
func (s sealed) open(alg string, public any) ([]byte, error) {
	payload, err := jws.Verify(s.compact, jws.WithCompact(), jws.WithKey(algorithms[alg], public), jws.WithAlgorithmMatch(true))
	if err != nil {
		return nil, errSignature // the library's words tell no more, and quote what a stranger wrote
	}
	return payload, nil
}
