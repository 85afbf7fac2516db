package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sluice/internal/authz"
	"sluice/internal/snapshot"
	"strconv"
	"strings"
	"time"
)

type recordsSignCommand struct {
	recordName
	File string        `arg:"" optional:"" help:"File with the record as JSON; - or nothing is standard input."`
	Key  string        `required:"" placeholder:"FILE" help:"The private key, as records keygen wrote it."`
	Life time.Duration `default:"1h" placeholder:"D" help:"For how long the record counts, in whole seconds, such as 90s or 1h; at most the gateways' store.verify.max_life."`
	outputFlags
}

// signedRecord is what "records sign --output json" answers.
type signedRecord struct {
	JWS       string     `json:"jws"`
	Kind      authz.Kind `json:"kind"`
	ID        string     `json:"id"`
	Revision  int64      `json:"revision"`
	Kid       string     `json:"kid"`
	ExpiresAt time.Time  `json:"expiresAt"`
}

// Run prints the signed record, which stands in the store in place of the
// record.
func (c *recordsSignCommand) Run(a *app) error {
	c.shiftFile(&c.File)
	k, err := c.key()
	if err != nil {
		return err
	}
	if c.Life < time.Second || c.Life%time.Second != 0 {
		return wrongUsage("--life %s is not one or more whole seconds", c.Life)
	}
	key, err := readSigningKey(c.Key)
	if err != nil {
		return err
	}
	source, text, err := readRecord(a, c.File)
	if err != nil {
		return err
	}
	now := time.Now()
	compact, record, err := key.Sign(k, text, now, c.Life)
	if fault, ok := errors.AsType[*snapshot.Fault](err); ok {
		return errors.New(recordFault(source, fault).String())
	}
	if err != nil {
		return err
	}
	if c.json() {
		return a.writeJSON(signedRecord{string(compact), k.Kind, k.ID, record.Revision, key.Entry().Kid, now.Add(c.Life).Truncate(time.Second).UTC()})
	}
	_, err = fmt.Fprintf(a.stdout, "%s\n", compact)
	return err
}

