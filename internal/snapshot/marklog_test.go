package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func openMarks(t testing.TB, dir string) *MarkLog {
	t.Helper()
	l, err := OpenMarkLog(MarkLogOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func name(i int) digest { return nameOf(Key{"lease", fmt.Sprint("lease-", i)}) }

func markOf(i int) mark { return mark{revision: int64(i), content: digest{byte(i)}} }

// written is the file of n marks.
func written(t testing.TB, dir string, n int) string {
	t.Helper()
	l := openMarks(t, dir)
	for i := range n {
		l.raise(name(i), markOf(i+1))
		l.flush()
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, markFile)
}

func TestMarksAreReadBackAsTheyWereRaised(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		dir := t.TempDir()
		want := map[digest]mark{}
		rebase := int64(0)
		l := openMarks(t, dir)
		for range rapid.IntRange(0, 60).Draw(r, "steps") {
			i := rapid.IntRange(0, 8).Draw(r, "record")
			switch rapid.IntRange(0, 9).Draw(r, "what") {
			case 0:
				l.forget()
				clear(want)
			case 1:
				l.raise(name(i), mark{})
				delete(want, name(i))
			case 2:
				rebase++
				l.rebased(rebase)
			case 3:
				l.flush()
			case 4:
				if err := errors.Join(l.compact(), l.inPlace()); err != nil {
					r.Fatal(err)
				}
			case 5:
				l.flush()
				l.Close()
				l = openMarks(t, dir)
			default:
				m := markOf(rapid.IntRange(1, 99).Draw(r, "revision"))
				l.raise(name(i), m)
				want[name(i)] = m
			}
		}
		l.flush()
		l.Close()
		l = openMarks(t, dir)
		defer l.Close()
		got := l.take()
		if len(got.marks) != len(want) || got.rebase != rebase {
			r.Fatalf("got %v and %d, want %v and %d", got.marks, got.rebase, want, rebase)
		}
		for n, m := range want {
			if got.marks[n] != m {
				r.Fatalf("got %v, want %v", got.marks[n], m)
			}
		}
	})
}

