package main

import (
	"sluice/internal/authz"
	"time"
)

// defaultConfig is what holds where nothing is said: loopback listeners, the
// file store, and nobody known, so that everything is refused.
func defaultConfig() *Config {
	return &Config{
		Listen: ListenConfig{
			Address:        "127.0.0.1:8080",
			MaxHeaderBytes: 64 << 10,
			HeaderTimeout:  5 * time.Second, // ends a peer that sends its head a byte at a time
		},
		Probes:   ProbesConfig{Address: "127.0.0.1:8283"},
		Admin:    AdminConfig{Address: "127.0.0.1:8282"},
		Store:    defaultStore(),
		Workers:  defaultWorkers(),
		Routes:   defaultRoutes(),
		Channels: defaultChannels(),
		// Ends a rule that runs away, so that it cannot hold an evaluator.
		Evaluation: EvaluationConfig{Timeout: 50 * time.Millisecond},
		Telemetry: TelemetryConfig{
			ServiceName: "sluice",
			Log:         LogConfig{Level: "info", Format: "json", Decisions: true},
		},
	}
}

func defaultStore() StoreConfig {
	return StoreConfig{
		Type:   "file",
		File:   FileStoreConfig{Dir: "./records"},
		Redis:  RedisConfig{Addresses: []string{"127.0.0.1:6379"}, KeyPrefix: "sluice:"},
		MaxAge: 10 * time.Second, // ends a store that was cut off so that a revocation is not seen
		Verify: VerifyConfig{MaxLife: time.Hour},
	}
}

func defaultWorkers() WorkersConfig {
	return WorkersConfig{
		Link:      "auto",
		ProbePath: "/v1/worker",
		// Loopback alone: whoever can write a worker record must not be able
		// to point the gateway at the network around it.
		Allow:            []string{"127.0.0.0/8", "::1/128"},
		DialTimeout:      2 * time.Second,
		HandshakeTimeout: 10 * time.Second,
	}
}

func defaultRoutes() []RouteConfig {
	const lease = "/v1/leases/{lease}"
	return []RouteConfig{
		{Path: lease + "/duplex", Capability: "duplexCommandStream", Kind: authz.Duplex},
		{Path: lease + "/runner", Capability: "runnerWebSocketIngress", Kind: authz.Duplex},
		{Path: lease + "/execute", Capability: "independentControlCommands", Kind: authz.PlainRequest, Methods: []string{"POST"}},
		{Path: lease + "/output", Capability: "incrementalSessionOutput", Kind: authz.Stream, Methods: []string{"GET"}},
		{Path: lease + "/sync/in", Capability: "nativeSyncIn", Kind: authz.PlainRequest, Methods: []string{"POST", "PUT"}},
		{Path: lease + "/sync/out", Capability: "nativeSyncOut", Kind: authz.PlainRequest, Methods: []string{"GET"}},
	}
}

func defaultChannels() ChannelsConfig {
	return ChannelsConfig{
		RevocationBound:   time.Second,
		RecheckInterval:   30 * time.Second,
		IdleTimeout:       time.Hour,
		MaxLifetime:       12 * time.Hour,
		MaxOpen:           10000,
		MaxPerLease:       32,
		MaxPerTenant:      2000, // one tenant alone cannot fill the gateway
		OpenRatePerCaller: 50,
		DrainDelay:        5 * time.Second,
		DrainTimeout:      25 * time.Second,
		CloseGrace:        250 * time.Millisecond, // a peer that does not read cannot keep a channel open
	}
}
