package pdp

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	settle   = 200 * time.Millisecond // from the first notice of a change to reading it
	backStop = 3 * time.Second        // between looks at a path that reported nothing
)

// follow reloads when the configured path changes, until ctx ends. Notices of
// the file system are a shortcut: the path's own state is looked at every few
// seconds all the same, since a link that is switched far away reports nothing
// here.
func (e *Engine) follow(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching policies: %w", err)
	}
	defer func() { _ = watcher.Close() }()
	e.watch(watcher)
	timer := time.NewTimer(settle) // what changed before it was watched is seen at once
	defer timer.Stop()
	settling := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-watcher.Events:
			if !settling { // a neighbour that never rests does not put it off
				settling = true
				timer.Reset(settle)
			}
		case err := <-watcher.Errors:
			e.opt().Log.Warn("watching policies", "error", err)
		case <-timer.C:
			e.watch(watcher)
			if e.changed() {
				e.reloadLogged(ctx)
			}
			settling = false
			timer.Reset(backStop)
		}
	}
}

// changed says whether the path is not as it was last read.
func (e *Engine) changed() bool {
	path, seen := e.opt().Path, e.seen.Load()
	return path != "" && (seen == nil || *seen != pathState(path) || e.set.Load() == nil)
}

// reloadLogged reloads, and logs a fault once as long as it stays the same.
func (e *Engine) reloadLogged(ctx context.Context) {
	before := e.fault.Load()
	err := e.Reload(ctx)
	if err != nil && (before == nil || (*before).Error() != err.Error()) {
		e.opt().Log.Error("policies refused", "error", err, "active", e.Revision())
	}
}

// watch asks for notices of the path's directories, and of the one that it
// stands in. What cannot be watched is left to the back-stop.
func (e *Engine) watch(watcher *fsnotify.Watcher) {
	if e.opt().Path == "" {
		return
	}
	_ = watcher.Add(filepath.Dir(e.opt().Path))
	walkPath(e.opt().Path, 0, func(name string, info os.FileInfo, _ error) {
		if info != nil && info.IsDir() {
			_ = watcher.Add(name)
		}
	})
}

// pathState describes every file of the path: it is another string when any of
// them is another one.
func pathState(path string) string {
	var state strings.Builder
	walkPath(path, 0, func(name string, info os.FileInfo, err error) {
		if err != nil {
			fmt.Fprintf(&state, "%s: %v\n", name, err)
			return
		}
		target, _ := filepath.EvalSymlinks(name)
		fmt.Fprintf(&state, "%s %s %s %d %d\n", name, target, info.Mode(), info.Size(), info.ModTime().UnixNano())
	})
	return state.String()
}

// walkPath visits what loadTree would read, links followed.
func walkPath(name string, depth int, visit func(string, os.FileInfo, error)) {
	info, err := os.Stat(name)
	visit(name, info, err)
	if err != nil || !info.IsDir() || depth > maxDepth {
		return
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		visit(name, nil, err)
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), ".") {
			walkPath(filepath.Join(name, entry.Name()), depth+1, visit)
		}
	}
}
