package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// A rebase makes every running gateway forget the revisions that it has seen,
// of one record or of all: the way back after a database was restored. The
// store carries it, for it is all that gateways share: <prefix>rebase, or
// rebase.json, a list of the last ones.
//
// It forgets marks and nothing else: what was read is read again, and judged
// as if for the first time. Where records must be signed, whoever can only
// write to the store can so bring back what a key signed and is not yet
// expired, and nothing more; every gateway logs it.

// Rebase is one of them.
type Rebase struct {
	// N orders them, and only grows: nanoseconds since the epoch, at least.
	N int64 `json:"n"`
	// Record is "lease:lease-1", "control", or "*" for all.
	Record string `json:"record"`
}

// RebaseAll is Rebase.Record for every record.
const RebaseAll = "*"

// rebaseKey is where they stand. It is no key of a record.
var rebaseKey = Key{Kind: "rebase"}

const (
	maxRebases     = 64
	maxRebaseText  = 64 << 10
	rebaseAhead    = time.Hour // further ahead of our clock is nobody's doing
	rebaseAttempts = 250 * time.Millisecond
)

type rebaseList struct {
	Rebases []Rebase `json:"rebases"`
}

// parseRebases reads a list; what is none of ours is an error.
func parseRebases(text []byte) ([]Rebase, error) {
	if len(text) == 0 {
		return nil, nil
	}
	if len(text) > maxRebaseText {
		return nil, errors.New("rebases: too large")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var list rebaseList
	if err := d.Decode(&list); err != nil {
		return nil, fmt.Errorf("rebases: %w", err)
	}
	for _, r := range list.Rebases {
		if _, ok := ParseKey(r.Record); !ok && r.Record != RebaseAll {
			return nil, fmt.Errorf("rebases: %.150q is no record", r.Record)
		}
	}
	return list.Rebases, nil
}

// addRebase puts one more at the end. Those that are of no use stay out.
func addRebase(text []byte, record string, now time.Time) ([]byte, error) {
	list, err := parseRebases(text)
	if err != nil {
		list = nil // replaced: it would stop nobody but us
	}
	list = slices.DeleteFunc(list, func(r Rebase) bool { return r.N > now.Add(rebaseAhead).UnixNano() })
	n := now.UnixNano()
	for _, r := range list {
		n = max(n, r.N+1)
	}
	list = append(list, Rebase{n, record})
	list = list[max(0, len(list)-maxRebases):]
	return json.Marshal(rebaseList{list})
}

func checkRebase(record string) error {
	if _, ok := ParseKey(record); !ok && record != RebaseAll {
		return fmt.Errorf("%q: %w", record, ErrKey)
	}
	return nil
}

// Rebase has every gateway forget the revisions of a record, or of RebaseAll.
func (s *RedisStore) Rebase(ctx context.Context, record string) error {
	if err := checkRebase(record); err != nil {
		return err
	}
	name := s.name(rebaseKey)
	once := func(tx *redis.Tx) error {
		text, err := tx.Get(ctx, name).Bytes()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		if text, err = addRebase(text, record, time.Now()); err != nil {
			return err
		}
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error { p.Set(ctx, name, text, 0); return nil })
		return err
	}
	var err error
	for range editTries {
		if err = s.client.Watch(ctx, once, name); !errors.Is(err, redis.TxFailedErr) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("rebase %s: %w", record, err)
	}
	return nil
}

// Rebases returns the list.
func (s *RedisStore) Rebases(ctx context.Context) ([]Rebase, error) {
	client := s.client
	if t := s.tracked.Load(); t != nil {
		client = t
	}
	// In a pipeline, like records: for a single command a client of a cluster
	// would want the right to COMMAND.
	pipe := client.Pipeline()
	list := pipe.GetRange(ctx, s.name(rebaseKey), 0, maxRebaseText)
	_, _ = pipe.Exec(ctx) // its error is in the command
	text, err := list.Bytes()
	if err != nil {
		return nil, err
	}
	return parseRebases(text)
}

func (s *FileStore) rebasePath() string { return filepath.Join(s.opt.Dir, "rebase.json") }

// Rebase has every gateway forget the revisions of a record, or of RebaseAll.
func (s *FileStore) Rebase(_ context.Context, record string) error {
	if err := checkRebase(record); err != nil {
		return err
	}
	unlock, err := s.lock()
	if err != nil {
		return fmt.Errorf("rebase %s: %w", record, err)
	}
	defer unlock()
	found := readFile(s.rebasePath())
	text, err := addRebase(found.Text, record, time.Now())
	if err = errors.Join(found.Err, err); err == nil {
		err = writeFile(s.rebasePath(), text)
	}
	if err != nil {
		return fmt.Errorf("rebase %s: %w", record, err)
	}
	return nil
}

// Rebases returns the list.
func (s *FileStore) Rebases(context.Context) ([]Rebase, error) {
	v := readFile(s.rebasePath())
	if v.Err != nil || v.Odd != "" {
		return nil, errors.Join(v.Err, os.ErrInvalid)
	}
	return parseRebases(v.Text)
}

// rebases reads the list whenever it may have changed, and does what is new in
// it.
func (c *Cache) rebases(ctx context.Context) {
	store, ok := c.opt.Store.(interface {
		Rebases(ctx context.Context) ([]Rebase, error)
	})
	if !ok {
		return
	}
	complained := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.rebase:
		}
		readCtx, cancel := context.WithTimeout(ctx, readTimeout)
		list, err := store.Rebases(readCtx)
		cancel()
		if err != nil {
			if ctx.Err() == nil && err.Error() != complained {
				c.opt.Log.Warn("what is to be rebased cannot be read", "error", err)
				complained = err.Error()
			}
			sleep(ctx, rebaseAttempts)
			signal(c.rebase)
			continue
		}
		complained = ""
		c.forgetAsTold(list)
	}
}

// forgetAsTold does the rebases that were not done yet.
func (c *Cache) forgetAsTold(list []Rebase) {
	c.mu.Lock()
	defer c.mu.Unlock()
	newest, all := c.rebased, false
	latest := time.Now().Add(rebaseAhead).UnixNano()
	for _, r := range list {
		if r.N <= c.rebased || r.N > latest {
			continue
		}
		newest = max(newest, r.N)
		c.opt.Log.Warn("the revisions that were seen are forgotten, as records rebase asks", "record", r.Record, "rebase", r.N)
		if r.Record == RebaseAll {
			all = true
			continue
		}
		k, _ := ParseKey(r.Record)
		c.forget(k)
	}
	if all {
		c.forgetAll()
	}
	if newest > c.rebased {
		c.rebased = newest
		if c.opt.Marks != nil {
			c.opt.Marks.rebased(newest)
		}
	}
}

// forget drops the mark of a record and has it read again.
func (c *Cache) forget(k Key) {
	c.marks.take(k)
	if c.opt.Marks != nil {
		c.opt.Marks.raise(nameOf(k), mark{})
	}
	if e := c.entries[k]; e != nil {
		e.mark, e.owner = mark{}, ""
		c.changed(e)
	}
}

// forgetAll drops every mark, and begins another epoch.
func (c *Cache) forgetAll() {
	c.marks = newMarks(c.marks.limit)
	if c.opt.Marks != nil {
		c.opt.Marks.forget()
	}
	for _, e := range c.entries {
		e.mark, e.owner = mark{}, ""
	}
	if c.up {
		c.begin()
	}
}
