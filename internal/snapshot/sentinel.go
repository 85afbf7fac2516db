package snapshot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// sentinels are asked, again and again, which server is the master. At least
// half of those that are configured must name the same one: a sentinel that
// was cut off together with an old master goes on naming it.
type sentinels struct {
	store   *RedisStore
	clients []*redis.SentinelClient
}

func newSentinels(store *RedisStore) *sentinels {
	s := &sentinels{store: store}
	for _, address := range store.opt.Addresses {
		opt := store.single(address).Simple()
		opt.Username, opt.Password = "", ""
		opt.PoolSize, opt.MaxRetries = 1, 1
		s.clients = append(s.clients, redis.NewSentinelClient(opt))
	}
	return s
}

func (s *sentinels) close() {
	for _, c := range s.clients {
		_ = c.Close()
	}
}

// find implements tracker.find.
func (s *sentinels) find(ctx context.Context) (*layout, error) {
	address, err := s.ask(ctx)
	if err != nil {
		return nil, err
	}
	return &layout{
		masters: []string{address}, ask: []string{"ROLE"}, judge: judgeMaster,
		beside: func(ctx context.Context, part Feed) error { return s.follow(ctx, address, part) },
	}, nil
}

// follow confirms while enough sentinels name address, and returns when they
// name another, or none for as long as a ping may take.
func (s *sentinels) follow(ctx context.Context, address string, part Feed) error {
	part.Up()
	agreed := time.Now()
	for {
		start := time.Now()
		now, err := s.ask(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && now != address:
			return fmt.Errorf("the master is now %s, no longer %s", now, address)
		case err == nil:
			agreed = start
			part.Confirm(start)
		case time.Since(agreed) > s.store.opt.PingTimeout:
			return err
		}
		sleep(ctx, s.store.opt.Ping)
	}
}

// ask asks every sentinel at the same time, and returns what enough of them
// name.
func (s *sentinels) ask(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, redisDial)
	defer cancel()
	type answer struct {
		address string
		err     error
	}
	answers := make(chan answer, len(s.clients))
	for _, c := range s.clients {
		go func() {
			pair, err := c.GetMasterAddrByName(ctx, s.store.opt.MasterName).Result()
			if err == nil && len(pair) != 2 {
				err = errors.New("a sentinel names no address")
			}
			if err != nil {
				answers <- answer{err: err}
				return
			}
			answers <- answer{address: net.JoinHostPort(pair[0], pair[1])}
		}()
	}
	votes := map[string]int{}
	var errs []error
	address := ""
	for range s.clients { // all of them, so that none is left behind
		a := <-answers
		if a.err != nil {
			errs = append(errs, a.err)
			continue
		}
		if votes[a.address]++; 2*votes[a.address] >= len(s.clients) {
			address = a.address
		}
	}
	if address == "" {
		return "", fmt.Errorf("too few sentinels agree on the master %q: %w", s.store.opt.MasterName, errors.Join(errs...))
	}
	return address, nil
}
