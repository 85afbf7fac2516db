package snapshot

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
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

// slowFile is a store whose looks are rare: what is seen in time is seen by
// the watch.
func slowFile(t *testing.T, dir string) *backend {
	t.Helper()
	store, err := NewFileStore(FileOptions{Dir: dir, Poll: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return &backend{Store: store, records: store, set: func(k Key, text string) {
		path := store.Paths(k)[0]
		write(t, path+".tmp", text)
		if err := os.Rename(path+".tmp", path); err != nil {
			t.Fatal(err)
		}
	}}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestTheWatchSeesAFileThatIsReplaced(t *testing.T) {
	b := slowFile(t, t.TempDir())
	s := newScene(t, b, Options{MaxAge: time.Hour})
	s.Retain("lease-1")
	s.view("lease-1")
	for revision := 4; revision < 50; revision++ {
		b.set(leaseKey, leaseOf("lease-1", revision, "active"))
		s.eventually("it is seen", func() bool { return s.view("lease-1").Snapshot.Lease.Revision == int64(revision) })
	}
}

func TestADirectoryOfAKindThatComesLaterIsWatched(t *testing.T) {
	dir := t.TempDir()
	b := slowFile(t, dir)
	s := newScene(t, b, Options{MaxAge: time.Hour})
	for _, folder := range []string{"leases", "plugins"} {
		if err := os.RemoveAll(filepath.Join(dir, folder)); err != nil {
			t.Fatal(err)
		}
	}
	s.eventually("the lease is gone", func() bool { return s.view("lease-1").Snapshot.Lease == nil })
	b.set(leaseKey, goodLease)
	s.eventually("it is back", func() bool { return s.view("lease-1").Snapshot.Lease != nil })
	b.set(leaseKey, leaseOf("lease-1", 4, "active"))
	s.eventually("the new directory is watched", func() bool { return s.view("lease-1").Snapshot.Lease.Revision == 4 })
}

func TestAFileThatIsHalfWrittenIsMalformed(t *testing.T) {
	dir := t.TempDir()
	b := slowFile(t, dir)
	s := newScene(t, b, Options{MaxAge: time.Hour})
	s.view("lease-1")
	path := filepath.Join(dir, "leases", "lease-1.json")
	for _, text := range []string{"", goodLease[:len(goodLease)-1]} {
		write(t, path, text) // in place, as no writer should
		s.eventually("it is malformed", func() bool { return malformed(s.view("lease-1")) == "[lease]" })
	}
	write(t, path, goodLease)
	s.eventually("it is whole", func() bool { return s.view("lease-1").Snapshot.Lease != nil })
}

func TestARecordInTwoFilesIsMalformed(t *testing.T) {
	dir := t.TempDir()
	b := slowFile(t, dir)
	s := newScene(t, b, Options{MaxAge: time.Hour})
	s.view("lease-1")
	flat := filepath.Join(dir, "lease.lease-1.json")
	write(t, flat, goodLease)
	s.eventually("it is malformed", func() bool { return malformed(s.view("lease-1")) == "[lease]" })
	if _, err := b.Put(context.Background(), leaseKey, []byte(leaseOf("lease-1", 9, "active")), nil); err == nil {
		t.Error("it was put into one of them")
	}
	if err := os.Remove(flat); err != nil {
		t.Fatal(err)
	}
	s.eventually("it is one again", func() bool { return s.view("lease-1").Snapshot.Lease != nil })
}

func TestWhatIsNoRegularFileIsMalformedAndNeverWaitedFor(t *testing.T) {
	dir := t.TempDir()
	b := slowFile(t, dir)
	s := newScene(t, b, Options{MaxAge: time.Hour})
	if err := os.MkdirAll(filepath.Join(dir, "leases", "lease-2.json"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "leases", "lease-3.json"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"lease-2", "lease-3"} {
		s.eventually(id+" is malformed", func() bool { return malformed(s.view(id)) == "[lease]" })
	}
}

func TestALinkThatLeadsNowhereIsAbsent(t *testing.T) {
	dir := t.TempDir()
	s := newScene(t, slowFile(t, dir), Options{MaxAge: time.Hour})
	if err := os.Symlink("nowhere", filepath.Join(dir, "leases", "lease-2.json")); err != nil {
		t.Fatal(err)
	}
	if v := s.view("lease-2"); !v.Fresh || v.Snapshot.Lease != nil || v.Snapshot.Malformed != nil {
		t.Errorf("got %+v", v)
	}
}

// publish writes a generation of a ConfigMap volume and swaps it in as a
// kubelet does: a new directory, and ..data repointed to it by rename. The
// old one is removed.
func publish(t *testing.T, volume, generation string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		write(t, filepath.Join(volume, generation, name), text)
	}
	old, _ := os.Readlink(filepath.Join(volume, "..data"))
	link := filepath.Join(volume, "..data_tmp")
	if err := os.Symlink(generation, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link, filepath.Join(volume, "..data")); err != nil {
		t.Fatal(err)
	}
	if old != "" {
		if err := os.RemoveAll(filepath.Join(volume, old)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestASwappedConfigMapIsFollowed goes through the ways in which records come
// from a volume: files linked into it, directories linked into it, and a
// directory of records that is itself linked.
func TestASwappedConfigMapIsFollowed(t *testing.T) {
	for name, c := range map[string]struct {
		prefix string   // of the files in a generation
		links  []string // from the volume into ..data
		dir    string   // of the store, in the volume
		flat   bool
	}{
		"files":       {"", []string{"lease.lease-1.json", "control.json", "plugin.plg-a.json"}, "", true},
		"directories": {"", []string{"leases", "plugins", "control.json"}, "", false},
		"the store":   {"records/", []string{"records"}, "records", false},
	} {
		t.Run(name, func(t *testing.T) {
			volume := filepath.Join(t.TempDir(), "volume")
			files := func(revision int, status string) map[string]string {
				if c.flat {
					return map[string]string{"lease.lease-1.json": leaseOf("lease-1", revision, status), "control.json": goodControl, "plugin.plg-a.json": goodPlugin}
				}
				return map[string]string{c.prefix + "leases/lease-1.json": leaseOf("lease-1", revision, status), c.prefix + "control.json": goodControl, c.prefix + "plugins/plg-a.json": goodPlugin}
			}
			publish(t, volume, "..2026_1", files(1, "active"))
			for _, link := range c.links {
				if err := os.Symlink(filepath.Join("..data", link), filepath.Join(volume, link)); err != nil {
					t.Fatal(err)
				}
			}
			store, err := NewFileStore(FileOptions{Dir: filepath.Join(volume, c.dir), Poll: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			b := &backend{Store: store, records: store, set: func(Key, string) {}}
			s := newScene(t, b, Options{MaxAge: time.Hour})
			s.Retain("lease-1")
			plugin := s.view("lease-1").Snapshot.Plugin
			if plugin == nil {
				t.Fatalf("got %+v", s.view("lease-1").Snapshot)
			}
			for revision := 2; revision < 10; revision++ {
				publish(t, volume, "..2026_"+strconv.Itoa(revision), files(revision, "revoked"))
				s.eventually("the swap is seen", func() bool { return s.view("lease-1").Snapshot.Lease.Revision == int64(revision) })
			}
			if s.view("lease-1").Snapshot.Plugin != plugin {
				t.Error("a plugin that is the same in every generation was taken for another")
			}
			if s.Stats().Resyncs != 0 {
				t.Error("a swap began a new epoch")
			}
		})
	}
}

func TestTheDirectoryMayComeLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "records")
	store, err := NewFileStore(FileOptions{Dir: dir, Poll: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewCache(Options{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { _ = c.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	if v := c.Snapshot(ctx, "lease-1"); v.Fresh || v.Err == nil || c.Ready() == nil {
		t.Errorf("without a directory: %+v", v)
	}
	write(t, filepath.Join(dir, "leases", "lease-1.json"), goodLease)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if v := c.Snapshot(ctx, "lease-1"); v.Fresh && v.Snapshot.Lease != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the directory was not found")
		}
	}
}
