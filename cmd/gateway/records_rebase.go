package main

import (
	"context"
	"errors"
	"fmt"
	"sluice/internal/snapshot"
)

type recordsRebaseCommand struct {
	configFlags
	Kind string `arg:"" optional:"" help:"lease, environment, plugin, worker or control."`
	ID   string `arg:"" optional:"" help:"Its id; the control record has none."`
	All  bool   `help:"Every record."`
}

// Run tells every gateway of the store to forget the revisions that it has
// seen.
func (c *recordsRebaseCommand) Run(a *app) error {
	record, err := c.record()
	if err != nil {
		return err
	}
	store, closeStore, err := c.openConfigured()
	if err != nil {
		return err
	}
	defer closeStore()
	rebaser, ok := store.(interface {
		Rebase(ctx context.Context, record string) error
	})
	if !ok {
		return errors.New("the configured store knows no rebase")
	}
	if err := rebaser.Rebase(a.ctx, record); err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "%s: every gateway forgets the revisions that it has seen\n", record)
	return nil
}

// record is what the arguments name: one record, or all.
func (c *recordsRebaseCommand) record() (string, error) {
	if c.All {
		if c.Kind != "" {
			return "", wrongUsage("--all is every record; leave %q out", c.Kind)
		}
		return snapshot.RebaseAll, nil
	}
	if c.Kind == "" {
		return "", wrongUsage("name a record by kind and id, or all of them with --all")
	}
	name := c.Kind
	if c.ID != "" {
		name += ":" + c.ID
	}
	k, ok := snapshot.ParseKey(name)
	if !ok {
		return "", wrongUsage("%q names no record: lease, environment, plugin or worker and an id, or control", name)
	}
	return k.String(), nil
}
