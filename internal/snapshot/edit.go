package snapshot

import (
	"context"
	"errors"
	"fmt"
	"sluice/internal/authz"
)

// What stands in the way of an edit.
var (
	// ErrNotFound says that there is no such record.
	ErrNotFound = errors.New("no such record")
	// ErrOlder says that the store holds a newer revision.
	ErrOlder = errors.New("the store holds a newer revision")
	// ErrConflict says that the store holds this revision with other content.
	ErrConflict = errors.New("the store holds this revision with other content")
	// ErrPrecondition says that the store does not hold the revision that the
	// caller expects.
	ErrPrecondition = errors.New("the store does not hold the expected revision")
	// ErrMalformed says that the text is no well-formed record.
	ErrMalformed = errors.New("malformed record")
	// ErrKey says that kind and id name no place of a record.
	ErrKey = errors.New("no key of a record")
)

// Stored is what the stores answer to Get: the text under a key, and either
// the record that it is or the fault that makes it malformed.
type Stored struct {
	Key    Key
	Text   []byte
	Signed []byte        // the JWS that Text was read from; nil: it is not signed
	Record *authz.Record // without extra fields
	Fault  error
}

func stored(k Key, v Value) (*Stored, error) {
	switch {
	case v.Err != nil:
		return nil, fmt.Errorf("read %s: %w", k, v.Err)
	case !v.Found:
		return nil, fmt.Errorf("%s: %w", k, ErrNotFound)
	}
	s := &Stored{Key: k, Text: v.Text}
	if v.Odd != "" {
		s.Fault = errors.New(v.Odd)
		return s, nil
	}
	s.Record, s.Fault = Decode(k.Kind, k.ID, v.Text, nil)
	return s, nil
}

// Swapper replaces what stands under a key in one step for everybody who edits
// by it. Its methods are safe for concurrent use.
type Swapper interface {
	// Replace writes text if judge has nothing against what it is shown: the
	// value that the text replaces. It may be asked again, when another writer
	// came between. Its error is returned as it is.
	Replace(ctx context.Context, k Key, text []byte, judge func(found Value) error) error
	// Remove is Replace with nothing.
	Remove(ctx context.Context, k Key, judge func(found Value) error) error
}

// put replaces what stands under a key by a record that may replace it.
func put(ctx context.Context, s Swapper, k Key, text []byte, expect Expect) (record *authz.Record, err error) {
	err = s.Replace(ctx, k, text, func(found Value) (err error) {
		record, err = checkPut(k, found, text, expect)
		return err
	})
	if err != nil {
		return nil, err
	}
	return record, nil
}

// Expect is what an edit wants to find: a record of this revision, or Exists or
// Absent; nil is anything, also nothing.
type Expect *int64

// What else than a revision, which is never negative, an edit may expect.
const (
	Exists int64 = -1 // something, be it malformed
	Absent int64 = -2 // nothing
)

func (v Value) meets(expect Expect, known *authz.Record) bool {
	switch {
	case expect == nil:
		return true
	case *expect == Exists:
		return v.Found
	case *expect == Absent:
		return !v.Found
	}
	return known != nil && known.Revision == *expect
}

// checkPut decides whether text may replace what stands under k: it must be a
// well-formed record, of a newer revision or the same record again. What is
// malformed may be replaced by anything well-formed.
func checkPut(k Key, v Value, text []byte, expect Expect) (*authz.Record, error) {
	if !k.Valid() {
		return nil, fmt.Errorf("%q: %w", k, ErrKey)
	}
	record, content, err := decode(k.Kind, k.ID, text, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", k, ErrMalformed, err)
	}
	if v.Err != nil {
		return nil, fmt.Errorf("read %s: %w", k, v.Err)
	}
	old, oldContent, err := decode(k.Kind, k.ID, v.Text, nil)
	known := v.Found && v.Odd == "" && err == nil
	if !known {
		old = nil
	}
	switch {
	case !v.meets(expect, old):
		return nil, fmt.Errorf("%s: %w", k, ErrPrecondition)
	case known && record.Revision < old.Revision:
		return nil, fmt.Errorf("%s, revision %d: %w (%d)", k, record.Revision, ErrOlder, old.Revision)
	case known && record.Revision == old.Revision && content != oldContent:
		return nil, fmt.Errorf("%s, revision %d: %w", k, record.Revision, ErrConflict)
	}
	return record, nil
}

func checkDelete(k Key, v Value, expect Expect) error {
	switch s, err := stored(k, v); {
	case err != nil:
		return err
	case !v.meets(expect, s.Record):
		return fmt.Errorf("%s: %w", k, ErrPrecondition)
	}
	return nil
}
