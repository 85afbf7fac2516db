package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sluice/internal/channel"
	"sluice/internal/proxy"
	"sluice/internal/worker"
	"time"
)

// workerDialer gives the dialer's errors the data plane's kinds.
type workerDialer struct{ http1, http2 *worker.Dialer }

func (d workerDialer) DialAddress(ctx context.Context, url, address string) (net.Conn, error) {
	return dialed(d.http1.DialAddress(ctx, url, address))
}

func (d workerDialer) DialHTTP2(ctx context.Context, url, address string) (net.Conn, error) {
	return dialed(d.http2.DialAddress(ctx, url, address))
}

func dialed(conn net.Conn, err error) (net.Conn, error) {
	switch {
	case errors.Is(err, worker.ErrForbidden):
		return nil, fmt.Errorf("%w: %w", proxy.ErrForbidden, err)
	case errors.Is(err, worker.ErrTimeout):
		return nil, fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return conn, err
}

// workerGrace is how long channels may rest on a worker that is lost: the rest
// of the bound is for their end.
func workerGrace(cfg *Config) time.Duration { return cfg.Channels.RevocationBound * 7 / 10 }

func channelLimits(cfg *Config) channel.Limits {
	c := cfg.Channels
	return channel.Limits{
		RevocationBound: c.RevocationBound, RecheckInterval: c.RecheckInterval, IdleTimeout: c.IdleTimeout,
		MaxLifetime: c.MaxLifetime, MaxMessageBytes: int64(c.MaxMessageBytes),
		MaxOpen: c.MaxOpen, MaxPerLease: c.MaxPerLease, MaxPerTenant: c.MaxPerTenant,
	}
}

func proxySettings(cfg *Config) proxy.Settings {
	s := proxy.Settings{
		AllowedHosts: cfg.Listen.AllowedHosts, AllowedOrigins: cfg.Identity.AllowedOrigins,
		OpenRate: cfg.Channels.OpenRatePerCaller, HandshakeTimeout: cfg.Workers.HandshakeTimeout, CloseGrace: cfg.Channels.CloseGrace,
	}
	for _, p := range cfg.Listen.TrustedProxies {
		s.TrustedProxies = append(s.TrustedProxies, netip.Prefix(p))
	}
	for _, r := range cfg.Routes {
		s.Routes = append(s.Routes, proxy.Route{
			Path: r.Path, Capability: r.Capability, Kind: r.Kind, Methods: r.Methods, LeaseHeader: r.LeaseHeader, Upgrade: r.Upgrade,
		})
	}
	return s
}

func staticWorkers(cfg *Config) []worker.StaticWorker {
	var out []worker.StaticWorker
	for _, w := range cfg.Workers.Static {
		out = append(out, worker.StaticWorker{ID: w.ID, PluginID: w.PluginID, URL: w.URL, Methods: w.Methods})
	}
	return out
}
