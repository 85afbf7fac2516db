package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// A tenant is compared byte by byte, and what looks like a pattern, a list or
// another spelling of one is another tenant.
func TestATenantIsItsExactName(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	odd := []string{"*", ".*", "%", "acme,globex", `["acme"]`, "Acme", "ACME", "acme ", "ac\u0327me", "acm\u00e9", "acme\u0301"}
	for i, tenant := range odd {
		s.lease(fmt.Sprint("lease-odd-", i), fields{"tenantId": tenant})
	}
	s.start()
	for i, tenant := range odd {
		if p, answer := s.refused("alice", fmt.Sprint("lease-odd-", i)); answer.StatusCode != 403 {
			t.Errorf("%q: answered %d %+v", tenant, answer.StatusCode, p)
		}
	}
	if counts := s.worker.Counts(); counts.Connections != 0 {
		t.Errorf("the worker was contacted: %+v", counts)
	}
}

// A guess of an id opens nothing, and all guesses count as one thing.
func TestGuessedIDsOpenNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.lease("lease-500", fields{"tenantId": "globex"})
	s.start(`channels: {open_rate_per_caller: 100000}`)
	before := len(s.metricLines("sluice_"))
	for i := range 1000 {
		if p, answer := s.refused("alice", fmt.Sprint("lease-", 100+i)); answer.StatusCode != 403 || p.Code != "DUPLEX_CHANNEL_CAPABILITY_DENIED" {
			t.Fatalf("lease-%d: answered %d %+v", 100+i, answer.StatusCode, p)
		}
	}
	if grown := len(s.metricLines("sluice_")) - before; grown > 40 {
		t.Errorf("%d metrics came with the guesses", grown)
	}
}

// What is asked for is the route's capability, never the method's: a lease that
// may only be read opens no duplex channel, though its handshake is a GET.
func TestTheRouteNamesTheCapabilityAndNotTheMethod(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.lease("lease-read", fields{"capabilities": fields{"incrementalSessionOutput": true}})
	s.start()
	if answer := s.get("alice", "/v1/leases/lease-read/output"); answer.StatusCode != 200 {
		t.Errorf("output was answered %d", answer.StatusCode)
	}
	before := s.worker.Counts().Connections
	if p, answer := s.refused("alice", "lease-read"); answer.StatusCode != 403 || p.Code != "DUPLEX_CHANNEL_CAPABILITY_DENIED" {
		t.Errorf("duplex was answered %d %+v", answer.StatusCode, p)
	}
	if after := s.worker.Counts().Connections; after != before {
		t.Errorf("the worker accepted %d connections more", after-before)
	}
}

// Two tenants at once, each on its own lease: nobody hears the other.
func TestTenantsAtOnceHearOnlyThemselves(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.lease("lease-globex", fields{"tenantId": "globex"})
	s.start(`channels: {open_rate_per_caller: 100000, max_per_lease: 1000}`)
	mine := map[string]string{"alice": "lease-1", "bob": "lease-globex"}
	var all sync.WaitGroup
	for caller, own := range mine {
		for range 10 {
			all.Go(func() {
				for i := range 25 {
					conn, _, err := s.connect(caller, own)
					if err != nil {
						t.Errorf("%s: %v", caller, err)
						return
					}
					ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
					said := strings.Repeat(fmt.Sprintf("%s says %d;", caller, i), 100)
					err = conn.Write(ctx, websocket.MessageText, []byte(said))
					if _, heard, readErr := conn.Read(ctx); err != nil || readErr != nil || string(heard) != said {
						t.Errorf("%s heard %.40q: %v %v", caller, heard, err, readErr)
					}
					cancel()
					_ = conn.CloseNow()
				}
			})
		}
		for other, lease := range mine {
			if other == caller {
				continue
			}
			all.Go(func() {
				for range 50 {
					if conn, _, err := s.connect(caller, lease); err == nil {
						t.Errorf("%s got %s", caller, lease)
						_ = conn.CloseNow()
					}
				}
			})
		}
	}
	all.Wait()
}

func (s *scene) metricLines(prefix string) (lines []string) {
	for line := range strings.Lines(s.metrics()) {
		if strings.HasPrefix(line, prefix) {
			lines = append(lines, line)
		}
	}
	return lines
}
