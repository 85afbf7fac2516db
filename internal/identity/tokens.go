package identity

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"os"
	"sluice/internal/authz"
	"sync"
	"sync/atomic"
	"weak"
)

// MethodToken is the Method of a principal that an API token stands for.
const MethodToken = "token"

// Tokens is the file of API tokens. It is safe for concurrent use; a lookup
// takes no lock.
type Tokens struct {
	table atomic.Pointer[table]

	reading sync.Mutex // one at a time

	mu     sync.Mutex // guards what is below
	path   string     // "": no file, and nobody is known
	issued map[weak.Pointer[authz.Principal]]digest
}

type digest [sha256.Size]byte

// table is one reading of the file; it is immutable.
type table struct {
	content    digest // of the file's text
	byToken    map[digest]*entry
	principals map[*authz.Principal]bool
}

type entry struct {
	token     digest
	principal *authz.Principal
}

// OpenTokens reads the file at path: a YAML list of {name, tenantId, sha256,
// roles?, expiresAt?}. A *FileError names what is wrong with its text. With
// "" there is no file, and nobody is known.
func OpenTokens(path string) (*Tokens, error) {
	t := &Tokens{path: path, issued: map[weak.Pointer[authz.Principal]]digest{}}
	t.table.Store(&table{})
	if _, err := t.Reload(); err != nil {
		return nil, err
	}
	return t, nil
}

// Principal implements Bearer. The token is looked up by its SHA-256, so that
// the time taken tells nothing of the tokens that exist.
func (t *Tokens) Principal(token string) *authz.Principal {
	sum := digest(sha256.Sum256([]byte(token)))
	e := t.table.Load().byToken[sum]
	if e == nil || subtle.ConstantTimeCompare(e.token[:], sum[:]) != 1 {
		return nil
	}
	return e.principal
}

// Current implements Bearer: p itself while its entry is as it was, the
// principal of the entry that has the same token now, or nil when there is
// none. A token that was replaced under its name is another credential.
func (t *Tokens) Current(p *authz.Principal) *authz.Principal {
	if t.table.Load().principals[p] {
		return p
	}
	t.mu.Lock()
	token, ok := t.issued[weak.Make(p)]
	t.mu.Unlock()
	if !ok {
		return nil
	}
	if e := t.table.Load().byToken[token]; e != nil {
		return e.principal
	}
	return nil
}

// Reload reads the file again and says whether that changed anyone's standing.
// When it cannot be read, or is not well-formed, what was read last stays.
func (t *Tokens) Reload() (changed bool, err error) {
	t.reading.Lock()
	defer t.reading.Unlock()
	path := t.file()
	read, err := readTokensFile(path)
	if err != nil {
		return false, err
	}
	return t.keep(read, path), nil
}

// ReloadFrom is Reload from another file, which takes the place of the former
// one when it is well-formed and agreed, called after it was read, returns no
// error. That may take its time: the former file is followed meanwhile.
func (t *Tokens) ReloadFrom(path string, agreed func() error) error {
	before := t.table.Load()
	read, err := readTokensFile(path)
	if err != nil {
		return err
	}
	if err := agreed(); err != nil {
		return err
	}
	t.reading.Lock()
	defer t.reading.Unlock()
	again, err := readTokensFile(path)
	switch {
	case err == nil:
		t.keep(again, path)
	case path != t.file() || t.table.Load() == before:
		t.keep(read, path)
	default: // what was kept of it meanwhile is newer
	}
	return nil
}

// tokensFile is a file that was read.
type tokensFile struct {
	content digest
	entries []*entry
}

func readTokensFile(path string) (*tokensFile, error) {
	text, err := readTokens(path)
	if err != nil {
		return nil, fmt.Errorf("read the tokens file: %w", err)
	}
	entries, err := parseTokens(path, text)
	if err != nil {
		return nil, err
	}
	return &tokensFile{sha256.Sum256(text), entries}, nil
}

// keep is called with reading held. It says whether that changed anyone's
// standing.
func (t *Tokens) keep(read *tokensFile, path string) (changed bool) {
	before := t.table.Load()
	next := before
	if read.content != before.content {
		next, changed = before.followedBy(read.entries)
		next.content = read.content
	}
	t.mu.Lock()
	t.path = path
	t.remember(next)
	t.mu.Unlock()
	t.table.Store(next)
	return changed
}

// followedBy is the table of entries; a principal that is as it was stays the
// same value.
func (t *table) followedBy(entries []*entry) (next *table, changed bool) {
	next = &table{byToken: map[digest]*entry{}, principals: map[*authz.Principal]bool{}}
	changed = len(entries) != len(t.byToken)
	for _, e := range entries {
		if old := t.byToken[e.token]; old != nil && same(old.principal, e.principal) {
			e = old
		} else {
			changed = true
		}
		next.byToken[e.token] = e
		next.principals[e.principal] = true
	}
	return next, changed
}

// remember keeps which token a principal was given out for, as long as anyone
// holds that principal. It is called with mu held.
func (t *Tokens) remember(next *table) {
	for p := range t.issued {
		if p.Value() == nil {
			delete(t.issued, p)
		}
	}
	for _, e := range next.byToken {
		t.issued[weak.Make(e.principal)] = e.token
	}
}

func readTokens(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxTokensFile+1))
}
