package main

import (
	"sluice/internal/worker/sample"
	"strings"
	"testing"
	"time"
)

func TestAGrantedChannelEchoes(t *testing.T) {
	s := newScene(t).start()
	conn := s.open("alice", "lease-1")
	s.echo(conn, strings.Repeat("x", 20000))
}

// The words that the field's best-known platform uses, to the letter.
func TestTheTwoRefusalsOfTheFieldWordForWord(t *testing.T) {
	s := newScene(t)
	s.lease("lease-no-capability", fields{"capabilities": nil})
	s.lease("lease-no-plugin", fields{"metadata": nil})
	s.start()
	before := s.worker.Counts()

	p, answer := s.refused("alice", "lease-no-capability")
	if answer.StatusCode != 403 || p.Code != "DUPLEX_CHANNEL_CAPABILITY_DENIED" || p.Title != "Sandbox lease does not grant the duplex command stream capability." {
		t.Errorf("answered %d %+v", answer.StatusCode, p)
	}
	if p.DecisionID == "" || p.Retryable || p.Type != "urn:sluice:error:DUPLEX_CHANNEL_CAPABILITY_DENIED" || !answer.Close {
		t.Errorf("answered %+v", p)
	}
	if reason := s.decision(p.DecisionID).Result.Reason; reason != "LEASE_NOT_OPTED_IN" {
		t.Errorf("recorded %s", reason)
	}
	p, answer = s.refused("alice", "lease-no-plugin")
	if answer.StatusCode != 403 || p.Code != "DUPLEX_CHANNEL_UNSUPPORTED" || p.Title != "Sandbox driver does not support duplex channels for this lease." {
		t.Errorf("answered %d %+v", answer.StatusCode, p)
	}
	if after := s.worker.Counts(); after != before {
		t.Errorf("the worker accepted: before %+v, after %+v", before, after)
	}
}

func TestEveryCauseEndsTheChannelAndNotItsNeighbour(t *testing.T) {
	for name, row := range map[string]struct {
		change    func(*scene)
		code      int
		reason    string
		neighbour bool // stays
	}{
		"the lease is revoked":        {func(s *scene) { s.lease("lease-1", fields{"status": "revoked", "revision": 2}) }, 1008, "DUPLEX_CHANNEL_CAPABILITY_DENIED", true},
		"the lease loses its opt-in":  {func(s *scene) { s.lease("lease-1", fields{"capabilities": nil, "revision": 2}) }, 1008, "DUPLEX_CHANNEL_CAPABILITY_DENIED", true},
		"the lease goes to another":   {func(s *scene) { s.lease("lease-1", fields{"tenantId": "globex", "revision": 2}) }, 1008, "DUPLEX_CHANNEL_CAPABILITY_DENIED", true},
		"the lease becomes malformed": {func(s *scene) { s.put("lease", "lease-1", "{") }, 1008, "DUPLEX_CHANNEL_CAPABILITY_DENIED", true},
		"the lease goes back":         {func(s *scene) { s.lease("lease-1", fields{"revision": 0}) }, 1008, "DUPLEX_CHANNEL_CAPABILITY_DENIED", true},
		"the lease's pin moves": {func(s *scene) {
			s.lease("lease-1", fields{"pin": fields{"driver": "sandbox", "pluginId": "plg-a", "driverKey": "box", "workerId": "wrk-b"}, "revision": 2})
		}, 1014, "WORKER_UNAVAILABLE", true},
		"the plugin is disabled": {func(s *scene) { s.put("plugin", "plg-a", `{"id": "plg-a", "status": "disabled", "revision": 2}`) }, 1008, "DUPLEX_CHANNEL_CAPABILITY_DENIED", false},
		"the tenant is suspended": {func(s *scene) {
			s.put("control", "", `{"duplexEnabled": true, "suspendedTenants": ["acme"], "revision": 2}`)
		}, 1008, "DUPLEX_CHANNEL_CAPABILITY_DENIED", false},
		"the kill switch is thrown": {func(s *scene) { s.put("control", "", `{"duplexEnabled": false, "revision": 2}`) }, 1008, "DUPLEX_CHANNEL_CAPABILITY_DENIED", false},
		"the worker loses a method": {func(s *scene) {
			s.worker.Update(func(d *sample.Document) { d.SupportedMethods = d.SupportedMethods[:7] })
		}, 1008, "DUPLEX_CHANNEL_CAPABILITY_DENIED", false},
		"the worker is another process": {func(s *scene) { s.worker.Update(func(d *sample.Document) { d.Generation = "g2" }) }, 1014, "WORKER_UNAVAILABLE", false},
		"the worker stops":              {func(s *scene) { s.worker.Update(func(d *sample.Document) { d.Status = "stopping" }) }, 1014, "WORKER_UNAVAILABLE", false},
		"the credential is withdrawn":   {func(s *scene) { s.write("tokens.yaml", "[]\n") }, 1008, "UNAUTHENTICATED", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t).start()
			mine, neighbour := s.open("alice", "lease-1"), s.open("alice", "lease-2")
			row.change(s)
			if row.neighbour {
				e := closed(t, mine)
				if int(e.Code) != row.code || !strings.HasPrefix(e.Reason, row.reason+" ") {
					t.Errorf("closed with %d %q", e.Code, e.Reason)
				}
				s.echo(neighbour, "still here")
				if ended := s.ended("lease-1").Custom.Sluice.Ended; !ended.Opened || ended.CloseCode != row.code || ended.MessagesToWorker != 1 {
					t.Errorf("recorded %+v", ended)
				}
				return
			}
			if e := closed(t, mine); int(e.Code) != row.code || !strings.HasPrefix(e.Reason, row.reason+" ") {
				t.Errorf("closed with %d %q", e.Code, e.Reason)
			}
			if e := closed(t, neighbour); int(e.Code) != row.code {
				t.Errorf("the other channel of the same cause closed with %d %q", e.Code, e.Reason)
			}
		})
	}
}

func TestWhatChangesNoVerdictClosesNothing(t *testing.T) {
	s := newScene(t).start()
	conn := s.open("alice", "lease-1")
	for _, change := range []struct {
		name string
		make func()
	}{
		{"an identical rewrite", func() { s.lease("lease-1", nil) }},
		{"a label", func() {
			s.lease("lease-1", fields{"metadata": fields{"sandboxProviderPlugin": true, "label": "x"}, "revision": 5})
		}},
		{"an unrelated lease", func() { s.lease("lease-3", nil) }},
		{"a worker's new method", func() {
			s.worker.Update(func(d *sample.Document) { d.SupportedMethods = append(d.SupportedMethods, "more") })
		}},
	} {
		change.make()
		time.Sleep(50 * time.Millisecond) // a wrong end would come in this time
		s.echo(conn, change.name)
	}
}