func TestAnUnfinishedLastWriteIsCutOffAndLogged(t *testing.T) {
	file := written(t, t.TempDir(), 3)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for cut := 1; cut <= markSize; cut++ {
		for _, tail := range [][]byte{whole[:len(whole)-cut], append(bytes.Clone(whole[:len(whole)-cut]), make([]byte, cut+2*markSize)...)} {
			if err := os.WriteFile(file, tail, 0o600); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			l, err := OpenMarkLog(MarkLogOptions{Dir: filepath.Dir(file), Log: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatalf("cut by %d: %v", cut, err)
			}
			if got := l.take().marks; len(got) != 2 || got[name(1)] != markOf(2) {
				t.Errorf("cut by %d: got %v", cut, got)
			}
			if torn := len(tail) % markSize; (torn != 0 || len(tail) > len(whole)) && !strings.Contains(log.String(), "was not finished") {
				t.Errorf("cut by %d: logged %q", cut, log.String())
			}
			l.raise(name(9), markOf(9))
			l.flush()
			l.Close()
			l = openMarks(t, filepath.Dir(file))
			if got := l.take().marks; len(got) != 3 || got[name(9)] != markOf(9) {
				t.Errorf("then: got %v", got)
			}
			l.Close()
		}
	}
}

func TestDamageThatIsNoCrashsIsRefused(t *testing.T) {
	dir := t.TempDir()
	file := written(t, dir, 5)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, text []byte) {
		t.Helper()
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := OpenMarkLog(MarkLogOptions{Dir: dir})
		if !errors.Is(err, ErrMarksDamaged) || l != nil {
			t.Errorf("%s: got %v", what, err)
		}
	}
	refused("empty", nil)
	refused("a part of the beginning", whole[:20])
	refused("zeros", make([]byte, len(whole)))
	refused("another file", []byte(strings.Repeat("not a file of marks at all, ", 40)))
	refused("the beginning twice", append(bytes.Clone(whole), whole[:markSize]...))
	refused("much of it", append(bytes.Clone(whole), make([]byte, (markBatch+1)*markSize)...))
	for at := 0; at < len(whole)-markSize; at++ {
		text := bytes.Clone(whole)
		text[at] ^= 0x10
		refused(fmt.Sprint("a flipped bit at ", at), text)
	}
	if err := os.WriteFile(file, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	openMarks(t, dir).Close()
}

func TestTwoGatewaysDoNotShareTheirMarks(t *testing.T) {
	dir := t.TempDir()
	l := openMarks(t, dir)
	if _, err := OpenMarkLog(MarkLogOptions{Dir: dir}); err == nil || !strings.Contains(err.Error(), "another gateway") {
		t.Errorf("got %v", err)
	}
	l.Close()
	openMarks(t, dir).Close()
}

func TestMarksThatCannotBeWrittenAreKeptForLater(t *testing.T) {
	dir := t.TempDir()
	l := openMarks(t, dir)
	ours := l.file
	l.raise(name(1), markOf(1))
	if !l.flush() {
		t.Fatal(l.Err())
	}
	readOnly, err := os.Open(l.path())
	if err != nil {
		t.Fatal(err)
	}
	l.file = readOnly // as on a disk that takes no more
	l.raise(name(2), markOf(2))
	if l.flush() || l.Err() == nil {
		t.Error("it was said to be kept")
	}
	l.raise(name(2), markOf(3))
	l.raise(name(3), markOf(3))
	if l.flush() || l.Err() == nil {
		t.Error("it was said to be kept")
	}
	l.file = ours
	readOnly.Close()
	if !l.flush() || l.Err() != nil {
		t.Error(l.Err())
	}
	l.Close()
	l = openMarks(t, dir)
	defer l.Close()
	if got := l.take().marks; len(got) != 3 || got[name(2)] != markOf(3) {
		t.Errorf("got %v", got)
	}
}

func TestAFileOfMarksThatIsTakenAwayIsWrittenAnew(t *testing.T) {
	dir := t.TempDir()
	l := openMarks(t, dir)
	l.raise(name(1), markOf(1))
	l.flush()
	if err := os.Remove(l.path()); err != nil {
		t.Fatal(err)
	}
	l.raise(name(2), markOf(2))
	l.flush()
	l.Close()
	l = openMarks(t, dir)
	defer l.Close()
	if got := l.take().marks; len(got) != 2 {
		t.Errorf("got %v", got)
	}
}

func TestMarksAreBoundedAndTheOldestGo(t *testing.T) {
	l, err := OpenMarkLog(MarkLogOptions{Dir: t.TempDir(), Max: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i := range 30 {
		l.raise(name(i), markOf(i+1))
		l.flush()
	}
	l.raise(name(0), markOf(50))
	l.flush()
	if err := l.compact(); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(l.path())
	state, _, err := readMarks(text)
	if err != nil || len(state.marks) != 10 || state.marks[name(0)] != markOf(50) || state.marks[name(29)] != markOf(30) {
		t.Errorf("got %v, %v", state, err)
	}
}

// restarted is a cache after a restart, over the same store and directory.
func (s *scene) restarted(dir string) (*scene, func()) {
	s.t.Helper()
	marks := openMarks(s.t, dir)
	n := &scene{backend: s.backend, t: s.t, changes: make(chan string, 1000)}
	c, err := NewCache(Options{Store: s.backend.Store, Marks: marks})
	if err != nil {
		s.t.Fatal(err)
	}
	n.Cache = c
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- c.Run(ctx) }()
	go func() { ended <- marks.Run(ctx) }()
	stop := func() {
		cancel()
		if err := errors.Join(<-ended, <-ended, marks.Close()); err != nil {
			s.t.Error(err)
		}
	}
	n.eventually("the store is ready", func() bool { return c.Ready() == nil })
	return n, stop
}

func TestARevisionDoesNotGoBackAcrossARestart(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *backend) {
		dir := t.TempDir()
		s := newScene(t, b, Options{})
		for round, step := range []struct{ text, want string }{
			{leaseOf("lease-1", 7, "revoked"), "7 revoked"},
			{leaseOf("lease-1", 6, "active"), "malformed"},
			{leaseOf("lease-1", 7, "active"), "malformed"},
			{"", "absent"},
			{leaseOf("lease-1", 6, "active"), "malformed"},
			{leaseOf("lease-1", 8, "active"), "8 active"},
		} {
			if step.text == "" {
				b.del(leaseKey)
			} else {
				b.set(leaseKey, step.text)
			}
			n, stop := s.restarted(dir)
			if got := n.says("lease-1"); got != step.want {
				t.Errorf("start %d: got %q, want %q", round, got, step.want)
			}
			stop()
		}
	})
}

