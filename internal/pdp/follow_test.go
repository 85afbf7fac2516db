package pdp

import (
	"os"
	"path/filepath"
	"sluice/internal/authz"
	"testing"
	"time"
)

// soon is the time in which a changed directory must be followed.
const soon = 5 * time.Second

func becomes(t *testing.T, e *Engine, want authz.Reason) {
	t.Helper()
	q := question(t, "grants")
	eventually(t, soon, func() bool { return e.Decide(t.Context(), q).Reason == want })
}

func TestAChangedFileIsFollowed(t *testing.T) {
	dir := custom(`deny contains "no" if false`).dir(t)
	e := start(t, Options{Path: dir})
	becomes(t, e, authz.ReasonAllow)
	custom(`deny contains "yes" if true`).write(t, dir)
	becomes(t, e, "CUSTOM_DENY")
	if err := os.Remove(filepath.Join(dir, "team.rego")); err != nil {
		t.Fatal(err)
	}
	becomes(t, e, authz.ReasonAllow)
}

func TestAFileInANewDirectoryIsFollowed(t *testing.T) {
	dir := t.TempDir()
	e := start(t, Options{Path: dir})
	becomes(t, e, authz.ReasonAllow)
	files{"more/rules/team.rego": "package sluice.custom\n\ndeny contains \"yes\" if true\n"}.write(t, dir)
	becomes(t, e, "CUSTOM_DENY")
}

// Kubernetes writes a new directory beside the old one and switches one link.
func TestADirectorySwappedAsAConfigMapIsFollowed(t *testing.T) {
	mount := t.TempDir()
	link := func(name, target string) {
		t.Helper()
		fresh := filepath.Join(mount, name+"_tmp")
		if err := os.Symlink(target, fresh); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(fresh, filepath.Join(mount, name)); err != nil {
			t.Fatal(err)
		}
	}
	files{"..v1/team.rego": "package sluice.custom\n\ndeny contains \"no\" if false\n"}.write(t, mount)
	link("..data", "..v1")
	link("team.rego", "..data/team.rego")
	e := start(t, Options{Path: mount})
	becomes(t, e, authz.ReasonAllow)
	files{"..v2/team.rego": "package sluice.custom\n\ndeny contains \"yes\" if true\n"}.write(t, mount)
	link("..data", "..v2")
	if err := os.RemoveAll(filepath.Join(mount, "..v1")); err != nil {
		t.Fatal(err)
	}
	becomes(t, e, "CUSTOM_DENY")
}

// The path itself may be the link, and what it points to be far away.
func TestAPathThatIsALinkIsFollowed(t *testing.T) {
	place := t.TempDir()
	files{"v1/team.rego": "package sluice.custom\n\ndeny contains \"no\" if false\n"}.write(t, place)
	files{"v2/team.rego": "package sluice.custom\n\ndeny contains \"yes\" if true\n"}.write(t, place)
	path := filepath.Join(t.TempDir(), "current")
	if err := os.Symlink(filepath.Join(place, "v1"), path); err != nil {
		t.Fatal(err)
	}
	e := start(t, Options{Path: path})
	becomes(t, e, authz.ReasonAllow)
	if err := os.Symlink(filepath.Join(place, "v2"), path+"_tmp"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+"_tmp", path); err != nil {
		t.Fatal(err)
	}
	becomes(t, e, "CUSTOM_DENY")
}

func TestABundleThatIsReplacedIsFollowed(t *testing.T) {
	path := custom(`deny contains "no" if false`).bundle(t)
	e := start(t, Options{Path: path})
	becomes(t, e, authz.ReasonAllow)
	if err := os.Rename(custom(`deny contains "yes" if true`).bundle(t), path); err != nil {
		t.Fatal(err)
	}
	becomes(t, e, "CUSTOM_DENY")
}

func TestABadChangeIsNotFollowedAndAGoodOneIsAgain(t *testing.T) {
	dir := custom(`deny contains "no" if false`).dir(t)
	e := start(t, Options{Path: dir})
	becomes(t, e, authz.ReasonAllow)
	custom(`deny contains "yes" if if`).write(t, dir)
	eventually(t, soon, func() bool { return e.fault.Load() != nil })
	becomes(t, e, authz.ReasonAllow)
	custom(`deny contains "yes" if true`).write(t, dir)
	becomes(t, e, "CUSTOM_DENY")
}

func TestAPathThatComesLaterIsLoadedThen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	e, err := New(Options{Path: dir, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- e.Run(t.Context()) }()
	t.Cleanup(func() { <-ended })
	eventually(t, soon, func() bool { return e.fault.Load() != nil })
	becomes(t, e, authz.ReasonPolicyNotLoaded)
	custom(`deny contains "no" if false`).write(t, dir)
	becomes(t, e, authz.ReasonAllow)
	if err := e.Ready(); err != nil {
		t.Error(err)
	}
}
