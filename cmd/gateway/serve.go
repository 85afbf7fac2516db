package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

type serveCommand struct {
	configFlags
}

// Run serves until it is told to end: the first SIGTERM or SIGINT drains, the
// second ends at once.
func (c *serveCommand) Run(a *app) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	log, err := newLog(cfg.Telemetry.Log, a.stderr)
	if err != nil {
		return err
	}
	ctx, cut, release := untilTold(a.ctx)
	defer release()
	g, err := newGateway(ctx, cfg, a.stdout, log)
	if err != nil {
		return wrongUsage("%w", err)
	}
	logWarnings(log, cfg)
	g.load = c.load
	return g.run(ctx, cut)
}

// untilTold returns a context that the first signal ends, and one that the
// second does.
func untilTold(parent context.Context) (first, second context.Context, release func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	first, drain := context.WithCancel(parent)
	second, cut := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		for _, end := range []func(){drain, cut} {
			select {
			case <-signals:
				end()
			case <-done:
				return
			}
		}
	}()
	return first, second, func() {
		signal.Stop(signals)
		close(done)
		drain()
		cut()
	}
}

// newLog is the process's own log, on standard error; decisions are on
// standard output.
func newLog(cfg LogConfig, out io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Level)); err != nil {
		return nil, wrongUsage("telemetry.log.level: %w", err)
	}
	options := &slog.HandlerOptions{Level: level}
	if cfg.Format == "text" {
		return slog.New(slog.NewTextHandler(out, options)), nil
	}
	return slog.New(slog.NewJSONHandler(out, options)), nil
}
