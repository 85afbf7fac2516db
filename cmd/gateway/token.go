package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"sluice/internal/authz"
	"sluice/internal/identity"
	"strconv"
	"strings"
	"time"
)

type tokenCommand struct {
	New tokenNewCommand `cmd:"" help:"Make an API token: its entry for identity.tokens_file, and the token itself, printed once."`
}

type tokenNewCommand struct {
	Name    string   `arg:"" help:"Whom the token stands for; the subject of its requests."`
	Tenant  string   `required:"" placeholder:"T" help:"The tenant that it belongs to."`
	Expires string   `placeholder:"D" help:"When it expires: a time (2030-01-31T12:00:00Z), or how long from now (720h, 90d). Without it, never."`
	Roles   []string `placeholder:"A,B" help:"Roles that policies may look at."`
	outputFlags
}

// madeToken is what "token new --output json" answers.
type madeToken struct {
	Token string              `json:"token"`
	Entry identity.TokenEntry `json:"entry"`
}

// Run makes the token and prints it; it is kept nowhere.
func (c *tokenNewCommand) Run(a *app) error {
	expires, err := readExpiry(c.Expires, time.Now())
	if err != nil {
		return err
	}
	made, err := newToken(c.Name, c.Tenant, c.Roles, expires)
	if err != nil {
		return err
	}
	if c.json() {
		return a.writeJSON(made)
	}
	fmt.Fprintf(a.stdout, "# add this entry to the file that identity.tokens_file names\n%s\n# the token, shown this once\n%s\n", entryYAML(made.Entry), made.Token)
	return nil
}

// tokenPrefix makes a token recognisable to people and to secret scanners.
const tokenPrefix = "sluice_"

// newToken makes a token of 256 random bits and its entry.
func newToken(name, tenant string, roles []string, expires string) (madeToken, error) {
	if !identity.ValidName(name) {
		return madeToken{}, wrongUsage("the name %q is not 1 to 128 visible ASCII characters", name)
	}
	if !authz.ValidID(tenant) {
		return madeToken{}, wrongUsage("the tenant %q is not an id: letters, digits, - and _, beginning with a letter or digit, at most 128", tenant)
	}
	for _, role := range roles {
		if !identity.ValidName(role) {
			return madeToken{}, wrongUsage("the role %q is not 1 to 128 visible ASCII characters", role)
		}
	}
	var secret [32]byte
	rand.Read(secret[:]) // never fails: it ends the process instead
	token := tokenPrefix + base64.RawURLEncoding.EncodeToString(secret[:])
	sum := sha256.Sum256([]byte(token))
	return madeToken{token, identity.TokenEntry{
		Name: name, TenantID: tenant, SHA256: hex.EncodeToString(sum[:]), Roles: roles, ExpiresAt: expires,
	}}, nil
}

// entryYAML writes an entry of the tokens file. Its values hold nothing that
// a double-quoted YAML text would read otherwise than Go does.
func entryYAML(e identity.TokenEntry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "- name: %s\n  tenantId: %s\n  sha256: %s\n", strconv.Quote(e.Name), strconv.Quote(e.TenantID), strconv.Quote(e.SHA256))
	if len(e.Roles) > 0 {
		quoted := make([]string, len(e.Roles))
		for i, role := range e.Roles {
			quoted[i] = strconv.Quote(role)
		}
		fmt.Fprintf(&b, "  roles: [%s]\n", strings.Join(quoted, ", "))
	}
	if e.ExpiresAt != "" {
		fmt.Fprintf(&b, "  expiresAt: %s\n", strconv.Quote(e.ExpiresAt))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// readExpiry takes a time, a Go duration or a number of days ("90d"), and
// returns a time in RFC 3339, or "" for none.
func readExpiry(text string, now time.Time) (string, error) {
	if text == "" {
		return "", nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		life, ok := readLife(text)
		if !ok {
			return "", wrongUsage("--expires %q is neither a time such as 2030-01-31T12:00:00Z nor a duration such as 720h or 90d", text)
		}
		at = now.Add(life)
	}
	if !at.After(now) {
		return "", wrongUsage("--expires %q has passed already", text)
	}
	return at.UTC().Format(time.RFC3339), nil
}

// readLife takes at most a hundred years.
func readLife(text string) (time.Duration, bool) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 32)
		return time.Duration(n) * 24 * time.Hour, err == nil && n <= 36500
	}
	life, err := time.ParseDuration(text)
	return life, err == nil && life <= 36500*24*time.Hour
}
