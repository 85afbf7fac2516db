package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sluice/internal/authz"
	"sync"

	"github.com/redis/go-redis/v9"
)

// editTries bounds how often an edit is tried when another came between.
const editTries = 16

// Get returns what stands under a key, or ErrNotFound.
func (s *RedisStore) Get(ctx context.Context, k Key) (*Stored, error) {
	if !k.Valid() {
		return nil, fmt.Errorf("%q: %w", k, ErrKey)
	}
	values, err := s.readBy(ctx, s.client, []Key{k})
	if err != nil {
		return nil, err
	}
	return stored(k, values[0])
}

// List returns the ids of a kind, sorted; for the control record it is one
// empty id, when there is one. Keys that are no ids are left out.
func (s *RedisStore) List(ctx context.Context, kind authz.Kind) ([]string, error) {
	if kind == authz.KindControl {
		n, err := s.client.Exists(ctx, s.name(ControlKey)).Result()
		if err != nil || n == 0 {
			return nil, err
		}
		return []string{""}, nil
	}
	var (
		mu  sync.Mutex
		ids []string
	)
	err := s.eachMaster(ctx, func(ctx context.Context, master redis.Cmdable) error {
		scan := master.Scan(ctx, 0, escapeGlob(s.opt.KeyPrefix)+string(kind)+":*", 1000).Iterator()
		for scan.Next(ctx) {
			if k, ok := s.key(scan.Val()); ok && k.Kind == kind {
				mu.Lock()
				ids = append(ids, k.ID)
				mu.Unlock()
			}
		}
		return scan.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("list records: %w", err)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// eachMaster asks every server that may hold keys, at the same time.
func (s *RedisStore) eachMaster(ctx context.Context, ask func(context.Context, redis.Cmdable) error) error {
	if c, ok := s.client.(*redis.ClusterClient); ok {
		return c.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error { return ask(ctx, master) })
	}
	return ask(ctx, s.client)
}

// escapeGlob makes a prefix stand for itself in a pattern.
func escapeGlob(s string) string {
	var out []rune
	for _, r := range s {
		if slices.Contains([]rune(`*?[]\^-`), r) {
			out = append(out, '\\')
		}
		out = append(out, r)
	}
	return string(out)
}

// Put writes a record if it is well-formed and of a newer revision than the
// stored one, or is the stored one again; and, when expect is set, only over
// that revision. It is one step for every other writer.
func (s *RedisStore) Put(ctx context.Context, k Key, text []byte, expect Expect) (*authz.Record, error) {
	return put(ctx, s, k, text, expect)
}

// Replace implements Swapper.
func (s *RedisStore) Replace(ctx context.Context, k Key, text []byte, judge func(found Value) error) error {
	return s.edit(ctx, k, judge, func(p redis.Pipeliner) { p.Set(ctx, s.name(k), text, 0) })
}

// Delete removes a record, or answers ErrNotFound.
func (s *RedisStore) Delete(ctx context.Context, k Key, expect Expect) error {
	return s.Remove(ctx, k, func(found Value) error { return checkDelete(k, found, expect) })
}

// Remove implements Swapper.
func (s *RedisStore) Remove(ctx context.Context, k Key, judge func(found Value) error) error {
	return s.edit(ctx, k, judge, func(p redis.Pipeliner) { p.Del(ctx, s.name(k)) })
}

// edit reads k, and writes when judge accepts what it found, in a transaction
// that fails when another writer came between; then it begins again.
func (s *RedisStore) edit(ctx context.Context, k Key, judge func(Value) error, write func(redis.Pipeliner)) error {
	if !k.Valid() {
		return fmt.Errorf("%q: %w", k, ErrKey)
	}
	once := func(tx *redis.Tx) error {
		text := tx.GetRange(ctx, s.name(k), 0, MaxSigned)
		ttl := redis.NewCmd(ctx, "PTTL", s.name(k))
		_ = tx.Process(ctx, ttl) // its error is in it
		if err := judge(redisValue(text, ttl)); err != nil {
			return err
		}
		_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { write(p); return nil })
		return err
	}
	var err error
	for range editTries {
		if err = s.client.Watch(ctx, once, s.name(k)); !errors.Is(err, redis.TxFailedErr) {
			return err
		}
	}
	return fmt.Errorf("%s: other writers always come between: %w", k, err)
}
