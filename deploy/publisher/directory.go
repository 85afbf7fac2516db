package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// directory keeps each record in a file of its own, where a gateway with
// store.type file looks. That a record was removed stands under a name that
// begins with a dot, which no gateway reads.
type directory struct{ path string }

func (d directory) name(k key) string {
	if k.id == "" {
		return filepath.Join(d.path, k.kind+".json")
	}
	return filepath.Join(d.path, k.kind+"s", k.id+".json")
}

func (d directory) removed(k key) string {
	return filepath.Join(d.path, ".removed", k.kind+"."+k.id)
}

func (d directory) put(_ context.Context, k key, revision int64, text []byte) error {
	return d.edit(k, revision, text, func() error {
		if err := replace(d.name(k), append(text, '\n')); err != nil {
			return err
		}
		return removeFile(d.removed(k))
	})
}

func (d directory) remove(_ context.Context, k key, revision int64) error {
	return d.edit(k, revision, nil, func() error {
		if err := replace(d.removed(k), strconv.AppendInt(nil, revision, 10)); err != nil {
			return err
		}
		return removeFile(d.name(k))
	})
}

// edit compares and sets, alone: the lock is the one that "gateway records put"
// takes too.
func (d directory) edit(k key, revision int64, text []byte, write func() error) error {
	if err := os.MkdirAll(d.path, 0o755); err != nil {
		return fmt.Errorf("publish %s: %w", k, err)
	}
	lock, err := os.Open(d.path)
	if err != nil {
		return fmt.Errorf("publish %s: %w", k, err)
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("publish %s: lock %s: %w", k, d.path, err)
	}
	var s stored
	for name, value := range map[string]*[]byte{d.name(k): &s.text, d.removed(k): &s.removed} {
		if *value, err = os.ReadFile(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("publish %s: %w", k, err)
		}
	}
	needed, err := judge(s, revision, text)
	if err == nil && needed {
		err = write()
	}
	if err != nil {
		return fmt.Errorf("publish %s: %w", k, err)
	}
	return nil
}

// replace puts a file in place by rename, so that nobody reads half of it.
func replace(name string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // not there any more when all went well
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

func removeFile(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
