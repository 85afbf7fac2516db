package main

import (
	"fmt"
	"log/slog"
	"sluice/internal/snapshot"
)

// openMarks returns where revision marks outlive a restart; nil where
// state_dir is not configured.
func openMarks(cfg *Config, log *slog.Logger) (*snapshot.MarkLog, error) {
	if cfg.StateDir == "" {
		return nil, nil
	}
	marks, err := snapshot.OpenMarkLog(snapshot.MarkLogOptions{Dir: cfg.StateDir, Log: log})
	if err != nil {
		return nil, fmt.Errorf("state_dir: %w", err)
	}
	return marks, nil
}

// marksStatus is what /readyz?verbose says of them. It never makes the gateway
// not ready: a disk that is full everywhere must not end everything.
func (g *gateway) marksStatus() map[string]any {
	switch {
	case g.marks == nil:
		return map[string]any{"kept": false, "error": "state_dir is not configured"}
	case g.marks.Err() != nil:
		return map[string]any{"kept": false, "error": g.marks.Err().Error()}
	}
	return map[string]any{"kept": true}
}

func (g *gateway) marksKept() bool { return g.marks != nil && g.marks.Err() == nil }
