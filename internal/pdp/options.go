package pdp

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"time"
)

// Options configure an Engine. The zero value serves the shipped packages
// alone.
type Options struct {
	// Path is a directory or a bundle (.tar.gz) with the team's own rules and
	// data; "": none. A directory is watched and followed.
	Path string
	// Replace lets Path bring shipped packages and tables, which then stand
	// in place of the binary's. Without it a set that contains one of them is
	// refused, so that a team's directory can only narrow.
	Replace bool
	// Required lists packages ("sluice.custom") that a new set must contain.
	// It stops an emptied directory from silently dropping the team's rules.
	Required []string
	// RunTests refuses a set whose own tests fail.
	RunTests bool

	// Timeout bounds one evaluation, not the waiting for it; 0: 50ms.
	Timeout time.Duration
	// Evaluators is how many questions are evaluated at once on the request's
	// path; 0: eight for each processor, since whoever has one may still wait
	// for a processor. Rechecks have half as many, at least one, of their own,
	// so that a crowd of opens never delays a revocation.
	Evaluators int
	// Queue is how many questions may wait; 0: 1024. A question that finds
	// the queue full is refused with EVALUATION_BUSY.
	Queue int

	// OnSwap, when not nil, is called after another policy set took over; it
	// must not block.
	OnSwap func()
	// OnReload, when not nil, is called after every set that was loaded (nil)
	// or refused (why); it must not block.
	OnReload func(error)
	// Log takes what happened to policy sets; nil: nothing.
	Log *slog.Logger
}

func (o Options) withDefaults() (Options, error) {
	var errs []error
	if o.Timeout < 0 || o.Evaluators < 0 || o.Queue < 0 {
		errs = append(errs, errors.New("time-out, evaluators and queue must not be negative"))
	}
	for i, name := range o.Required {
		name = strings.TrimPrefix(name, "data.")
		if name == "" {
			errs = append(errs, fmt.Errorf("required package %q is no package name", o.Required[i]))
		}
	}
	if o.Timeout == 0 {
		o.Timeout = 50 * time.Millisecond
	}
	if o.Evaluators == 0 {
		o.Evaluators = 8 * runtime.GOMAXPROCS(0)
	}
	if o.Queue == 0 {
		o.Queue = 1024
	}
	if o.OnReload == nil {
		o.OnReload = func(error) {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, errors.Join(errs...)
}
