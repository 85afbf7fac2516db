package identity

import (
	"context"
	"os"
	"time"
)

// settled is how old a file's time stamp must be before an unchanged one is
// believed: two writes inside one tick of the file system's clock look alike.
const settled = 2 * time.Second

// Watch reads the file again whenever it changed, looking every interval
// (which must be positive), until ctx ends. It looks at the file itself, so
// one that is replaced by rename, or swapped behind a symbolic link as
// Kubernetes does, is followed. After a reading that changed something or
// failed, it calls then; a file that stays bad is reported once.
func (t *Tokens) Watch(ctx context.Context, interval time.Duration, then func(changed bool, err error)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var seen os.FileInfo
	var path, reported string
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		before := path
		path = t.file()
		info, err := os.Stat(path)
		if path == "" || err == nil && path == before && unchanged(seen, info) {
			continue
		}
		seen = info
		changed, err := t.Reload()
		message := ""
		if err != nil {
			message = err.Error()
		}
		if changed || message != "" && message != reported {
			then(changed, err)
		}
		reported = message
	}
}

func unchanged(seen, now os.FileInfo) bool {
	return seen != nil && os.SameFile(seen, now) && seen.Size() == now.Size() &&
		seen.ModTime().Equal(now.ModTime()) && time.Since(now.ModTime()) > settled
}

func (t *Tokens) file() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.path
}
