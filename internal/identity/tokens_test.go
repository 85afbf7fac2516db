package identity

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sluice/internal/authz"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestAnEntryBecomesAPrincipal(t *testing.T) {
	tokens, _ := openTokens(t, line("agent@7", "acme", aliceToken, ", roles: [ops, audit], expiresAt: 2030-01-31T12:00:00.5+02:00"))
	at := time.Date(2030, 1, 31, 10, 0, 0, 5e8, time.UTC)
	want := &authz.Principal{Subject: "agent@7", TenantID: "acme", Method: "token", Roles: []string{"ops", "audit"}, ExpiresAt: &at}
	got := tokens.Principal(aliceToken)
	opts := cmp.Options{cmpopts.IgnoreFields(authz.Principal{}, "Derived"), cmpopts.EquateApproxTime(0)}
	if diff := cmp.Diff(want, got, opts); diff != "" {
		t.Error(diff)
	}
	if tokens.Principal(aliceToken) != got {
		t.Error("the same credential gave two principals")
	}
}

func TestAFileThatIsNotWellFormedIsRefusedWithItsPlace(t *testing.T) {
	good := strings.TrimSuffix(line("alice", "acme", aliceToken, ""), "\n")
	sum := "sha256: '" + strings.Repeat("a", 64) + "'"
	tests := []struct{ name, text, want string }{
		{"no list", "name: a", ":1:1: a mapping, where a list is wanted"},
		{"unknown key", "- {name: a, tenant: b}", `:1:13: [0]: unknown key "tenant"; known are name, tenantId, sha256, roles, expiresAt`},
		{"duplicate key", "- {name: a, name: b}", ":1:13: [0].name: duplicate key; the first is on line 1"},
		{"number", "- {name: 7, tenantId: t, " + sum + "}", ":1:10: [0].name: a number, where a text (write it in quotes) is wanted"},
		{"one role", "- {name: a, tenantId: t, roles: ops, " + sum + "}", ":1:33: [0].roles: a text, where a list is wanted"},
		{"no name", "- {tenantId: t, " + sum + "}", `:1:3: [0].name: "" is not 1 to 128 visible ASCII characters`},
		{"name with a space", "- {name: 'a b', tenantId: t, " + sum + "}", `:1:10: [0].name: "a b" is not 1 to 128 visible ASCII characters`},
		{"no tenant", "- {name: a, " + sum + "}", `:1:3: [0].tenantId: "" is not an id: letters, digits, - and _, beginning with a letter or digit, at most 128`},
		{"tenant that is no id", "- {name: a, tenantId: '*', " + sum + "}", `:1:23: [0].tenantId: "*" is not an id: letters, digits, - and _, beginning with a letter or digit, at most 128`},
		{"no digest", "- {name: a, tenantId: t}", ":1:3: [0].sha256: is not 64 hexadecimal digits, the SHA-256 of the token"},
		{"short digest", "- {name: a, tenantId: t, sha256: abcd}", ":1:34: [0].sha256: is not 64 hexadecimal digits, the SHA-256 of the token"},
		{"role twice", "- {name: a, tenantId: t, roles: [x, x], " + sum + "}", `:1:37: [0].roles[1]: "x" is there twice, or is not 1 to 128 visible ASCII characters`},
		{"date alone", "- {name: a, tenantId: t, expiresAt: 2030-01-31, " + sum + "}", `:1:37: [0].expiresAt: "2030-01-31" is not a time such as 2030-01-31T12:00:00Z`},
		{"no such day", "- {name: a, tenantId: t, expiresAt: 2030-02-31T00:00:00Z, " + sum + "}", `:1:37: [0].expiresAt: "2030-02-31T00:00:00Z" is not a time such as 2030-01-31T12:00:00Z`},
		{"comma in a time", "- {name: a, tenantId: t, expiresAt: '2030-01-31T00:00:00,5Z', " + sum + "}", `:1:37: [0].expiresAt: "2030-01-31T00:00:00,5Z" is not a time such as 2030-01-31T12:00:00Z`},
		{"two of a name", good + "\n- {name: alice, tenantId: t, " + sum + "}", `:2:10: [1].name: "alice" is also the name of entry [0]`},
		{"two of a token", good + "\n" + line("bob", "t", aliceToken, ""), ":2:36: [1].sha256: is also that of entry [0]; a token stands for one caller"},
		{"empty entry", good + "\n-", ":2:3: [1]: nothing, where an entry of a list is wanted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tokens.yaml")
			write(t, path, tt.text)
			_, err := OpenTokens(path)
			if err == nil || err.Error() != path+tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
			if e, ok := errors.AsType[*FileError](err); !ok || len(e.Faults) != 1 {
				t.Errorf("%v is not one fault", err)
			}
		})
	}
	if _, err := OpenTokens("/nowhere/tokens.yaml"); err == nil || err.Error() != "read the tokens file: open /nowhere/tokens.yaml: no such file or directory" {
		t.Errorf("a missing file: %v", err)
	}
}

