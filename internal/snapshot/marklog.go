package snapshot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// MarkLogOptions configure a MarkLog.
type MarkLogOptions struct {
	// Dir is where the marks are kept; it is made when it is not there.
	// Required.
	Dir string
	// Max bounds the marks that are kept; beyond it those that were raised
	// longest ago are forgotten. Default 2097152 (100 MiB).
	Max int
	// Log is for what is wrong with the file. Default: none.
	Log *slog.Logger
}

// MarkLog keeps the revision marks across a restart, so that a gateway that
// comes back does not accept what it had seen superseded.
//
// It is one file, to which 48 bytes are appended for each mark that was
// raised, with a checksum each; what was raised several times meanwhile is
// written once. Each write is synced before the next begins, at most ten a
// second: what a crash takes is the last tenth of a second. When the file is
// mostly history it is written anew beside the old one, and renamed. Nothing
// of that is on the path of a request.
//
// An unfinished last write, which a crash leaves, is cut off and logged.
// Damage anywhere else is no crash's: nobody knows which marks are gone, so
// the file is refused, and with it the start, until an operator puts it back
// or takes it away. While the file cannot be written, full disk or read-only,
// the marks live on in memory, Err says why, and every second it is tried
// again.
//
// It is a log of our own and not a database, because what matters here is that
// damage is noticed, and embedded stores without a checksum on every page do
// not.
type MarkLog struct {
	opt  MarkLogOptions
	lock *os.File
	wake chan struct{}

	file *os.File // Run's own from here on
	size int64    // of what was written and synced
	last int64    // size after it was last written anew

	mu      sync.Mutex
	loaded  *markState // until it was taken
	pending pendingMarks
	rebase  int64
	err     error // why nothing is kept now
}

// pendingMarks are what is to be written: first that all is forgotten, then
// the rest.
type pendingMarks struct {
	all    bool
	marks  map[digest]mark // the zero mark is one that was forgotten
	rebase int64
}

func (p *pendingMarks) empty() bool { return !p.all && len(p.marks) == 0 && p.rebase == 0 }

// markState is what a file says in the end.
type markState struct {
	marks  map[digest]mark
	rebase int64
}

const (
	markFile  = "revisions"
	markPause = 100 * time.Millisecond
	markRetry = time.Second
	// markLockWait is how long the gateway before may take to end.
	markLockWait = 3 * time.Second
)

// ErrMarksDamaged says that the file of marks is damaged beyond what a crash
// does.
var ErrMarksDamaged = errors.New("the revision marks are damaged")

// OpenMarkLog reads the marks that were kept. It starts nothing; Close it when
// Run has ended.
func OpenMarkLog(opt MarkLogOptions) (*MarkLog, error) {
	if opt.Dir == "" || opt.Max < 0 {
		return nil, errors.New("revision marks: no directory, or a negative limit")
	}
	opt.Max = or(opt.Max, 2097152)
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	l := &MarkLog{opt: opt, wake: make(chan struct{}, 1)}
	l.pending.marks = map[digest]mark{}
	if err := l.open(); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("revision marks in %s: %w", opt.Dir, err)
	}
	return l, nil
}

func (l *MarkLog) open() error {
	if err := os.MkdirAll(l.opt.Dir, 0o700); err != nil {
		return err
	}
	if err := l.alone(); err != nil {
		return err
	}
	text, err := os.ReadFile(l.path())
	if errors.Is(err, os.ErrNotExist) {
		l.loaded = &markState{marks: map[digest]mark{}}
		return l.renew(l.loaded)
	}
	if err != nil {
		return err
	}
	state, good, err := readMarks(text)
	if err != nil {
		return fmt.Errorf("%w: put %s back from a copy, or take it away and so forget every revision that was seen", err, l.path())
	}
	if torn := len(text) - good; torn > 0 {
		l.opt.Log.Warn("the last write of the revision marks was not finished and is cut off", "file", l.path(), "bytes", torn)
	}
	l.loaded, l.rebase = state, state.rebase
	if l.file, err = os.OpenFile(l.path(), os.O_RDWR, 0); err != nil {
		return err
	}
	l.size, l.last = int64(good), int64(len(state.marks)+1)*markSize
	return l.file.Truncate(l.size)
}

func (l *MarkLog) path() string { return filepath.Join(l.opt.Dir, markFile) }

// alone keeps another gateway from writing here.
func (l *MarkLog) alone() (err error) {
	l.lock, err = os.OpenFile(l.path()+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(markLockWait); ; time.Sleep(20 * time.Millisecond) {
		err = syscall.Flock(int(l.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("another gateway uses the directory: %w", err)
	}
	return nil
}

// Close lets go of the file. What Run did not write is not kept.
func (l *MarkLog) Close() error {
	var errs []error
	for _, f := range []*os.File{l.file, l.lock} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// Err says why marks are not kept now; nil: they are.
func (l *MarkLog) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// take hands out what was read, once.
func (l *MarkLog) take() *markState {
	l.mu.Lock()
	defer l.mu.Unlock()
	state := l.loaded
	l.loaded = nil
	return state
}

// raise notes a mark; it never waits. A zero mark is one that is forgotten.
func (l *MarkLog) raise(name digest, m mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, there := l.pending.marks[name]; there || len(l.pending.marks) < l.opt.Max {
		l.pending.marks[name] = m
	}
	signal(l.wake)
}

// forget notes that all marks are forgotten.
func (l *MarkLog) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending.all = true
	clear(l.pending.marks)
	signal(l.wake)
}

// rebased notes the number of the last rebase that was done.
func (l *MarkLog) rebased(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending.rebase, l.rebase = n, n
	signal(l.wake)
}

// Run writes until ctx ends, which is no error, and then what is left.
func (l *MarkLog) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-l.wake:
		}
		pause := markPause
		if !l.flush() {
			pause = markRetry
			signal(l.wake)
		}
		sleep(ctx, pause)
	}
	l.flush()
	return nil
}

// flush writes what is pending, and reports whether all is kept now.
func (l *MarkLog) flush() bool {
	l.mu.Lock()
	batch, was := l.pending, l.err
	l.pending = pendingMarks{marks: map[digest]mark{}}
	l.mu.Unlock()
	if batch.empty() && was == nil {
		return true
	}
	err := l.write(batch)
	l.mu.Lock()
	l.err = err
	if err != nil {
		l.putBack(batch)
	}
	l.mu.Unlock()
	switch {
	case err != nil && was == nil:
		l.opt.Log.Error("revision marks are not kept; a restart now would forget them", "file", l.path(), "error", err)
	case err == nil && was != nil:
		l.opt.Log.Info("revision marks are kept again", "file", l.path())
	}
	return err == nil
}

// putBack makes batch pending again, before what came since.
func (l *MarkLog) putBack(batch pendingMarks) {
	if l.pending.rebase == 0 {
		l.pending.rebase = batch.rebase
	}
	if l.pending.all {
		return
	}
	l.pending.all = batch.all
	for name, m := range batch.marks {
		if _, newer := l.pending.marks[name]; !newer {
			l.pending.marks[name] = m
		}
	}
}