// says is what a lease is, in words.
func (s *scene) says(id string) string {
	v := s.view(id)
	switch {
	case !v.Fresh:
		return fmt.Sprint("stale ", v.Err)
	case v.Snapshot.Lease != nil:
		return fmt.Sprintf("%d %s", v.Snapshot.Lease.Revision, v.Snapshot.Lease.Status)
	case v.Snapshot.Malformed != nil:
		return "malformed"
	}
	return "absent"
}

type rebaser interface {
	Rebase(ctx context.Context, record string) error
}

func TestARebaseMakesEveryRunningGatewayForgetOneRecord(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *backend) {
		s := newScene(t, b, Options{})
		dir := t.TempDir()
		other, stop := s.restarted(dir)
		other2 := Key{"lease", "lease-2"}
		b.set(leaseKey, leaseOf("lease-1", 7, "revoked"))
		b.set(other2, leaseOf("lease-2", 7, "revoked"))
		both := func(id, want string) {
			t.Helper()
			for _, g := range []*scene{s, other} {
				g.eventually(want, func() bool { return g.says(id) == want })
			}
		}
		both("lease-1", "7 revoked")
		both("lease-2", "7 revoked")
		b.set(leaseKey, leaseOf("lease-1", 3, "active"))
		b.set(other2, leaseOf("lease-2", 3, "active"))
		both("lease-1", "malformed")
		both("lease-2", "malformed")
		if err := b.Store.(rebaser).Rebase(context.Background(), "lease:lease-1"); err != nil {
			t.Fatal(err)
		}
		both("lease-1", "3 active")
		both("lease-2", "malformed")
		// It is done once: from here on revisions only grow again.
		b.set(leaseKey, leaseOf("lease-1", 2, "active"))
		both("lease-1", "malformed")
		stop()
		other, stop = s.restarted(dir)
		defer func() { stop() }()
		both("lease-1", "malformed")
		if err := b.Store.(rebaser).Rebase(context.Background(), RebaseAll); err != nil {
			t.Fatal(err)
		}
		both("lease-1", "2 active")
		both("lease-2", "3 active")
		// The same revision with other content, which is what a database that
		// was restored gives.
		b.set(leaseKey, leaseOf("lease-1", 2, "revoked"))
		both("lease-1", "malformed")
		if err := b.Store.(rebaser).Rebase(context.Background(), RebaseAll); err != nil {
			t.Fatal(err)
		}
		both("lease-1", "2 revoked")
	})
}

func TestAGatewayThatWasDownIsRebasedWhenItStarts(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *backend) {
		dir := t.TempDir()
		s := newScene(t, b, Options{})
		b.set(leaseKey, leaseOf("lease-1", 7, "revoked"))
		n, stop := s.restarted(dir)
		n.says("lease-1")
		stop()
		b.set(leaseKey, leaseOf("lease-1", 3, "active"))
		if err := b.Store.(rebaser).Rebase(context.Background(), RebaseAll); err != nil {
			t.Fatal(err)
		}
		n, stop = s.restarted(dir)
		defer func() { stop() }()
		n.eventually("it is rebased", func() bool { return n.says("lease-1") == "3 active" })
	})
}

func TestWhatIsNoListOfRebasesForgetsNothing(t *testing.T) {
	for _, text := range []string{"{", `{"rebases":[{"n":1,"record":"lease"}]}`, `{"rebases":[{"n":1}]}`, `{"all":true}`, `[]`, strings.Repeat(" ", maxRebaseText+1)} {
		if list, err := parseRebases([]byte(text)); err == nil {
			t.Errorf("%.40q: got %v", text, list)
		}
	}
	now := time.Now()
	text, err := addRebase([]byte(fmt.Sprintf(`{"rebases":[{"n":%d,"record":"*"},{"n":%d,"record":"control"}]}`, int64(1)<<62, now.UnixNano()+5)), "*", now)
	list, _ := parseRebases(text)
	if err != nil || len(list) != 2 || list[1].N != now.UnixNano()+6 {
		t.Errorf("got %s, %v", text, err)
	}
	c, err := NewCache(Options{Store: newMemoryStore()})
	if err != nil {
		t.Fatal(err)
	}
	c.marks.keep(name(1), markOf(1))
	c.forgetAsTold([]Rebase{{int64(1) << 62, RebaseAll}})
	if len(c.marks.young) != 1 {
		t.Error("a rebase of a far future was done")
	}
	for range 200 {
		if text, err = addRebase(text, "control", now); err != nil || len(text) > maxRebaseText/2 {
			t.Fatalf("%d bytes, %v", len(text), err)
		}
	}
}
