package pdp_test

import (
	"math/rand/v2"
	"slices"
)

var capabilities = []string{
	"concurrentSyncOperations", duplex, "incrementalSessionOutput", "independentControlCommands",
	"nativeSyncIn", "nativeSyncOut", "persistentProcessSessions", "reusableLeases", "runnerWebSocketIngress",
}

var liveMethods = []any{
	"environmentExecute", "environmentAcquireLease", "environmentResumeLease", "environmentReleaseLease",
	"environmentDestroyLease", "environmentSyncIn", "environmentSyncOut", "environmentRunnerIngressEndpoint",
	"duplexChannelOpen", "duplexChannelWrite", "duplexChannelStop", "duplexChannelClose",
}

// passing is a case in which every gate passes.
func passing(capability string) obj {
	granted := obj{}
	for _, c := range capabilities {
		granted[c] = true
	}
	return obj{
		"now": "2026-10-10T12:00:00Z", "phase": "open", "workersEnabled": true, "stale": false,
		"request": obj{
			"leaseId": "lease-1", "capability": capability, "environmentId": "env-1",
			"principal": obj{"subject": "agent-7", "tenantId": "acme", "roles": []any{"agent"}, "expiresAt": "2026-10-10T12:30:00Z"},
		},
		"records": obj{
			"lease": obj{
				"id": "lease-1", "tenantId": "acme", "environmentId": "env-1", "status": "active",
				"leasePolicy": "reuse_by_environment", "provider": "daytona", "providerLeaseId": "sbx-9",
				"expiresAt": "2026-10-10T13:00:00Z", "configResolution": "ok", "capabilities": fresh(granted),
				"pin":      obj{"driver": "sandbox", "pluginId": "plg-a", "driverKey": "daytona", "workerId": "wrk-a"},
				"metadata": obj{"driver": "sandbox", "sandboxProviderPlugin": true, "pluginId": "plg-a", "provider": "daytona"},
				"revision": 3,
			},
			"environment": obj{"id": "env-1", "tenantId": "acme", "driver": "sandbox", "status": "active", "revision": 1},
			"plugin": obj{
				"id": "plg-a", "pluginKey": "acme.daytona", "status": "ready", "revision": 5,
				"environmentDrivers": []any{obj{"driverKey": "daytona", "kind": "sandbox_provider", "sandboxCapabilities": fresh(granted)}},
			},
			"worker":  obj{"id": "wrk-a", "pluginId": "plg-a", "url": "http://127.0.0.1:9000", "revision": 2},
			"control": obj{"duplexEnabled": true, "suspendedTenants": []any{"globex"}, "revision": 1},
		},
		"live": obj{
			"id": "wrk-a", "pluginId": "plg-a", "status": "running", "generation": "g4",
			"supportedMethods": fresh(liveMethods),
		},
	}
}

// pool is a set of groups that a random case picks from.
type pool struct {
	groups []group
	weight int
}

func newPool(groups ...[]group) pool {
	p := pool{groups: slices.Concat(groups...)}
	for _, g := range p.groups {
		p.weight += g.weight
	}
	return p
}

func (p pool) pick(r *rand.Rand) mutation {
	at := r.IntN(p.weight)
	for _, g := range p.groups {
		if at -= g.weight; at < 0 {
			return g.mutations[r.IntN(len(g.mutations))]
		}
	}
	panic("the weights of the groups do not add up")
}

// generator yields cases; the same seed yields the same cases.
type generator struct {
	rand  *rand.Rand
	every pool // all that can be done to a case
	words pool // what leaves the records well-formed
}

func newGenerator(seed uint64) *generator {
	return &generator{
		rand:  rand.New(rand.NewPCG(seed, 0)),
		every: newPool(recordGroups, requestGroups, jointGroups, capabilityGroups, bareGroups, textGroups()),
		words: newPool(wordGroups, jointGroups, capabilityGroups),
	}
}

// generated is one case with the names of what was done to it.
type generated struct {
	line []byte
	did  []string
}

// cases are n cases: the passing ones, every mutation alone (for the duplex
// stream and for another capability in turn, or for each), and random mixtures.
func (g *generator) cases(n int) []generated {
	cases := make([]generated, 0, n)
	for _, capability := range capabilities {
		cases = append(cases, mutate(capability))
	}
	turn := 0
	alone := func(m mutation, forEach bool) {
		turn++
		for i, capability := range capabilities {
			if forEach || capability == duplex || i == turn%len(capabilities) {
				cases = append(cases, mutate(capability, m))
			}
		}
	}
	for _, m := range sizes() {
		alone(m, false)
	}
	for _, group := range g.every.groups {
		for _, m := range group.mutations {
			alone(m, group.forEach)
		}
	}
	for len(cases) < n {
		cases = append(cases, g.mixture())
	}
	return cases
}

func mutate(capability string, mutations ...mutation) generated {
	c := passing(capability)
	var did []string
	for _, m := range mutations {
		m.apply(c)
		did = append(did, m.name)
	}
	return generated{encode(c), did}
}

// mixture is a case with one to four mutations. One that leaves the records
// well-formed is as likely as any other, else most would end at gate 6.
func (g *generator) mixture() generated {
	capability := capabilities[g.rand.IntN(len(capabilities))]
	if g.rand.IntN(3) == 0 {
		capability = duplex
	}
	var mutations []mutation
	for range g.rand.IntN(4) + 1 {
		from := g.every
		if g.rand.IntN(3) > 0 {
			from = g.words
		}
		mutations = append(mutations, from.pick(g.rand))
	}
	return mutate(capability, mutations...)
}
