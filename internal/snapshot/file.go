package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sluice/internal/authz"
	"strings"
	"syscall"
	"time"
)

// FileOptions configure a FileStore.
type FileOptions struct {
	// Dir holds the records. Required; it need not exist yet.
	Dir string
	// Poll is how often the directory is looked at beside being watched; each
	// look confirms; sooner where the age limit needs it. Default 1s.
	Poll time.Duration
	// Log is for the watch's ups and downs. Default: none.
	Log *slog.Logger
}

// FileStore keeps each record in a file of its own: <dir>/leases/<id>.json or
// <dir>/lease.<id>.json, likewise for the other kinds, and <dir>/control.json.
// A file is replaced by rename; one that is half-written or empty is
// malformed, and so is a record that stands in both places.
type FileStore struct {
	opt FileOptions
}

// folders are the directories of the kinds.
var folders = map[authz.Kind]string{
	authz.KindLease:       "leases",
	authz.KindEnvironment: "environments",
	authz.KindPlugin:      "plugins",
	authz.KindWorker:      "workers",
}

// NewFileStore returns a store on a directory; it touches nothing yet.
func NewFileStore(opt FileOptions) (*FileStore, error) {
	if opt.Dir == "" {
		return nil, errors.New("file store: no directory")
	}
	if opt.Poll < 0 {
		return nil, errors.New("file store: the poll interval is negative")
	}
	opt.Poll = or(opt.Poll, time.Second)
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	return &FileStore{opt: opt}, nil
}

// Paths returns the files that a record may stand in, the preferred one first.
func (s *FileStore) Paths(k Key) []string {
	if k.Kind == authz.KindControl {
		return []string{filepath.Join(s.opt.Dir, "control.json")}
	}
	return []string{
		filepath.Join(s.opt.Dir, folders[k.Kind], k.ID+".json"),
		filepath.Join(s.opt.Dir, string(k.Kind)+"."+k.ID+".json"),
	}
}

// keyOf is the record that a file stands for: name in the directory of a kind,
// or, where folder is "", in the store's own.
func keyOf(folder authz.Kind, name string) (Key, bool) {
	stem, ok := strings.CutSuffix(name, ".json")
	if !ok {
		return Key{}, false
	}
	k := Key{Kind: folder, ID: stem}
	if folder == "" {
		if stem == "control" {
			return ControlKey, true
		}
		if stem == "rebase" {
			return rebaseKey, true
		}
		kind, id, _ := strings.Cut(stem, ".")
		k = Key{Kind: authz.Kind(kind), ID: id}
	}
	return k, k.Kind != authz.KindControl && k.Valid()
}

// Read implements Store.
func (s *FileStore) Read(ctx context.Context, keys []Key) ([]Value, error) {
	values := make([]Value, len(keys))
	for i, k := range keys {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		values[i] = s.read(k)
	}
	return values, nil
}

func (s *FileStore) read(k Key) Value {
	if !k.Valid() {
		return Value{Err: fmt.Errorf("%q is no key of a record", k)}
	}
	var v Value
	for _, path := range s.Paths(k) {
		one := readFile(path)
		if one.Err != nil {
			return one
		}
		if one.Found && v.Found {
			return Value{Found: true, Odd: "stands in two files"}
		}
		if one.Found {
			v = one
		}
	}
	if v.Found {
		return v
	}
	// A directory that went away holds no answers, not even "absent".
	if _, err := os.ReadDir(s.opt.Dir); err != nil {
		return Value{Err: err}
	}
	return v
}

// readFile never waits: what is no regular file is not opened.
func readFile(path string) Value {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Value{}
	}
	if err != nil {
		return Value{Err: err}
	}
	if !info.Mode().IsRegular() {
		return Value{Found: true, Odd: "is no regular file"}
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return Value{}
	}
	if err != nil {
		return Value{Err: err}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxSigned+1))
	if err != nil {
		return Value{Err: err}
	}
	return Value{Found: true, Text: text}
}
