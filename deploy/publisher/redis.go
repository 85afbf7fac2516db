package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisStore keeps each record in a key of its own, where the gateways look.
// That a record was removed stands beside them, under keys that no gateway
// follows.
type redisStore struct {
	client *redis.Client
	prefix string
}

// remembered is for how long a removal is remembered: longer than a change may
// be under way.
const remembered = 30 * 24 * time.Hour

func (s *redisStore) name(k key) string    { return s.prefix + k.String() }
func (s *redisStore) removed(k key) string { return "removed:" + s.prefix + k.String() }

func (s *redisStore) put(ctx context.Context, k key, revision int64, text []byte) error {
	return s.edit(ctx, k, revision, text, func(p redis.Pipeliner) {
		p.Set(ctx, s.name(k), text, 0)
		p.Del(ctx, s.removed(k))
	})
}

func (s *redisStore) remove(ctx context.Context, k key, revision int64) error {
	return s.edit(ctx, k, revision, nil, func(p redis.Pipeliner) {
		p.Set(ctx, s.removed(k), revision, remembered)
		p.Del(ctx, s.name(k))
	})
}

// edit compares and sets. WATCH makes the transaction fail when anybody, also
// a plain SET, came between; then it is tried again.
func (s *redisStore) edit(ctx context.Context, k key, revision int64, text []byte, write func(redis.Pipeliner)) error {
	once := func(tx *redis.Tx) error {
		values, err := tx.MGet(ctx, s.name(k), s.removed(k)).Result()
		if err != nil {
			return err
		}
		needed, err := judge(stored{text: bytesOf(values[0]), removed: bytesOf(values[1])}, revision, text)
		if err != nil || !needed {
			return err
		}
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error { write(p); return nil })
		return err
	}
	for {
		err := s.client.Watch(ctx, once, s.name(k), s.removed(k))
		if !errors.Is(err, redis.TxFailedErr) {
			if err != nil {
				err = fmt.Errorf("publish %s: %w", k, err)
			}
			return err
		}
	}
}

func bytesOf(value any) []byte {
	if text, ok := value.(string); ok {
		return []byte(text)
	}
	return nil
}
