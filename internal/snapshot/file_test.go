package snapshot

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func fileBackend(t *testing.T, flat bool) *backend {
	dir := filepath.Join(t.TempDir(), "records")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	store, err := NewFileStore(FileOptions{Dir: dir, Poll: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	path := func(k Key) string {
		paths := store.Paths(k)
		if flat {
			return paths[len(paths)-1]
		}
		return paths[0]
	}
	check := func(err error) {
		t.Helper()
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	return &backend{
		Store: store, records: store,
		set: func(k Key, text string) {
			check(os.MkdirAll(filepath.Dir(path(k)), 0o755))
			check(os.WriteFile(path(k)+".tmp", []byte(text), 0o644))
			check(os.Rename(path(k)+".tmp", path(k)))
		},
		del:     func(k Key) { check(os.Remove(path(k))) },
		outage:  func() { check(os.Rename(dir, dir+".gone")) },
		recover: func() { check(os.Rename(dir+".gone", dir)) },
	}
}
