package snapshot

import (
	"context"
	"errors"
)

// Servers are those of the store behind the layer, where it has any.
func (s *Verifier) Servers() []ServerStatus {
	if several, ok := s.next.(interface{ Servers() []ServerStatus }); ok {
		return several.Servers()
	}
	return nil
}

// Rebase is that of the store behind the layer. It is not signed: it makes
// gateways forget revisions, and lets nothing through that is not signed and
// in force.
func (s *Verifier) Rebase(ctx context.Context, record string) error {
	if r, ok := s.next.(interface {
		Rebase(ctx context.Context, record string) error
	}); ok {
		return r.Rebase(ctx, record)
	}
	return errors.New("the store knows no rebase")
}

// Rebases is that of the store behind the layer.
func (s *Verifier) Rebases(ctx context.Context) ([]Rebase, error) {
	if r, ok := s.next.(interface {
		Rebases(ctx context.Context) ([]Rebase, error)
	}); ok {
		return r.Rebases(ctx)
	}
	return nil, nil
}
