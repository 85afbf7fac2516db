package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sluice/internal/authz"
	"time"
)

// Backend is a store that a Verifier can stand before: a FileStore, a
// RedisStore.
type Backend interface {
	Store
	Swapper
	// List returns the ids of a kind, sorted.
	List(ctx context.Context, kind authz.Kind) ([]string, error)
}

// VerifierOptions configure a Verifier.
type VerifierOptions struct {
	// Keys are those that may sign. Required.
	Keys *Keys
	// MaxLife is how far exp may lie ahead of iat. Default 1h.
	MaxLife time.Duration
	// AllowUnsigned takes what is not signed as the store's own word, beside
	// what is: for the time in which a publisher begins to sign. Whoever can
	// write to the store can then grant.
	AllowUnsigned bool
	// Look is how often the keys file is looked at. Default 250ms.
	Look time.Duration
	// Now is the clock that iat, exp and the keys' windows are held against.
	// Default time.Now.
	Now func() time.Time
	// Log is for the keys' changes. Default: none.
	Log *slog.Logger
}

// signerAhead is how far the signer's clock may be ahead of the gateway's.
// What is signed later than that was signed by a clock that is wrong, or to be
// used later.
const signerAhead = 5 * time.Second

// Verifier is a layer before a store of signed records: it hands on the
// records that a key in force signed for their place, and makes everything
// else malformed. Whoever can only write to the store can so take away, but
// grant nothing that was not signed, or not any more.
//
// A value is a compact JWS. Its header names the record that it is for (kind,
// id), so that it is worth nothing anywhere else, and until when (exp); its
// payload is the record's text. A verdict ends when a time passes: then the
// value's TTL is over, and it is read and judged again. (That time is counted by
// the monotonic clock from the reading on: a wall clock that is set meanwhile
// counts from the next reading.) When the keys change, everything is read and
// judged again.
//
// A tenant's key signs the leases and environments of that tenant. A lease so
// signed is handed on as that tenant's (Value.Tenant), and the Cache joins no
// worker to it but one that is that tenant's own.
//
// It does not sign, and it does not remember: a record that is signed and not
// yet expired may be put back by whoever kept it, within the revisions that
// were seen.
type Verifier struct {
	next Backend
	opt  VerifierOptions
}

var _ Store = (*Verifier)(nil)

// NewVerifier returns a layer before next; it starts nothing.
func NewVerifier(next Backend, opt VerifierOptions) (*Verifier, error) {
	if next == nil || opt.Keys == nil {
		return nil, errors.New("signed records: no store, or no keys")
	}
	if opt.MaxLife < 0 || opt.Look < 0 {
		return nil, errors.New("signed records: a limit is negative")
	}
	opt.MaxLife = or(opt.MaxLife, time.Hour)
	opt.Look = or(opt.Look, 250*time.Millisecond)
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	return &Verifier{next, opt}, nil
}

