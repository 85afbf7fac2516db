package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"sluice/internal/authz"
)

// StaticWorker is one worker as the operator describes it (workers.static).
type StaticWorker struct {
	ID       string   // an id
	PluginID string   // an id
	URL      string   // as in a worker record
	Methods  []string // what it is said to implement
}

// StaticGeneration is the generation of every static worker.
const StaticGeneration = "static"

// staticWorker is what the operator's word stands for.
type staticWorker struct {
	record *authz.Record // in place of the store's
	live   *authz.Live   // while a connection made for the request stands
}

func staticWorkers(mode Mode, list []StaticWorker) (map[string]*staticWorker, error) {
	if mode != Static {
		return nil, nil
	}
	byID := make(map[string]*staticWorker, len(list))
	for i, entry := range list {
		w, err := entry.build()
		if err != nil {
			return nil, fmt.Errorf("static worker %d: %w", i+1, err)
		}
		if byID[entry.ID] != nil {
			return nil, fmt.Errorf("static worker %d: the id %s is there twice", i+1, entry.ID)
		}
		byID[entry.ID] = w
	}
	return byID, nil
}

func (w StaticWorker) build() (*staticWorker, error) {
	if !authz.ValidID(w.ID) || !authz.ValidID(w.PluginID) {
		return nil, fmt.Errorf("id %q and pluginId %q must be ids", w.ID, w.PluginID)
	}
	if _, err := ParseURL(w.URL); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(map[string]any{"id": w.ID, "pluginId": w.PluginID, "url": w.URL, "revision": 0})
	if err != nil {
		return nil, fmt.Errorf("write worker %s as a record: %w", w.ID, err)
	}
	return &staticWorker{
		record: &authz.Record{Kind: authz.KindWorker, ID: w.ID, JSON: raw, PluginID: w.PluginID, URL: w.URL},
		live: &authz.Live{
			ID: w.ID, PluginID: w.PluginID, Status: "running", Generation: StaticGeneration,
			SupportedMethods: append([]string(nil), w.Methods...), Static: true,
		},
	}, nil
}

// Override answers for the store: with link: static, a worker's record is
// the operator's, or there is none. For every other kind and mode the second
// result is false, and the store's record counts.
func (s *Links) Override(kind authz.Kind, id string) (*authz.Record, bool) {
	if s.o.Mode != Static || kind != authz.KindWorker {
		return nil, false
	}
	if w := s.static[id]; w != nil {
		return w.record, true
	}
	return nil, true
}

// staticLive is the operator's document where a connection made for this
// request stands, or the request's channel is on one: that connection tells
// of its own end.
func (s *Links) staticLive(req *authz.Request, worker *authz.Record) *authz.Live {
	w := s.static[worker.ID]
	connected := req.Conn != nil || req.Channel != nil && req.Channel.WorkerID == worker.ID
	if w == nil || worker.URL != w.record.URL || !connected {
		return nil
	}
	return w.live
}

// staticAsk connects to the worker and leaves the connection in req.
func (s *Links) staticAsk(ctx context.Context, req *authz.Request, worker *authz.Record) (*authz.Live, error) {
	w := s.static[worker.ID]
	if w == nil || worker.URL != w.record.URL {
		return nil, fmt.Errorf("worker %s is not one of the operator's", worker.ID)
	}
	if req.Conn == nil {
		conn, err := s.o.Dialer.DialContext(ctx, worker.URL)
		if err != nil {
			return nil, fmt.Errorf("ask worker %s: %w", worker.ID, err)
		}
		req.Conn = conn
	}
	return w.live, nil
}
