package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// lookInterval is how often the configuration and the tokens file are looked
// at. It looks at the files themselves, so one that Kubernetes swaps behind a
// symbolic link is followed.
const lookInterval = time.Second

// watchTokens has every channel judged again when credentials changed: one
// that was withdrawn ends its channels.
func (g *gateway) watchTokens(ctx context.Context) error {
	g.tokens.Watch(ctx, lookInterval, func(changed bool, err error) {
		if err != nil {
			g.log.Error("the changed tokens file is not usable; the last good one stays", "error", err)
		}
		if changed {
			g.log.Info("tokens were read again")
			g.register.EverythingChanged()
		}
	})
	return nil
}

// watchConfig reloads on SIGHUP and when the configuration file changed.
func (g *gateway) watchConfig(ctx context.Context) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	seen := stampOf(g.config.File)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hup:
			seen = stampOf(g.config.File)
			g.reload(ctx)
		case <-ticker.C:
			if now := stampOf(g.config.File); now != seen {
				seen = now
				g.reload(ctx)
			}
		}
	}
}

// stamp tells two states of a file apart.
type stamp struct {
	modified time.Time
	size     int64
	inode    uint64
}

func stampOf(file string) stamp {
	info, err := os.Stat(file)
	if file == "" || err != nil {
		return stamp{}
	}
	s := stamp{modified: info.ModTime(), size: info.Size()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.inode = sys.Ino
	}
	return s
}

// reload puts routes, identity, policies and limits of the changed
// configuration in force. A bad one is refused whole and the old one stays.
func (g *gateway) reload(ctx context.Context) {
	next, err := g.load()
	if err != nil {
		g.log.Error("the changed configuration is refused; the old one stays", "error", err)
		return
	}
	if err := g.tokens.ReloadFrom(next.Identity.TokensFile); err != nil {
		g.log.Error("the changed configuration is refused; the old one stays", "error", err)
		return
	}
	if err := g.policy.Reload(ctx); err != nil {
		g.log.Error("the changed policies are refused; the old ones stay", "error", err)
	}
	g.proxy.Reload(proxySettings(next))
	g.register.SetLimits(channelLimits(next))
	g.register.EverythingChanged()
	g.log.Info("the configuration was read again", "file", next.File)
}
