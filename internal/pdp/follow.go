package pdp

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	settle   = 200 * time.Millisecond // quiet time before a changed directory is read
	backStop = 3 * time.Second        // between looks at a path that reported nothing
)

// follow reloads when the configured path changes, until ctx ends. Notices of
// the file system are a shortcut: the path's own state is looked at every few
// seconds all the same, since a link that is switched far away reports nothing
// here.
func (e *Engine) follow(ctx context.Context) error {
	if e.options.Path == "" {
		<-ctx.Done()
		return nil
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching policies: %w", err)
	}
	defer func() { _ = watcher.Close() }()
	seen := e.look(watcher)
	timer := time.NewTimer(backStop)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-watcher.Events:
			if ok {
				timer.Reset(settle)
			}
		case err, ok := <-watcher.Errors:
			if ok {
				e.options.Log.Warn("watching policies", "error", err)
			}
		case <-timer.C:
			if now := e.look(watcher); now != seen || e.set.Load() == nil {
				seen = now
				e.reloadLogged(ctx)
			}
			timer.Reset(backStop)
		}
	}
}

func (e *Engine) reloadLogged(ctx context.Context) {
	if err := e.Reload(ctx); err != nil {
		e.options.Log.Error("policies refused, the old ones stay", "error", err)
	}
}

// look describes the state of the path, and watches its directories.
func (e *Engine) look(watcher *fsnotify.Watcher) string {
	path := e.options.Path
	_ = watcher.Add(filepath.Dir(path)) // a path that is replaced by rename; not there yet is seen by the back-stop
	state := ""
	var walk func(name string, depth int)
	walk = func(name string, depth int) {
		info, err := os.Stat(name)
		if err != nil {
			state += fmt.Sprintf("%s: %v\n", name, err)
			return
		}
		real, _ := filepath.EvalSymlinks(name)
		state += fmt.Sprintf("%s %s %d %d\n", name, real, info.Size(), info.ModTime().UnixNano())
		if !info.IsDir() || depth > 16 {
			return
		}
		_ = watcher.Add(name)
		entries, _ := os.ReadDir(name)
		for _, entry := range entries {
			if entry.Name()[0] != '.' {
				walk(filepath.Join(name, entry.Name()), depth+1)
			}
		}
	}
	walk(path, 0)
	return state
}
