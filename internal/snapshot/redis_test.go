package snapshot

import (
	"context"
	"testing"
	"time"

	"sluice/internal/snapshot/redistest"
)

func redisBackend(t *testing.T) *backend {
	b, _ := redisOn(t, redistest.Start(t))
	return b
}

func redisOn(t *testing.T, server *redistest.Server) (*backend, *RedisStore) {
	store, err := NewRedisStore(RedisOptions{Addresses: []string{server.Addr}, KeyPrefix: "sluice:", Ping: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	ctx := context.Background()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	return &backend{
		Store: store, records: store,
		set:     func(k Key, text string) { check(server.Client.Set(ctx, "sluice:"+k.String(), text, 0).Err()) },
		del:     func(k Key) { check(server.Client.Del(ctx, "sluice:"+k.String()).Err()) },
		outage:  server.Down,
		recover: server.Up,
	}, store
}
