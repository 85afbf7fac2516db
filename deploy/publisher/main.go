// Command publisher is the sample of a control plane's half of the record
// store: it follows a table of changes and publishes each row as a record,
// into Redis or into a directory. docs/records.md explains it.
//
// outbox.go is the sample: a file of JSON lines stands where your database's
// outbox would. rows.go is the part to rewrite: which of your columns is which
// field of a record. publish.go, redis.go and directory.go are the pattern to
// keep: publish the newest version of each row, compare before setting, and
// never put an older version over a newer one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "publisher: %v\n", err)
		os.Exit(1) //nolint:gocritic // stop only restores signals
	}
}

func run(ctx context.Context, args []string, log io.Writer) error {
	flags := flag.NewFlagSet("publisher", flag.ContinueOnError)
	from := flags.String("from", "", "file of JSON lines with the changes")
	to := flags.String("to", "", "redis://[user:password@]host:port/0, or a directory")
	prefix := flags.String("prefix", "sluice:", "the gateways' store.redis.key_prefix")
	once := flags.Bool("once", false, "publish what there is and exit")
	poll := flags.Duration("poll", 100*time.Millisecond, "time between two looks at the changes")
	resync := flags.Duration("resync", time.Minute, "time between two comparisons of every row with the store")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: publisher -from FILE -to URL|DIRECTORY [-prefix PREFIX] [-once]\nURL is that of a Redis, such as redis://127.0.0.1:6379/0")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	store, err := openStore(*to, *prefix)
	if err != nil {
		return err
	}
	p := &publisher{
		source: &outbox{path: *from}, store: store, latest: map[key]change{}, pending: map[key]bool{},
		poll: *poll, resync: *resync, log: slog.New(slog.NewTextHandler(log, nil)),
	}
	if *once {
		return p.round(ctx)
	}
	return p.run(ctx)
}

func openStore(to, prefix string) (store, error) {
	if !strings.Contains(to, "://") {
		if to == "" {
			return nil, fmt.Errorf("-to names neither a Redis nor a directory")
		}
		return directory{to}, nil
	}
	options, err := redis.ParseURL(to)
	if err != nil {
		return nil, fmt.Errorf("-to: %w", err)
	}
	return &redisStore{redis.NewClient(options), prefix}, nil
}
