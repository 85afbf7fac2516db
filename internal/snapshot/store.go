package snapshot

import (
	"context"
	"sluice/internal/authz"
	"strings"
	"time"
)

// Key names a record in a store. ID is "" for the control record.
type Key struct {
	Kind authz.Kind
	ID   string
}

// ControlKey is the key of the one control record.
var ControlKey = Key{Kind: authz.KindControl}

// Valid reports whether the key is of a known kind and its id is one.
func (k Key) Valid() bool {
	if k.Kind == authz.KindControl {
		return k.ID == ""
	}
	return recordTypes[k.Kind] != nil && ValidID(k.ID)
}

// String is "lease:lease-1", and "control" for the control record.
func (k Key) String() string {
	if k.ID == "" {
		return string(k.Kind)
	}
	return string(k.Kind) + ":" + k.ID
}

// ParseKey is the inverse of String; it reports false for what is no key.
func ParseKey(s string) (Key, bool) {
	kind, id, _ := strings.Cut(s, ":")
	k := Key{Kind: authz.Kind(kind), ID: id}
	return k, k.Valid() && k.String() == s
}

// Value is what a store holds under a key. Absent, malformed and unreadable
// are three things: Found is false only when the store said that there is
// nothing; Err says nothing about the value.
type Value struct {
	Found bool
	// Text is the record's text, or what a Verifier makes it from; cut off
	// behind MaxSigned+1 bytes.
	Text []byte
	// Odd says why what is there is no text of a record at all: another Redis
	// type, two files for one key. Such a value is malformed.
	Odd string
	// TTL is how long after the read was sent the store will forget the
	// value; 0 is never.
	TTL time.Duration
	// Tenant, when set, is whose key signed the value: nobody else vouches for
	// it, and what it leads to must be that tenant's own.
	Tenant string
	Err    error
}

// Store is where the records are. Its methods are safe for concurrent use.
type Store interface {
	// Read returns the values of keys, in their order. An error is about all
	// of them. It keeps to ctx's deadline.
	Read(ctx context.Context, keys []Key) ([]Value, error)
	// Watch tells the feed about changes until ctx ends, which is no error,
	// and confirms at least every so often. It calls the feed from one
	// goroutine.
	Watch(ctx context.Context, feed Feed, every time.Duration) error
}

// Feed is told what becomes of the records of a store. What was read before
// Up, or between Down and the next Up, is not confirmed by any later call.
type Feed interface {
	// Up begins an epoch: from now on every change is told. It is called
	// again while up when changes may have been missed.
	Up()
	// Changed tells of records that may have changed.
	Changed(keys ...Key)
	// Confirm tells that every change made before asOf has been told.
	Confirm(asOf time.Time)
	// Down ends the epoch: changes are no longer told, because of err.
	Down(err error)
}
