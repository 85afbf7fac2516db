package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sluice/internal/authz"
	"sluice/internal/snapshot"
	"text/tabwriter"
)

type recordsCommand struct {
	Put    recordsPutCommand    `cmd:"" help:"Write a record, if it is well-formed and newer than the stored one."`
	Get    recordsGetCommand    `cmd:"" help:"Print a record."`
	Delete recordsDeleteCommand `cmd:"" help:"Delete a record."`
	List   recordsListCommand   `cmd:"" help:"List the records of a kind."`
	Sign   recordsSignCommand   `cmd:"" help:"Sign a record, so that gateways that verify take it."`
	Verify recordsVerifyCommand `cmd:"" help:"Say who signed a record, and until when it counts."`
	Keygen recordsKeygenCommand `cmd:"" help:"Make a key to sign records with: the private key in a file, and its entry for store.verify.keys_file."`
	Rebase recordsRebaseCommand `cmd:"" help:"Make running gateways forget the revisions they have seen, after a database was restored."`
}

// recordArgs name a record in the configured store.
type recordArgs struct {
	configFlags
	recordName
}

type recordName struct {
	Kind string `arg:"" enum:"lease,environment,plugin,worker,control" help:"lease, environment, plugin, worker or control."`
	ID   string `arg:"" optional:"" help:"Its id; the control record has none."`
}

func (r recordName) key() (snapshot.Key, error) {
	k := snapshot.Key{Kind: authz.Kind(r.Kind), ID: r.ID}
	if k.Kind == authz.KindControl && k.ID == string(authz.KindControl) {
		k.ID = "" // as it is named in paths and logs
	}
	switch {
	case k.Valid():
		return k, nil
	case k.Kind == authz.KindControl:
		return k, wrongUsage("there is one control record, without an id; leave %q out", r.ID)
	case r.ID == "":
		return k, wrongUsage("a %s has an id; name it behind the kind", r.Kind)
	}
	return k, wrongUsage("%q is not an id: letters, digits, - and _, beginning with a letter or digit, at most 128", r.ID)
}

// open opens the configured store; the caller closes it.
func (r recordArgs) open() (recordStore, snapshot.Key, func(), error) {
	k, err := r.key()
	if err != nil {
		return nil, k, nil, err
	}
	store, closeStore, err := r.openConfigured()
	return store, k, closeStore, err
}

func (f configFlags) openConfigured() (recordStore, func(), error) {
	cfg, err := f.load()
	if err != nil {
		return nil, nil, err
	}
	store, err := openStore(cfg, nil)
	if err != nil {
		return nil, nil, wrongUsage("%w", err)
	}
	return store, func() {
		if c, ok := store.(io.Closer); ok {
			_ = c.Close()
		}
	}, nil
}

// ifRevision makes an edit conditional.
type ifRevision struct {
	IfRevision *int64 `placeholder:"N" help:"Only when the stored record is of this revision."`
}

// bothRevisions names, where the stored revision is not the expected one, both.
func (c ifRevision) bothRevisions(ctx context.Context, store recordStore, k snapshot.Key, err error) error {
	if !errors.Is(err, snapshot.ErrPrecondition) || c.IfRevision == nil {
		return err
	}
	found := "none"
	if stored, err := store.Get(ctx, k); err == nil && stored.Record != nil {
		found = fmt.Sprint(stored.Record.Revision)
	}
	return fmt.Errorf("%w, %d (it holds %s)", err, *c.IfRevision, found)
}

type recordsPutCommand struct {
	recordArgs
	File string `arg:"" optional:"" help:"File with the record as JSON; - or nothing is standard input."`
	ifRevision
}

// Run puts the record.
func (c *recordsPutCommand) Run(a *app) error {
	c.shiftFile(&c.File)
	store, k, closeStore, err := c.open()
	if err != nil {
		return err
	}
	defer closeStore()
	source, text, err := readRecord(a, c.File)
	if err != nil {
		return err
	}
	record, err := store.Put(a.ctx, k, text, c.IfRevision)
	if fault, ok := errors.AsType[*snapshot.Fault](err); ok {
		return errors.New(recordFault(source, fault).String())
	}
	if err != nil {
		return c.bothRevisions(a.ctx, store, k, err)
	}
	c.warn(a, source, k.Kind, text)
	fmt.Fprintf(a.stdout, "%s: revision %d\n", k, record.Revision)
	return nil
}

