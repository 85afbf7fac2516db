package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sluice/internal/authz"
	"time"
)

// Mode is how workers are asked (workers.link).
type Mode string

// The modes.
const (
	Auto     Mode = "auto"   // watch where the worker offers it, else probe
	Watch    Mode = "watch"  // one stream for each worker in use
	Probe    Mode = "probe"  // one question for each request
	Static   Mode = "static" // the operator's word
	Disabled Mode = "none"   // no worker is ever contacted
)

// Options configures Links.
type Options struct {
	// Mode is workers.link. Empty: auto.
	Mode Mode
	// ProbePath is where a worker serves its live document. Empty: /v1/worker.
	ProbePath string
	// TokenFile holds a bearer token that workers are shown, so that they
	// know the gateway. It is read again for every question. Empty: none.
	TokenFile string
	// Static lists the workers of link: static; unused otherwise.
	Static []StaticWorker
	// Dialer makes the connections; its step time-out bounds every step of
	// asking. Required but for none.
	Dialer *Dialer
	// Decode reads a live document strictly. What it refuses is no live
	// document. Required for auto, watch and probe.
	Decode func(raw []byte) (*authz.Live, error)
	// OnChange is told the id of a worker whose live document or generation
	// is another one, or whose document is gone: what was decided on it must
	// be decided again. It is called without any lock, from several
	// goroutines, and must not block. Nil: nobody is told.
	OnChange func(workerID string)
	// Grace is how long open channels may rest on the last document while
	// the worker is out of reach. It must be shorter than
	// channels.revocation_bound, which it is a part of. Zero: 700ms.
	Grace time.Duration
	// Silence is how long a stream may go without a line. Zero: 10s.
	Silence time.Duration
	// Idle is after what time without a question and without a channel a
	// link is closed. Zero: 1m.
	Idle time.Duration
	// ProbeInterval is the least time between two probes that rechecks
	// start. Zero: 200ms.
	ProbeInterval time.Duration
	// MaxLinks is how many workers may be in use at a time; asking one more
	// is an error, until another is idle. Zero: 10000.
	MaxLinks int
	// Log gets links that come and go. Nil: none.
	Log *slog.Logger
}

func (o *Options) setDefaults() {
	orDefault(&o.Mode, Auto)
	orDefault(&o.ProbePath, "/v1/worker")
	orDefault(&o.Grace, 700*time.Millisecond)
	orDefault(&o.Silence, 10*time.Second)
	orDefault(&o.Idle, time.Minute)
	orDefault(&o.ProbeInterval, 200*time.Millisecond)
	orDefault(&o.MaxLinks, 10000)
	if o.OnChange == nil {
		o.OnChange = func(string) {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (o *Options) check() error {
	switch o.Mode {
	case Auto, Watch, Probe, Static, Disabled:
	default:
		return fmt.Errorf("worker link %q: it must be auto, watch, probe, static or none", o.Mode)
	}
	if u, err := url.ParseRequestURI(o.ProbePath); err != nil || u.Path != o.ProbePath || u.RequestURI() != o.ProbePath {
		return fmt.Errorf("probe path %q: it must be an absolute path without escapes", o.ProbePath)
	}
	if o.Mode != Disabled && o.Dialer == nil {
		return errors.New("worker links need a dialer")
	}
	if o.Mode != Disabled && o.Mode != Static && o.Decode == nil {
		return errors.New("worker links need a decoder of live documents")
	}
	return nil
}
