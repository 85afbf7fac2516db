package identity

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"sluice/internal/authz"
	"sluice/internal/strictyaml"
	"strings"
	"time"
)

// maxTokensFile bounds the tokens file: some twenty thousand entries.
const maxTokensFile = 4 << 20

// maxRoles bounds the roles of an entry.
const maxRoles = 64

// TokenEntry is an entry of the tokens file, as it is written.
type TokenEntry struct {
	Name      string   `yaml:"name" json:"name"`                     // 1 to 128 visible ASCII characters; the principal's subject
	TenantID  string   `yaml:"tenantId" json:"tenantId"`             // an id
	SHA256    string   `yaml:"sha256" json:"sha256"`                 // of the token, 64 hexadecimal digits
	Roles     []string `yaml:"roles" json:"roles,omitempty"`         // each 1 to 128 visible ASCII characters
	ExpiresAt string   `yaml:"expiresAt" json:"expiresAt,omitempty"` // RFC 3339; "": does not expire
}

// FileError is a tokens file whose text is not well-formed.
type FileError struct {
	Path   string
	Faults []strictyaml.Fault
}

func (e *FileError) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		lines[i] = e.Path + ":" + f.String()
	}
	return strings.Join(lines, "\n")
}

// parseTokens reads the whole file or refuses it: an entry that is left out
// would be a caller who is refused without anyone knowing why.
func parseTokens(path string, text []byte) ([]*entry, error) {
	var list []TokenEntry
	at, faults := strictyaml.Decode(text, &list, strictyaml.Options{MaxBytes: maxTokensFile})
	if len(faults) > 0 {
		return nil, &FileError{path, faults}
	}
	wrong := func(i int, field, format string, args ...any) {
		where := fmt.Sprintf("[%d].%s", i, field)
		faults = append(faults, strictyaml.Fault{Position: at.Near(where), Path: where, Message: fmt.Sprintf(format, args...)})
	}
	names, tokens := map[string]int{}, map[digest]int{}
	entries := make([]*entry, len(list))
	for i, written := range list {
		e := written.read(func(field, format string, args ...any) { wrong(i, field, format, args...) })
		entries[i] = e
		if first, twice := names[written.Name]; twice {
			wrong(i, "name", "%q is also the name of entry [%d]", written.Name, first)
		}
		if first, twice := tokens[e.token]; twice && e.token != (digest{}) {
			wrong(i, "sha256", "is also that of entry [%d]; a token stands for one caller", first)
		}
		names[written.Name], tokens[e.token] = i, i
	}
	if len(faults) > 0 {
		return nil, &FileError{path, faults}
	}
	return entries, nil
}

// read judges the values of an entry.
func (t TokenEntry) read(wrong func(field, format string, args ...any)) *entry {
	e := &entry{principal: &authz.Principal{Subject: t.Name, TenantID: t.TenantID, Method: MethodToken, Roles: t.Roles}}
	if !ValidName(t.Name) {
		wrong("name", "%q is not 1 to 128 visible ASCII characters", t.Name)
	}
	if !authz.ValidID(t.TenantID) {
		wrong("tenantId", "%q is not an id: letters, digits, - and _, beginning with a letter or digit, at most 128", t.TenantID)
	}
	if sum, err := hex.DecodeString(t.SHA256); err != nil || len(sum) != len(e.token) {
		wrong("sha256", "is not 64 hexadecimal digits, the SHA-256 of the token")
	} else {
		e.token = digest(sum)
	}
	if len(t.Roles) > maxRoles {
		wrong("roles", "are more than %d", maxRoles)
	}
	for i, role := range t.Roles {
		if !ValidName(role) || slices.Contains(t.Roles[:i], role) {
			wrong(fmt.Sprintf("roles[%d]", i), "%q is there twice, or is not 1 to 128 visible ASCII characters", role)
		}
	}
	if t.ExpiresAt != "" {
		at, ok := parseTime(t.ExpiresAt)
		if !ok {
			wrong("expiresAt", "%q is not a time such as 2030-01-31T12:00:00Z", t.ExpiresAt)
		}
		e.principal.ExpiresAt = &at
	}
	return e
}

// ValidName reports 1 to 128 visible ASCII characters: what may stand in a
// header to the worker as it is.
func ValidName(s string) bool {
	return s != "" && len(s) <= 128 && strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// rfc3339 is stricter than time.Parse, which takes a comma for the point and
// offsets of any size.
var rfc3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

func parseTime(s string) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339Nano, s)
	return at, err == nil && rfc3339.MatchString(s)
}

// same says whether two principals stand for the same in every respect.
func same(a, b *authz.Principal) bool {
	expiry := func(p *authz.Principal) time.Time {
		if p.ExpiresAt == nil {
			return time.Time{}
		}
		return *p.ExpiresAt
	}
	return a.Subject == b.Subject && a.TenantID == b.TenantID && slices.Equal(a.Roles, b.Roles) &&
		(a.ExpiresAt == nil) == (b.ExpiresAt == nil) && expiry(a).Equal(expiry(b))
}