// warn tells of what was taken and is probably not meant.
func (c *recordsPutCommand) warn(a *app, source string, kind authz.Kind, text []byte) {
	cfg, err := c.load()
	if err != nil {
		return // it was loaded a moment ago, and the record is written
	}
	for _, w := range adviseRecord(source, kind, text, true, cfg.Policies.ExtraFields, nil) {
		fmt.Fprintf(a.stderr, "warning: %s\n", w)
	}
}

// shiftFile makes the control record's id, which has none, the file.
func (r *recordName) shiftFile(file *string) {
	if r.Kind == string(authz.KindControl) && r.ID != string(authz.KindControl) && *file == "" {
		r.ID, *file = "", r.ID
	}
}

// readRecord returns a record's text, and where it comes from: a file, or
// standard input.
func readRecord(a *app, file string) (source string, text []byte, err error) {
	in, source := a.stdin, "standard input"
	if file != "" && file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", nil, wrongUsage("read the record: %w", err)
		}
		defer f.Close()
		in, source = f, file
	}
	// One byte more than a record may have, so that a larger one is refused
	// and not cut off.
	if text, err = io.ReadAll(io.LimitReader(in, snapshot.MaxSigned+1)); err != nil {
		return "", nil, fmt.Errorf("read the record: %w", err)
	}
	return source, text, nil
}

type recordsGetCommand struct {
	recordArgs
	Signed bool `help:"Print it in its signature, as it is stored."`
}

// Run prints the record; one that is malformed too, as it is stored, with a
// warning.
func (c *recordsGetCommand) Run(a *app) error {
	store, k, closeStore, err := c.open()
	if err != nil {
		return err
	}
	defer closeStore()
	record, err := store.Get(a.ctx, k)
	if err != nil {
		return err
	}
	if record.Fault != nil {
		fmt.Fprintf(a.stderr, "warning: %s is malformed: %v\n", k, record.Fault)
	}
	text := record.Text
	if c.Signed {
		if record.Signed == nil {
			return fmt.Errorf("%s is not signed, or the configuration names no keys to verify it with", k)
		}
		text = record.Signed
	}
	if n := len(text); n > 0 && text[n-1] != '\n' {
		text = append(text, '\n')
	}
	_, err = a.stdout.Write(text)
	return err
}

type recordsDeleteCommand struct {
	recordArgs
	ifRevision
}

// Run deletes the record.
func (c *recordsDeleteCommand) Run(a *app) error {
	store, k, closeStore, err := c.open()
	if err != nil {
		return err
	}
	defer closeStore()
	if err := store.Delete(a.ctx, k, c.IfRevision); err != nil {
		return c.bothRevisions(a.ctx, store, k, err)
	}
	fmt.Fprintf(a.stdout, "%s: deleted\n", k)
	return nil
}

type recordsListCommand struct {
	configFlags
	Kind string `arg:"" enum:"lease,environment,plugin,worker,control" help:"lease, environment, plugin, worker or control."`
	outputFlags
}

// listedRecord is a line of the list.
type listedRecord struct {
	ID       string `json:"id,omitempty"`
	Revision int64  `json:"revision"`
	Status   string `json:"status,omitempty"`
	Fault    string `json:"fault,omitempty"` // what makes it malformed
}

// Run lists the records.
func (c *recordsListCommand) Run(a *app) error {
	store, closeStore, err := c.openConfigured()
	if err != nil {
		return err
	}
	defer closeStore()
	ids, err := store.List(a.ctx, authz.Kind(c.Kind))
	if err != nil {
		return err
	}
	list := make([]listedRecord, 0, len(ids))
	for _, id := range ids {
		record, err := store.Get(a.ctx, snapshot.Key{Kind: authz.Kind(c.Kind), ID: id})
		switch {
		case errors.Is(err, snapshot.ErrNotFound): // deleted meanwhile
		case err != nil:
			return err
		default:
			list = append(list, listed(record))
		}
	}
	if c.json() {
		return a.writeJSON(list)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tREVISION\tSTATUS")
	for _, r := range list {
		fmt.Fprintf(w, "%s\t%d\t%s\n", r.ID, r.Revision, r.words())
	}
	return w.Flush()
}

func listed(s *snapshot.Stored) listedRecord {
	if s.Fault != nil {
		return listedRecord{ID: s.Key.ID, Fault: s.Fault.Error()}
	}
	return listedRecord{ID: s.Key.ID, Revision: s.Record.Revision, Status: s.Record.Status}
}

func (r listedRecord) words() string {
	if r.Fault != "" {
		return "malformed: " + r.Fault
	}
	return r.Status
}
