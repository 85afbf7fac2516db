package snapshot

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// RedisOptions configure a RedisStore.
type RedisOptions struct {
	// Addresses are host:port, or a path of a Unix socket: of the one server;
	// of some nodes of a cluster, where they are several; of the sentinels,
	// where MasterName is set. Required.
	Addresses []string
	// MasterName is what the sentinels call the master. Empty: no sentinels.
	MasterName string
	// Username and Password are for AUTH; both may be empty. Sentinels are
	// asked without.
	Username, Password string
	// TLS, when set, is what connections are made with; there is no falling
	// back to plain text.
	TLS *tls.Config
	// KeyPrefix stands before every key, such as "sluice:".
	KeyPrefix string
	// Ping is how often the tracking connection is asked whether it is there,
	// which confirms what is held; sooner where the age limit needs it.
	// Default 250ms.
	Ping time.Duration
	// PingTimeout is after how long without an answer the tracking connection
	// counts as lost. Default 1s.
	PingTimeout time.Duration
	// PoolSize bounds the connections to a server beside the tracking one.
	// Default 8.
	PoolSize int
	// Log is for the connection's ups and downs. Default: none.
	Log *slog.Logger
}

// RedisStore keeps each record as a string value: <prefix>lease:<id> and so
// on, and <prefix>control. Any client may write them with SET.
//
// Reads for the cache go to the masters that are tracked and to no other: what
// nobody tells the changes of must not be taken for confirmed. Edits find
// their master as go-redis finds it.
type RedisStore struct {
	opt    RedisOptions
	client redis.UniversalClient
	// tracked reads from the tracked masters; nil: client does.
	tracked atomic.Pointer[trackedClient]
	running atomic.Pointer[gather] // the masters that are tracked, or were last
}

// trackedClient is a client for one set of masters.
type trackedClient struct {
	redis.UniversalClient
	routes func(*topology) // nil: it needs none
}

// Bounds of one call. A Redis that is frozen, not down, answers nothing: what
// waits for it must be let go.
const (
	redisDial = 400 * time.Millisecond
	redisCall = 300 * time.Millisecond
)

// NewRedisStore returns a store; it connects to nothing yet. Close it when
// nothing uses it any more.
func NewRedisStore(opt RedisOptions) (*RedisStore, error) {
	if len(opt.Addresses) == 0 {
		return nil, errors.New("redis store: no address")
	}
	if opt.Ping < 0 || opt.PingTimeout < 0 || opt.PoolSize < 0 {
		return nil, errors.New("redis store: a limit is negative")
	}
	opt.Ping = or(opt.Ping, 250*time.Millisecond)
	opt.PingTimeout = or(opt.PingTimeout, time.Second)
	opt.PoolSize = or(opt.PoolSize, 8)
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	redis.SetLogger(quiet{})
	s := &RedisStore{opt: opt}
	s.client = redis.NewUniversalClient(s.universal(opt.Addresses))
	return s, nil
}

// universal are go-redis's options for addresses.
func (s *RedisStore) universal(addresses []string) *redis.UniversalOptions {
	return &redis.UniversalOptions{
		Addrs: addresses, MasterName: s.opt.MasterName, IsClusterMode: s.cluster(),
		Dialer:   s.dialer(s.opt.TLS),
		Username: s.opt.Username, Password: s.opt.Password, TLSConfig: s.opt.TLS,
		Protocol:        2,
		DisableIdentity: true, // what a client with few rights may not say, it should not say
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
		MaxRetries:      1, // of a connection that had gone stale in the pool
		MinRetryBackoff: time.Millisecond,
		MaxRetryBackoff: 10 * time.Millisecond,
		DialTimeout:     redisDial,
		DialerRetries:   1,
		ReadTimeout:     redisCall,
		WriteTimeout:    redisCall,
		PoolTimeout:     redisCall,
		PoolSize:        s.opt.PoolSize,
		// So that a read keeps to the deadline of whoever waits for it.
		ContextTimeoutEnabled: true,
	}
}

func (s *RedisStore) cluster() bool {
	return len(s.opt.Addresses) > 1 && s.opt.MasterName == ""
}

// single are go-redis's options for one server.
func (s *RedisStore) single(address string) *redis.UniversalOptions {
	opt := s.universal([]string{address})
	opt.MasterName, opt.IsClusterMode = "", false
	return opt
}

// quiet keeps go-redis from writing to standard error: its errors come back
// from the calls.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// Close closes the connections.
func (s *RedisStore) Close() error {
	err := s.client.Close()
	if t := s.tracked.Load(); t != nil {
		err = errors.Join(err, t.Close())
	}
	return err
}

func (s *RedisStore) name(k Key) string { return s.opt.KeyPrefix + k.String() }

// key is the inverse of name.
func (s *RedisStore) key(name string) (Key, bool) {
	rest, ok := strings.CutPrefix(name, s.opt.KeyPrefix)
	if !ok {
		return Key{}, false
	}
	if rest == rebaseKey.String() {
		return rebaseKey, true
	}
	return ParseKey(rest)
}

// Read implements Store, in one round trip. No more of a value is fetched
// than tells that it is too large.
func (s *RedisStore) Read(ctx context.Context, keys []Key) ([]Value, error) {
	if t := s.tracked.Load(); t != nil {
		return s.readBy(ctx, t, keys)
	}
	return s.readBy(ctx, s.client, keys)
}

func (s *RedisStore) readBy(ctx context.Context, client redis.UniversalClient, keys []Key) ([]Value, error) {
	for _, k := range keys {
		if !k.Valid() {
			return nil, fmt.Errorf("%q is no key of a record", k)
		}
	}
	texts := make([]*redis.StringCmd, len(keys))
	ttls := make([]*redis.Cmd, len(keys))
	pipe := client.Pipeline()
	for i, k := range keys {
		texts[i] = pipe.GetRange(ctx, s.name(k), 0, MaxSigned)
		ttls[i] = pipe.Do(ctx, "PTTL", s.name(k))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	values := make([]Value, len(keys))
	for i := range keys {
		values[i] = redisValue(texts[i], ttls[i])
	}
	return values, nil
}

// redisValue reads the two answers. Only PTTL says that there is nothing:
// GETRANGE answers an empty text then, as for an empty value.
func redisValue(text *redis.StringCmd, ttl *redis.Cmd) Value {
	odd := redis.HasErrorPrefix(text.Err(), "WRONGTYPE")
	left, isNumber := ttl.Val().(int64)
	err := ttl.Err()
	if err == nil && !isNumber {
		err = fmt.Errorf("%w: PTTL was answered with %.20q", errProtocol, ttl.Val())
	}
	if err == nil && !odd {
		err = text.Err()
	}
	switch {
	case err != nil:
		return Value{Err: err}
	case left == -2:
		return Value{}
	case odd:
		return Value{Found: true, Odd: "is no string value"}
	}
	v := Value{Found: true, Text: []byte(text.Val())}
	if left >= 0 {
		v.TTL = max(time.Duration(left)*time.Millisecond, 1)
	}
	return v
}
