package snapshot

import (
	"context"
	"os"
	"path/filepath"
	"sluice/internal/authz"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watched is a directory as the kernel knows it: by its real path, and with
// its identity, for another may come in its place.
type watched struct {
	info   os.FileInfo
	folder authz.Kind // "" for the store's own
	beside bool       // it only holds the store's own, which may be swapped in it
}

// fileWatch is one run of Watch. Events say which records to read again; a
// look at the whole directory, on a timer and when a directory moved, confirms
// the rest and catches what no event told.
type fileWatch struct {
	store *FileStore
	feed  Feed
	every time.Duration
	fs    *fsnotify.Watcher // nil where the system gives none: then only the timer looks
	dirs  map[string]watched
	seen  map[string]stamp
	up    bool
}

// Watch implements Store.
func (s *FileStore) Watch(ctx context.Context, feed Feed, every time.Duration) error {
	w := &fileWatch{store: s, feed: feed, every: every, dirs: map[string]watched{}}
	events, errs := w.start()
	if w.fs != nil {
		defer w.fs.Close()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case ev := <-events:
			if w.event(ev) {
				timer.Reset(w.look())
			}
		case err := <-errs:
			s.opt.Log.Warn("record directory: events were lost", "error", err)
			w.up = false // then everything is read again
			timer.Reset(w.look())
		case <-timer.C:
			timer.Reset(w.look())
		}
	}
}

func (w *fileWatch) start() (<-chan fsnotify.Event, <-chan error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		w.store.opt.Log.Warn("record directory cannot be watched, only looked at", "error", err)
		return nil, nil
	}
	w.fs = watcher
	return watcher.Events, watcher.Errors
}

// event tells the feed of a record's file, and reports whether the directory
// as a whole is to be looked at.
func (w *fileWatch) event(ev fsnotify.Event) bool {
	dir, ok := w.dirs[filepath.Dir(ev.Name)]
	name := filepath.Base(ev.Name)
	if ok && dir.beside {
		return name == "..data" || name == filepath.Base(w.store.opt.Dir)
	}
	if !ok {
		return true // a watched directory itself
	}
	if key, isRecord := keyOf(dir.folder, name); isRecord {
		w.feed.Changed(key)
		return false
	}
	_, isDir := w.dirs[ev.Name]
	return isDir || name == "..data" || dir.folder == "" && isFolder(name)
}

func isFolder(name string) bool {
	for _, folder := range folders {
		if folder == name {
			return true
		}
	}
	return false
}

// look scans the directory, tells what is new, and confirms as of its start.
// It returns when to look again.
func (w *fileWatch) look() time.Duration {
	start := time.Now()
	w.follow()
	found, err := w.store.scan()
	if err != nil {
		if w.up || w.seen == nil {
			w.store.opt.Log.Warn("record directory cannot be read", "error", err)
		}
		w.up, w.seen = false, map[string]stamp{}
		w.feed.Down(err)
		return w.pause(start)
	}
	before := w.seen
	w.seen = found
	if w.up {
		w.feed.Changed(differences(before, found)...)
	} else {
		w.up = true
		w.feed.Up()
	}
	w.feed.Confirm(start)
	return w.pause(start)
}

// pause keeps the looks to a twentieth of the time, where the directory is
// large and the age limit leaves it.
func (w *fileWatch) pause(start time.Time) time.Duration {
	return min(max(w.store.opt.Poll, 20*time.Since(start)), w.every)
}

// follow has the directories watched that the store's paths lead to now. A
// link may lead elsewhere than at the last look, as Kubernetes swaps ..data.
func (w *fileWatch) follow() {
	if w.fs == nil {
		return
	}
	now := map[string]watched{}
	dir := w.store.opt.Dir
	add := func(path string, as watched) {
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			return
		}
		if as.info, err = os.Stat(target); err == nil {
			now[target] = as
		}
	}
	if abs, err := filepath.Abs(dir); err == nil {
		add(filepath.Dir(abs), watched{beside: true})
	}
	for kind, folder := range folders {
		add(filepath.Join(dir, folder), watched{folder: kind})
	}
	add(dir, watched{})
	w.rewatch(now)
}

func (w *fileWatch) rewatch(now map[string]watched) {
	for path, was := range w.dirs {
		if is, ok := now[path]; !ok || !os.SameFile(was.info, is.info) {
			_ = w.fs.Remove(path) // it may be gone already
			delete(w.dirs, path)
		}
	}
	listed := map[string]bool{}
	for _, path := range w.fs.WatchList() {
		listed[path] = true
	}
	for path, is := range now {
		if !listed[path] {
			if err := w.fs.Add(path); err != nil {
				w.store.opt.Log.Warn("directory cannot be watched, only looked at", "dir", path, "error", err)
				continue
			}
		}
		w.dirs[path] = is
	}
}
