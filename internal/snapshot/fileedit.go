package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sluice/internal/authz"
	"syscall"
)

// Get returns what stands under a key, or ErrNotFound.
func (s *FileStore) Get(_ context.Context, k Key) (*Stored, error) {
	if !k.Valid() {
		return nil, fmt.Errorf("%q: %w", k, ErrKey)
	}
	return stored(k, s.read(k))
}

// List returns the ids of a kind, sorted; for the control record it is one
// empty id, when there is one.
func (s *FileStore) List(_ context.Context, kind authz.Kind) ([]string, error) {
	found, err := s.scan()
	if err != nil {
		return nil, fmt.Errorf("list records: %w", err)
	}
	var ids []string
	for _, st := range found {
		if st.key.Kind == kind {
			ids = append(ids, st.key.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// Put writes a record if it is well-formed and of a newer revision than the
// stored one, or is the stored one again; and, when expect is set, only over
// that revision. It is one step for all that write by Put and Delete.
func (s *FileStore) Put(ctx context.Context, k Key, text []byte, expect Expect) (*authz.Record, error) {
	return put(ctx, s, k, text, expect)
}

// Replace implements Swapper.
func (s *FileStore) Replace(_ context.Context, k Key, text []byte, judge func(found Value) error) error {
	if !k.Valid() {
		return fmt.Errorf("%q: %w", k, ErrKey)
	}
	if err := os.MkdirAll(s.opt.Dir, 0o755); err != nil {
		return fmt.Errorf("put %s: %w", k, err)
	}
	unlock, err := s.lock()
	if err != nil {
		return fmt.Errorf("put %s: %w", k, err)
	}
	defer unlock()
	if err := judge(s.read(k)); err != nil {
		return err
	}
	path, err := s.place(k)
	if err == nil {
		err = writeFile(path, text)
	}
	if err != nil {
		return fmt.Errorf("put %s: %w", k, err)
	}
	return nil
}

// Delete removes a record, or answers ErrNotFound.
func (s *FileStore) Delete(ctx context.Context, k Key, expect Expect) error {
	return s.Remove(ctx, k, func(found Value) error { return checkDelete(k, found, expect) })
}

// Remove implements Swapper.
func (s *FileStore) Remove(_ context.Context, k Key, judge func(found Value) error) error {
	if !k.Valid() {
		return fmt.Errorf("%q: %w", k, ErrKey)
	}
	unlock, err := s.lock()
	if err != nil {
		return fmt.Errorf("delete %s: %w", k, err)
	}
	defer unlock()
	if err := judge(s.read(k)); err != nil {
		return err
	}
	for _, path := range s.Paths(k) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("delete %s: %w", k, err)
		}
	}
	return nil
}

// lock keeps other processes from editing: compare and set are two calls.
func (s *FileStore) lock() (unlock func(), err error) {
	dir, err := os.Open(s.opt.Dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != nil {
		dir.Close()
		return nil, fmt.Errorf("lock %s: %w", s.opt.Dir, err)
	}
	return func() { dir.Close() }, nil
}

// place is the file that k stands in, or would.
func (s *FileStore) place(k Key) (string, error) {
	paths := s.Paths(k)
	var there []string
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil {
			there = append(there, path)
		}
	}
	switch len(there) {
	case 0:
		return paths[0], os.MkdirAll(filepath.Dir(paths[0]), 0o755)
	case 1:
		return there[0], nil
	}
	return "", fmt.Errorf("it stands in two files, %s and %s: remove one", there[0], there[1])
}

// writeFile replaces a file by rename, so that nobody reads half of it.
func writeFile(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".put-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // not there any more when all went well
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
