package snapshot

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sluice/internal/authz"
	"syscall"
	"time"
)

// racy is how long after its time stamp a file may have been written again
// under the same one: file systems stamp with a coarse clock.
const racy = 100 * time.Millisecond

// stamp tells one state of a record's file from another without reading it.
type stamp struct {
	key        Key
	dev, ino   uint64
	size       int64
	mode       fs.FileMode
	written    int64 // in nanoseconds
	changed    int64 // its inode, in nanoseconds; 0 where the system does not tell
	unreadable bool
	young      bool // its time may yet be given to another state
}

// scan looks at every file of the store. The result maps paths to stamps.
func (s *FileStore) scan() (map[string]stamp, error) {
	start := time.Now()
	found := map[string]stamp{}
	if err := s.scanDir(s.opt.Dir, "", start, found); err != nil {
		return nil, err
	}
	for kind, folder := range folders {
		err := s.scanDir(filepath.Join(s.opt.Dir, folder), kind, start, found)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return found, nil
}

func (s *FileStore) scanDir(dir string, folder authz.Kind, start time.Time, found map[string]stamp) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		key, ok := keyOf(folder, e.Name())
		if !ok {
			continue
		}
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist): // gone meanwhile, or a link to nowhere
		case err != nil:
			found[path] = stamp{key: key, unreadable: true}
		default:
			found[path] = stampOf(key, info, start)
		}
	}
	return nil
}

func stampOf(key Key, info fs.FileInfo, start time.Time) stamp {
	st := stamp{
		key: key, size: info.Size(), mode: info.Mode(), written: info.ModTime().UnixNano(),
		young: !info.ModTime().Before(start.Add(-racy)),
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		st.dev, st.ino, st.changed = uint64(sys.Dev), //nolint:unconvert // 32 bits on other systems
			sys.Ino, inodeChanged(sys)
	}
	return st
}

// differences returns the records whose files are not the same in both scans,
// or may not be.
func differences(before, after map[string]stamp) []Key {
	var keys []Key
	for path, st := range after {
		if was, ok := before[path]; !ok || was != st || was.young || st.unreadable {
			keys = append(keys, st.key)
		}
	}
	for path, was := range before {
		if _, ok := after[path]; !ok {
			keys = append(keys, was.key)
		}
	}
	return keys
}
