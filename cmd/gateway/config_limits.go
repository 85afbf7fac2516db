package main

import (
	"fmt"
	"sluice/internal/snapshot"
	"strconv"
)

// Limit is one bound that holds.
type Limit struct {
	Name  string `json:"name"`  // the configuration's, or words for a fixed one
	Value string `json:"value"` // with its unit
	Fixed bool   `json:"fixed"` // true: no configuration changes it
	Means string `json:"means"`
}

// Limits lists every limit in force, the configurable ones first.
func (c *Config) Limits() []Limit {
	return append(c.configuredLimits(), fixedLimits()...)
}

func (c *Config) configuredLimits() []Limit {
	ch, w := &c.Channels, &c.Workers
	var limits []Limit
	add := func(name string, value fmt.Stringer, means string) {
		limits = append(limits, Limit{Name: name, Value: value.String(), Means: means})
	}
	add("listen.max_header_bytes", c.Listen.MaxHeaderBytes, "a larger request head gets 431")
	add("listen.header_timeout", c.Listen.HeaderTimeout, "a slower request head is cut")
	add("store.max_age", c.Store.MaxAge, "a snapshot not confirmed for longer is stale and denies")
	add("store.verify.max_life", c.Store.Verify.MaxLife, "a record signed for longer is malformed")
	add("policies.max_age", orUnlimited(c.Policies.MaxAge, c.Policies.MaxAge == 0), "policies not refreshed for longer deny; not in this version")
	add("evaluation.timeout", c.Evaluation.Timeout, "a longer evaluation is stopped and denies; up to twice that where the machine ran something else")
	add("workers.dial_timeout", w.DialTimeout, "each step of asking or dialling a worker")
	add("workers.handshake_timeout", w.HandshakeTimeout, "a worker's answer to an upgrade")
	add("channels.revocation_bound", ch.RevocationBound, "from a change in the store to the last byte forwarded")
	add("channels.recheck_interval", ch.RecheckInterval, "between two rechecks of an open channel without a change")
	add("channels.idle_timeout", ch.IdleTimeout, "a channel without traffic ends")
	add("channels.max_lifetime", ch.MaxLifetime, "a channel ends whatever it does")
	add("channels.max_open", count(ch.MaxOpen), "open channels of this gateway; more get 503")
	add("channels.max_per_lease", count(ch.MaxPerLease), "open channels of a lease; more get 429")
	add("channels.max_per_tenant", count(ch.MaxPerTenant), "open channels of a tenant; more get 429")
	add("channels.open_rate_per_caller", count(ch.OpenRatePerCaller), "opens a second, burst twice that; more get 429")
	add("channels.max_message_bytes", orUnlimited(ch.MaxMessageBytes, ch.MaxMessageBytes == 0), "a larger message ends its channel with 1009, a gRPC call with RESOURCE_EXHAUSTED")
	add("channels.drain_delay", ch.DrainDelay, "readiness is 503 before anything is refused")
	add("channels.drain_timeout", ch.DrainTimeout, "from SIGTERM to the end of the process")
	add("channels.close_grace", ch.CloseGrace, "for a close frame before the socket is cut")
	return limits
}

func fixedLimits() []Limit {
	fixed := func(name, value, means string) Limit { return Limit{name, value, true, means} }
	return []Limit{
		fixed("record size", "256KiB", "a larger record is malformed"),
		fixed("record depth", "32", "a record nested deeper is malformed"),
		fixed("signed record size", Size(snapshot.MaxSigned).String(), "such a record in its signature; a larger one is malformed"),
		fixed("signer's clock", "5s", "a record signed further ahead of the gateway's clock is malformed"),
		fixed("live document size", "256KiB", "a larger live document is none"),
		fixed("live document age", "10s", "a stream silent for longer is down"),
		fixed("request target", "8KiB", "a longer one gets 414"),
		fixed("token size", "4KiB", "a longer token is no credential"),
		fixed("close reason", "123 bytes", "of a WebSocket close frame"),
		fixed("custom reasons", "16 of 128 bytes", "more are left out, longer ones replaced"),
		fixed("configuration size", Size(maxConfigBytes).String(), "a larger file is refused"),
	}
}

type count int

func (c count) String() string { return strconv.Itoa(int(c)) }

type unlimited struct{}

func (unlimited) String() string { return "no limit" }

func orUnlimited(value fmt.Stringer, none bool) fmt.Stringer {
	if none {
		return unlimited{}
	}
	return value
}
