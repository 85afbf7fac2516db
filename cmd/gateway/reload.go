package main

import (
	"context"
	"os"
	"os/signal"
	"reflect"
	"slices"
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
	seen := g.config.stamp
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
// configuration in force: all of it, or, when a part is bad, none.
func (g *gateway) reload(ctx context.Context) {
	next, err := g.load()
	if err == nil {
		err = g.tokens.ReloadFrom(next.Identity.TokensFile, func() error {
			return g.policy.Reconfigure(ctx, policyOptions(next))
		})
	}
	if err != nil {
		g.log.Error("the changed configuration is refused; the old one stays", "error", err)
		return
	}
	g.proxy.Reload(proxySettings(next))
	g.register.SetLimits(channelLimits(next))
	g.links.SetGrace(workerGrace(next))
	g.channels.Store(&next.Channels)
	g.register.EverythingChanged()
	if keys := needRestart(g.config, next); len(keys) > 0 {
		g.log.Warn("these changed settings take effect at the next start", "settings", keys)
	}
	g.log.Info("the configuration was read again", "file", next.File)
}

// needRestart names the changed settings that a reload does not touch.
func needRestart(old, next *Config) (keys []string) {
	for key, values := range map[string][2]any{
		"state_dir":               {old.StateDir, next.StateDir},
		"listen.address":          {old.Listen.Address, next.Listen.Address},
		"listen.tls":              {old.Listen.TLS, next.Listen.TLS},
		"listen.max_header_bytes": {old.Listen.MaxHeaderBytes, next.Listen.MaxHeaderBytes},
		"listen.header_timeout":   {old.Listen.HeaderTimeout, next.Listen.HeaderTimeout},
		"probes":                  {old.Probes, next.Probes},
		"admin":                   {old.Admin, next.Admin},
		"policies.extra_fields":   {old.Policies.ExtraFields, next.Policies.ExtraFields},
		"store":                   {old.Store, next.Store},
		"workers":                 {old.Workers, next.Workers},
		"telemetry":               {old.Telemetry, next.Telemetry},
	} {
		if !reflect.DeepEqual(values[0], values[1]) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
