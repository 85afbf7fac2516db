package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// store takes records. put and remove compare and set in one step for every
// other writer that does the same, and change nothing when judge says so. An
// error that is none of judge's says that the store could not be reached.
type store interface {
	put(ctx context.Context, k key, revision int64, text []byte) error
	remove(ctx context.Context, k key, revision int64) error
}

// publisher keeps the store at the newest version of every row.
type publisher struct {
	source interface{ next() ([]change, error) }
	store  store
	poll   time.Duration
	resync time.Duration
	log    *slog.Logger

	latest  map[key]change
	pending map[key]bool // what the store may not have yet
}

// run publishes until ctx is done. A store that is out of reach is tried again
// at every look.
func (p *publisher) run(ctx context.Context) error {
	look, compare := time.NewTicker(p.poll), time.NewTicker(p.resync)
	defer look.Stop()
	defer compare.Stop()
	for {
		if err := p.round(ctx); err != nil && ctx.Err() == nil {
			p.log.Error("not everything is published", "waiting", len(p.pending), "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		case <-compare.C: // what was flushed or lost comes back
			for k := range p.latest {
				p.pending[k] = true
			}
		}
	}
}

// round publishes what is new.
func (p *publisher) round(ctx context.Context) error {
	changes, faults := p.source.next()
	for _, c := range changes {
		p.take(c)
	}
	for _, k := range slices.SortedFunc(maps.Keys(p.pending), func(a, b key) int { return strings.Compare(a.String(), b.String()) }) {
		err := p.publish(ctx, p.latest[k])
		switch {
		case err == nil, errors.Is(err, errOlder): // another publisher was faster
		case errors.Is(err, errConflict):
			faults = errors.Join(faults, err)
		default:
			return errors.Join(faults, err)
		}
		delete(p.pending, k)
	}
	return faults
}

// take keeps a change when it is the newest of its row.
func (p *publisher) take(c change) {
	k, _, err := record(c)
	if err != nil {
		p.log.Error("a row that cannot be published; its record is removed, which denies", "error", err)
		if k == (key{}) {
			return // no gateway can ask for it
		}
	}
	if before, known := p.latest[k]; known && before.Version > c.Version {
		return
	}
	p.latest[k] = c
	p.pending[k] = true
}

func (p *publisher) publish(ctx context.Context, c change) error {
	k, text, err := record(c)
	if err != nil || text == nil {
		return p.store.remove(ctx, k, c.Version)
	}
	return p.store.put(ctx, k, c.Version, text)
}

var (
	errOlder    = errors.New("the store has a newer version")
	errConflict = errors.New("the store has another record of the same version: a row was changed without raising its version")
)

// stored is what a store holds of a key: a record, or the version at which it
// was removed. A removal is remembered, or an older change that comes late
// would bring the record back.
type stored struct {
	text    []byte
	removed []byte // the version, in digits
}

// judge says whether a change is to be written: text is nil for a removal.
func judge(s stored, revision int64, text []byte) (write bool, err error) {
	newest, isRemoval := int64(-1), false
	if s.text != nil {
		newest = revisionOf(s.text)
	}
	var at int64
	if _, err := fmt.Sscan(string(s.removed), &at); err == nil && at >= newest {
		newest, isRemoval = at, true
	}
	switch {
	case revision < newest:
		return false, errOlder
	case revision > newest:
		return true, nil
	case text == nil && isRemoval:
		return s.text != nil, nil
	case text != nil && !isRemoval && equal(s.text, text):
		return false, nil
	}
	return false, errConflict
}

// revisionOf is -1 for what is no record: anything is better.
func revisionOf(text []byte) int64 {
	var doc struct {
		Revision *int64 `json:"revision"`
	}
	if err := json.Unmarshal(text, &doc); err != nil || doc.Revision == nil {
		return -1
	}
	return *doc.Revision
}

// equal compares values, not spellings.
func equal(a, b []byte) bool {
	var values [2]any
	for i, text := range [][]byte{a, b} {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&values[i]); err != nil {
			return false
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}
