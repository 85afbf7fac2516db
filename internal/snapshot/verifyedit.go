package snapshot

import (
	"context"
	"errors"
	"fmt"
	"sluice/internal/authz"
)

// Get returns what stands under a key, or ErrNotFound: Text is the record,
// Signed what it was read from. Where Fault is about the signature, Text is
// what stands there.
func (s *Verifier) Get(ctx context.Context, k Key) (*Stored, error) {
	if !k.Valid() {
		return nil, fmt.Errorf("%q: %w", k, ErrKey)
	}
	values, err := s.next.Read(ctx, []Key{k})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", k, err)
	}
	now := s.opt.Now()
	got, err := stored(k, s.judge(k, values[0], now, now))
	if err != nil || s.opt.AllowUnsigned && looksUnsigned(values[0].Text) {
		return got, err
	}
	got.Signed = values[0].Text
	if fault, ok := errors.AsType[*Fault](got.Fault); ok {
		got.Fault = inside(fault)
	}
	return got, nil
}

// inside is a fault of the payload. Its place is in a text that nobody sees,
// so it is no Fault of the text that they do.
func inside(fault *Fault) error { return errors.New("its payload, " + fault.Error()) }

// List returns the ids of a kind, sorted, whatever stands under them.
func (s *Verifier) List(ctx context.Context, kind authz.Kind) ([]string, error) {
	return s.next.List(ctx, kind)
}

// Put writes a signed record if it may be used now, and its payload is of a
// newer revision than the stored one's, or is the same record, signed again.
// What is stored counts by its signature, also when that has expired: it may
// be what a gateway has seen. What nobody signed may be replaced.
func (s *Verifier) Put(ctx context.Context, k Key, text []byte, expect Expect) (record *authz.Record, err error) {
	if !k.Valid() {
		return nil, fmt.Errorf("%q: %w", k, ErrKey)
	}
	payload, err := s.admit(k, text)
	if err != nil {
		return nil, err
	}
	err = s.next.Replace(ctx, k, text, func(found Value) (err error) {
		former, _ := s.unseal(k, found)
		record, err = checkPut(k, former, payload, expect)
		return err
	})
	if err != nil {
		return nil, err
	}
	return record, nil
}

// admit returns the payload of what may be written.
func (s *Verifier) admit(k Key, text []byte) ([]byte, error) {
	now := s.opt.Now()
	v := s.judge(k, Value{Found: true, Text: text}, now, now)
	if v.Odd != "" {
		return nil, fmt.Errorf("%s: %w: %s", k, ErrMalformed, v.Odd)
	}
	if looksUnsigned(text) {
		return text, nil
	}
	_, err := Decode(k.Kind, k.ID, v.Text, nil)
	if fault, ok := errors.AsType[*Fault](err); ok {
		return nil, fmt.Errorf("%s: %w: %w", k, ErrMalformed, inside(fault))
	}
	return v.Text, err
}

// Delete removes a record, or answers ErrNotFound. Nobody has to sign that.
func (s *Verifier) Delete(ctx context.Context, k Key, expect Expect) error {
	return s.next.Remove(ctx, k, func(found Value) error {
		former, _ := s.unseal(k, found)
		return checkDelete(k, former, expect)
	})
}
