package snapshot

import (
	"context"
	"sluice/internal/authz"
	"testing"
	"time"
)

// The contract of stores holds before a layer that verifies as it does behind
// it: whatever is written is signed on its way in.
func init() {
	backends["signed file"] = func(t *testing.T) *backend { return signedBackend(t, fileBackend(t, false)) }
	backends["signed redis"] = func(t *testing.T) *backend { return signedBackend(t, redisBackend(t)) }
}

func signedBackend(t *testing.T, b *backend) *backend {
	key := someKey(t, "EdDSA", "")
	v, err := NewVerifier(b.Store.(Backend), VerifierOptions{Keys: keysOf(t, key.Entry()).Keys})
	if err != nil {
		t.Fatal(err)
	}
	sign := func(k Key, text string) string {
		return handmade(key.private, headerOf(key, k, time.Now(), time.Hour).json(), text)
	}
	signed := *b
	signed.Store, signed.records = v, signingRecords{v, sign}
	signed.set = func(k Key, text string) { b.set(k, sign(k, text)) }
	return &signed
}

// signingRecords signs what is put.
type signingRecords struct {
	*Verifier
	sign func(k Key, text string) string
}

func (s signingRecords) Put(ctx context.Context, k Key, text []byte, expect Expect) (*authz.Record, error) {
	if !k.Valid() { // which nobody can sign for
		return s.Verifier.Put(ctx, k, text, expect)
	}
	return s.Verifier.Put(ctx, k, []byte(s.sign(k, string(text))), expect)
}