// Close closes the store.
func (s *Verifier) Close() error {
	if c, ok := s.next.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// Read implements Store: Text is the payload of what is signed, Odd says why
// something is not.
func (s *Verifier) Read(ctx context.Context, keys []Key) ([]Value, error) {
	sent := s.opt.Now()
	values, err := s.next.Read(ctx, keys)
	if err != nil || len(values) != len(keys) {
		return values, err
	}
	now := s.opt.Now()
	for i, k := range keys {
		values[i] = s.judge(k, values[i], sent, now)
	}
	return values, nil
}

// judge turns what the store holds into what it is worth at now. sent is when
// the value was asked for, at the earliest.
func (s *Verifier) judge(k Key, v Value, sent, now time.Time) Value {
	opened, signature := s.unseal(k, v)
	if signature == nil {
		return opened
	}
	fault, again := signature.stands(now, s.opt.MaxLife)
	if !again.IsZero() {
		opened.TTL = sooner(v.TTL, again.Sub(sent))
	}
	if fault != nil {
		v.Odd, v.TTL = fault.Error(), opened.TTL
		return v
	}
	return opened
}

// unseal turns a signed value into its payload, whether or not it may be used
// now; without a signature that is right it is odd, and signature is nil. A
// value that needs none stays as it is.
func (s *Verifier) unseal(k Key, v Value) (Value, *Signature) {
	if !v.Found || v.Odd != "" || v.Err != nil || s.opt.AllowUnsigned && looksUnsigned(v.Text) {
		return v, nil
	}
	signature, payload, err := s.opt.Keys.verify(k, v.Text)
	if err != nil {
		v.Odd = err.Error()
		return v, nil
	}
	v.Text, v.Tenant = payload, signature.TenantID
	return v, signature
}

// sooner is the lower of a value's TTL and left. A cache adds a millisecond to
// it, for a store cuts to milliseconds; this one does not.
func sooner(ttl, left time.Duration) time.Duration {
	left = max(left-time.Millisecond, 1)
	if ttl == 0 {
		return left
	}
	return min(ttl, left)
}

// Signature says who signed a record, for which place, and from when to when.
type Signature struct {
	Kid       string
	Alg       string
	TenantID  string // whose key it is; "": the installation's
	IssuedAt  time.Time
	ExpiresAt time.Time

	key *verifyingKey
}

// Verify says who signed text for a place, and which record it is; the error
// says why a gateway would not take it at now. The signature is known as soon
// as it is right, though it may have expired.
func (k *Keys) Verify(place Key, text []byte, now time.Time, maxLife time.Duration) (*Signature, *authz.Record, error) {
	signature, payload, err := k.verify(place, text)
	if err != nil {
		return signature, nil, err
	}
	if fault, _ := signature.stands(now, maxLife); fault != nil {
		return signature, nil, fault
	}
	record, err := Decode(place.Kind, place.ID, payload, nil)
	if fault, ok := errors.AsType[*Fault](err); ok {
		return signature, nil, inside(fault)
	}
	return signature, record, err
}

// Until is when a gateway stops taking the record: at its exp, or when its key
// goes out of force.
func (s *Signature) Until() time.Time {
	if end := s.key.notAfter; !end.IsZero() && end.Before(s.ExpiresAt) {
		return end.UTC()
	}
	return s.ExpiresAt
}

// verify says who signed text, for k, and what: everything but whether it may
// be used now. The key is taken from the file alone; the header only names it.
func (k *Keys) verify(place Key, text []byte) (*Signature, []byte, error) {
	s, err := readSealed(text)
	if err != nil {
		return nil, nil, err
	}
	h := s.header
	if h.key != place {
		return nil, nil, fmt.Errorf("is signed for another record, %s", h.key)
	}
	key := k.find(h.kid)
	if key == nil {
		return nil, nil, fmt.Errorf("is signed with a key that is not known, %q", h.kid)
	}
	if h.alg != key.Alg {
		return nil, nil, fmt.Errorf("its algorithm is not %s, that of key %q", key.Alg, h.kid)
	}
	payload, err := s.open(key.Alg, key.public)
	if err != nil {
		return nil, nil, err
	}
	signature := &Signature{
		Kid: key.Kid, Alg: key.Alg, TenantID: key.TenantID,
		IssuedAt: time.Unix(h.iat, 0).UTC(), ExpiresAt: time.Unix(h.exp, 0).UTC(), key: key,
	}
	return signature, payload, key.speaksFor(place, payload)
}

// speaksFor says why the key may not sign a text for a place. What is no
// well-formed record of that place is nobody's, and malformed anyway.
func (e KeyEntry) speaksFor(place Key, text []byte) error {
	if e.TenantID == "" {
		return nil
	}
	if place.Kind != authz.KindLease && place.Kind != authz.KindEnvironment {
		return fmt.Errorf("is signed with a key of tenant %s, which signs leases and environments alone", e.TenantID)
	}
	if r, err := Decode(place.Kind, place.ID, text, nil); err == nil && r.TenantID != e.TenantID {
		return fmt.Errorf("is signed with a key of tenant %s, and is another tenant's", e.TenantID)
	}
	return nil
}

// stands says why the signature is worth nothing at now, and when that is to
// be asked again (zero: it stays so).
func (s *Signature) stands(now time.Time, maxLife time.Duration) (fault error, again time.Time) {
	why, again := s.key.outOfForce(now)
	switch {
	case why != "":
		return fmt.Errorf("is signed with key %q, which %s", s.Kid, why), again
	case !s.ExpiresAt.After(s.IssuedAt):
		return errors.New("its signature expires before it begins"), time.Time{}
	case s.ExpiresAt.Sub(s.IssuedAt) > maxLife:
		return fmt.Errorf("its signature is for longer than %s", maxLife), time.Time{}
	case !now.Before(s.ExpiresAt):
		return fmt.Errorf("its signature has expired, at %s", s.ExpiresAt.Format(time.RFC3339)), time.Time{}
	case s.IssuedAt.After(now.Add(signerAhead)):
		return fmt.Errorf("its signature is of a time to come, %s", s.IssuedAt.Format(time.RFC3339)), s.IssuedAt.Add(-signerAhead)
	}
	if again.IsZero() || s.ExpiresAt.Before(again) {
		again = s.ExpiresAt
	}
	return nil, again
}