func TestAReloadKeepsWhoStaysAndDropsWhoLeft(t *testing.T) {
	tokens, path := openTokens(t, line("alice", "acme", aliceToken, "")+line("bob", "beta", bobToken, ""))
	identifier := New(tokens)
	alice, bob := tokens.Principal(aliceToken), tokens.Principal(bobToken)

	write(t, path, "# a comment\n"+line("alice", "acme", aliceToken, ""))
	if changed, err := tokens.Reload(); err != nil || !changed {
		t.Fatalf("changed is %v, %v", changed, err)
	}
	if tokens.Principal(aliceToken) != alice || identifier.Current(alice) != alice {
		t.Error("alice, whose entry is as it was, is another principal")
	}
	if tokens.Principal(bobToken) != nil || identifier.Current(bob) != nil {
		t.Error("bob left and is still known")
	}

	write(t, path, line("alice", "acme", aliceToken, ", roles: [ops]")+line("bob", "beta", bobToken, ""))
	if _, err := tokens.Reload(); err != nil {
		t.Fatal(err)
	}
	now := identifier.Current(alice)
	if now == nil || now == alice || len(now.Roles) != 1 || now != tokens.Principal(aliceToken) {
		t.Errorf("alice got a role and is %+v", now)
	}
	if identifier.Current(bob) != tokens.Principal(bobToken) {
		t.Error("bob came back and is not current")
	}
	if identifier.Current(&authz.Principal{Subject: "alice", TenantID: "acme", Method: "token"}) != nil {
		t.Error("a principal that was never given out is current")
	}
}

func TestATokenReplacedUnderItsNameIsAnotherCredential(t *testing.T) {
	tokens, path := openTokens(t, line("alice", "acme", aliceToken, ""))
	before := tokens.Principal(aliceToken)
	write(t, path, line("alice", "acme", bobToken, ""))
	if _, err := tokens.Reload(); err != nil {
		t.Fatal(err)
	}
	if tokens.Current(before) != nil || tokens.Principal(aliceToken) != nil || tokens.Principal(bobToken) == nil {
		t.Error("the old token still counts, or the new one does not")
	}
}