// readSigningKey reads a private key; its errors quote nothing of it.
func readSigningKey(file string) (*snapshot.SigningKey, error) {
	const most = 16 << 10
	f, err := os.Open(file)
	if err != nil {
		return nil, wrongUsage("--key: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return nil, wrongUsage("--key: %w", err)
	}
	key, err := snapshot.ParseSigningKey(text)
	if err != nil {
		return nil, wrongUsage("--key: %s %w", file, err)
	}
	return key, nil
}

type recordsVerifyCommand struct {
	recordArgs
	File string `arg:"" optional:"" help:"File with the signed record; - is standard input. Without it, the one in the store that the configuration names; standard input where none is given."`
	Keys string `placeholder:"FILE" help:"Verify with the keys of this file, in place of those of store.verify.keys_file."`
	outputFlags
}

// verifiedRecord is what "records verify --output json" answers. Of a record
// that is not valid there is what is known.
type verifiedRecord struct {
	Valid     bool       `json:"valid"`
	Kind      authz.Kind `json:"kind"`
	ID        string     `json:"id"`
	Fault     string     `json:"fault,omitempty"`
	Revision  *int64     `json:"revision,omitempty"`
	Kid       string     `json:"kid,omitempty"`
	Alg       string     `json:"alg,omitempty"`
	TenantID  string     `json:"tenantId,omitempty"` // whose key it is; none: the installation's
	IssuedAt  *time.Time `json:"issuedAt,omitempty"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	Until     *time.Time `json:"until,omitempty"` // it counts: to its exp, or to the end of its key
}

// Run says who signed the record; the answer is no when a gateway would not
// take it now.
func (c *recordsVerifyCommand) Run(a *app) error {
	c.shiftFile(&c.File)
	k, err := c.key()
	if err != nil {
		return err
	}
	cfg, err := c.load()
	if err != nil {
		return err
	}
	file := cmp.Or(c.Keys, cfg.Store.Verify.KeysFile)
	if file == "" {
		return wrongUsage("no keys to verify with: name them with --keys, or with store.verify.keys_file in the configuration")
	}
	keys, err := snapshot.OpenKeys(file)
	if err != nil {
		return wrongUsage("%w", err)
	}
	text, err := c.read(a, cfg, k)
	if err != nil {
		return err
	}
	signature, record, fault := keys.Verify(k, text, time.Now(), cfg.Store.Verify.MaxLife)
	return c.answer(a, k, signature, record, fault)
}

// read returns what is to be verified.
func (c *recordsVerifyCommand) read(a *app, cfg *Config, k snapshot.Key) ([]byte, error) {
	if c.File != "" || !c.given() {
		_, text, err := readRecord(a, c.File)
		return text, err
	}
	store, err := openBareStore(cfg, nil)
	if err != nil {
		return nil, wrongUsage("%w", err)
	}
	if closer, ok := store.(io.Closer); ok {
		defer closer.Close()
	}
	stored, err := store.Get(a.ctx, k)
	if err == nil && stored.Text == nil {
		err = fmt.Errorf("%s: %w", k, stored.Fault) // no text of anything
	}
	if err != nil {
		return nil, err
	}
	return stored.Text, nil
}

func (c *recordsVerifyCommand) answer(a *app, k snapshot.Key, s *snapshot.Signature, r *authz.Record, fault error) error {
	if c.json() {
		if err := a.writeJSON(verifiedAs(k, s, r, fault)); err != nil {
			return err
		}
		if fault != nil {
			return errNo
		}
		return nil
	}
	if fault != nil {
		return fmt.Errorf("%s: %w", k, fault)
	}
	_, err := fmt.Fprintf(a.stdout, "%s: revision %d, signed with key %s (%s, %s) at %s, counts until %s\n",
		k, r.Revision, s.Kid, s.Alg, whose(s.TenantID), s.IssuedAt.Format(time.RFC3339), s.Until().Format(time.RFC3339))
	return err
}

func verifiedAs(k snapshot.Key, s *snapshot.Signature, r *authz.Record, fault error) verifiedRecord {
	v := verifiedRecord{Valid: fault == nil, Kind: k.Kind, ID: k.ID}
	if fault != nil {
		v.Fault = fault.Error()
	}
	if s != nil {
		until := s.Until()
		v.Kid, v.Alg, v.TenantID, v.IssuedAt, v.ExpiresAt, v.Until = s.Kid, s.Alg, s.TenantID, &s.IssuedAt, &s.ExpiresAt, &until
	}
	if r != nil {
		v.Revision = &r.Revision
	}
	return v
}

func whose(tenant string) string {
	if tenant == "" {
		return "the installation's"
	}
	return "tenant " + tenant + "'s"
}

type recordsKeygenCommand struct {
	Alg    string `enum:"EdDSA,ES256" default:"EdDSA" placeholder:"EdDSA|ES256" help:"The signature algorithm: EdDSA (on Ed25519) or ES256."`
	Tenant string `placeholder:"T" help:"The tenant whose leases and environments it may sign. Without it, it is the installation's and may sign any record."`
	Out    string `placeholder:"FILE" help:"Where the private key is written, readable by you alone; it must not be there yet. Default: sluice-KID.jwk, here."`
	outputFlags
}

// madeKey is what "records keygen --output json" answers.
type madeKey struct {
	KeyFile string            `json:"keyFile"`
	Entry   snapshot.KeyEntry `json:"entry"`
}

// Run makes the key. What it prints can be appended to the keys file as it is.
func (c *recordsKeygenCommand) Run(a *app) error {
	if c.Tenant != "" && !authz.ValidID(c.Tenant) {
		return wrongUsage("the tenant %q is not an id: letters, digits, - and _, beginning with a letter or digit, at most 128", c.Tenant)
	}
	key, err := snapshot.NewSigningKey(c.Alg, c.Tenant)
	if err != nil {
		return err
	}
	entry := key.Entry()
	file := cmp.Or(c.Out, "sluice-"+entry.Kid+".jwk")
	if err := writePrivateKey(file, key); err != nil {
		return err
	}
	if c.json() {
		return a.writeJSON(madeKey{file, entry})
	}
	_, err = fmt.Fprintf(a.stdout, "# %s key; the private key is in %s\n%s\n", whose(entry.TenantID), file, keyEntryYAML(entry))
	return err
}

func writePrivateKey(file string, key *snapshot.SigningKey) error {
	text, err := json.MarshalIndent(key, "", "  ")
	if err != nil {
		return fmt.Errorf("write the private key: %w", err)
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return wrongUsage("%s is there already; name another file with --out", file)
	}
	if err != nil {
		return wrongUsage("write the private key: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write the private key: %w", err)
	}
	return nil
}

// keyEntryYAML writes an entry of the keys file; see entryYAML.
func keyEntryYAML(e snapshot.KeyEntry) string {
	lines := []string{"- kid: " + strconv.Quote(e.Kid)}
	for _, field := range []struct{ name, value string }{
		{"alg", e.Alg}, {"kty", e.Kty}, {"crv", e.Crv}, {"x", e.X}, {"y", e.Y}, {"tenantId", e.TenantID},
	} {
		if field.value != "" {
			lines = append(lines, "  "+field.name+": "+strconv.Quote(field.value))
		}
	}
	return strings.Join(lines, "\n")
}
