package main

import (
	"net"
	"sluice/internal/snapshot"
)

// ownAddresses are where no worker can be: the gateway's own listeners, and
// its store. A record must not point a caller's channel at them.
func (g *gateway) ownAddresses() []string {
	own := []string{g.data.Addr().String(), g.probes.Addr().String(), g.operators.Addr().String()}
	if g.config.Store.Type == "redis" {
		own = append(own, g.config.Store.Redis.Addresses...)
	}
	return own
}

// storeAddresses are those of the store's servers that sentinels or a cluster
// name; the configured ones may be others.
func (g *gateway) storeAddresses() (found []string) {
	several, ok := g.store.(interface {
		Servers() []snapshot.ServerStatus
	})
	if !ok {
		return nil
	}
	for _, server := range several.Servers() {
		_, port, err := net.SplitHostPort(server.Name) // no Unix socket, and no name for several
		if err == nil && port != "" && port != "0" {
			found = append(found, server.Name)
		}
	}
	return found
}