func TestABadFileLeavesTheLastGoodOneInForce(t *testing.T) {
	tokens, path := openTokens(t, line("alice", "acme", aliceToken, ""))
	alice := tokens.Principal(aliceToken)
	write(t, path, "- {name: alice")
	if changed, err := tokens.Reload(); err == nil || changed {
		t.Errorf("changed is %v, %v", changed, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if changed, err := tokens.Reload(); err == nil || changed {
		t.Errorf("changed is %v, %v", changed, err)
	}
	if tokens.Principal(aliceToken) != alice || tokens.Current(alice) != alice {
		t.Error("alice is not known any more")
	}
}

func TestAnotherFileTakesTheFormersPlaceWhenItIsWellFormed(t *testing.T) {
	tokens, path := openTokens(t, line("alice", "acme", aliceToken, ""))
	alice := tokens.Principal(aliceToken)
	bad, good := path+".bad", path+".good"
	write(t, bad, "garbage")
	write(t, good, line("alice", "acme", aliceToken, "")+line("bob", "beta", bobToken, ""))

	agreed := func() error { return nil }
	if err := tokens.ReloadFrom(bad, func() error { t.Error("asked about a bad file"); return nil }); err == nil || tokens.Principal(aliceToken) != alice {
		t.Errorf("a bad file took over (%v)", err)
	}
	refused := errors.New("refused")
	if err := tokens.ReloadFrom(good, func() error { return refused }); !errors.Is(err, refused) || tokens.Principal(bobToken) != nil {
		t.Errorf("a file that was not agreed to took over (%v)", err)
	}
	withdrawn := func() error { // what else a reload does takes its time: the files go on
		write(t, good, line("bob", "beta", bobToken, ""))
		write(t, path, line("carol", "acme", "sluice_carol-token", ""))
		if changed, err := tokens.Reload(); err != nil || !changed || tokens.Principal(aliceToken) != nil {
			t.Errorf("a withdrawal waits for a reload (%v)", err)
		}
		return nil
	}
	if err := tokens.ReloadFrom(good, withdrawn); err != nil || tokens.Principal(aliceToken) != nil || tokens.Principal(bobToken) == nil {
		t.Errorf("what was withdrawn meanwhile is known again (%v)", err)
	}
	garbage := func() error { write(t, good, "garbage"); return nil }
	write(t, good, line("carol", "acme", "sluice_carol-token", ""))
	if err := tokens.ReloadFrom(good, garbage); err != nil || tokens.Principal(bobToken) != nil || tokens.Principal("sluice_carol-token") == nil {
		t.Errorf("what was read and agreed to is not in force (%v)", err)
	}
	write(t, path, line("alice", "acme", aliceToken, ""))
	write(t, good, line("alice", "acme", aliceToken, "")+line("bob", "beta", bobToken, ""))
	if err := tokens.ReloadFrom(path, agreed); err != nil {
		t.Fatal(err)
	}
	alice = tokens.Principal(aliceToken)
	if err := tokens.ReloadFrom(good, agreed); err != nil || tokens.Principal(aliceToken) != alice || tokens.Principal(bobToken) == nil {
		t.Errorf("the good file did not take over (%v)", err)
	}
	if _, err := tokens.Reload(); err != nil || tokens.Principal(bobToken) == nil {
		t.Errorf("a reload went back to the former file (%v)", err)
	}
	if err := tokens.ReloadFrom("", agreed); err != nil || tokens.Current(alice) != nil {
		t.Errorf("without a file, somebody is known (%v)", err)
	}
	none, err := OpenTokens("")
	if err != nil || none.Principal(aliceToken) != nil {
		t.Errorf("without a file from the start, somebody is known (%v)", err)
	}
}

func TestPrincipalsThatNobodyHoldsAreForgotten(t *testing.T) {
	tokens, path := openTokens(t, line("alice", "acme", aliceToken, ""))
	for i := range 50 {
		write(t, path, line("alice", "acme", aliceToken, ", roles: [r"+string(rune('a'+i%26))+"]"))
		if _, err := tokens.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	write(t, path, line("alice", "acme", aliceToken, ""))
	if _, err := tokens.Reload(); err != nil {
		t.Fatal(err)
	}
	if n := len(tokens.issued); n > 5 {
		t.Errorf("%d principals are remembered for one token", n)
	}
}

func TestAChangedFileIsReadAgain(t *testing.T) {
	tokens, path := openTokens(t, line("alice", "acme", aliceToken, ""))
	alice := tokens.Principal(aliceToken)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		type call struct {
			changed bool
			failed  bool
		}
		var calls []call
		done := make(chan struct{})
		go func() {
			defer close(done)
			tokens.Watch(ctx, time.Second, func(changed bool, err error) { calls = append(calls, call{changed, err != nil}) })
		}()
		rounds := func(n int) { time.Sleep(time.Duration(n)*time.Second + time.Millisecond); synctest.Wait() }

		rounds(3) // nothing changed
		write(t, path, line("bob", "beta", bobToken, ""))
		rounds(3)
		write(t, path, "garbage")
		rounds(3) // reported once
		write(t, path, line("bob", "beta", bobToken, ""))
		rounds(2) // back to what was good: nothing changed
		write(t, path, "garbage")
		rounds(2)
		cancel()
		<-done
		want := []call{{changed: true}, {failed: true}, {failed: true}}
		if diff := cmp.Diff(want, calls, cmp.AllowUnexported(call{})); diff != "" {
			t.Error(diff)
		}
	})
	if tokens.Current(alice) != nil || tokens.Principal(bobToken) == nil {
		t.Error("the change did not count")
	}
}

func TestAFileSwappedBehindALinkIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"one": line("alice", "acme", aliceToken, ""), "two": line("bob", "beta", bobToken, "")} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "tokens.yaml"), text)
	}
	link := func(to string) {
		if err := os.Symlink(to, filepath.Join(dir, "new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "data")); err != nil {
			t.Fatal(err)
		}
	}
	link("one")
	tokens, err := OpenTokens(filepath.Join(dir, "data", "tokens.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	changes, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		tokens.Watch(ctx, time.Millisecond, func(_ bool, err error) { changes <- err })
	}()
	link("two")
	if err := <-changes; err != nil {
		t.Error(err)
	}
	cancel()
	<-done
	if tokens.Principal(bobToken) == nil {
		t.Error("the swapped file does not count")
	}
}
