package main

import (
	"context"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"time"
)

// An idle gateway gives back what a burst of opens took. Go's collector lets
// the heap grow to twice what lives before it looks, which is right under load
// and wrong for a sidecar that holds thousands of quiet channels: there the
// garbage of their opening would stay for minutes, and be paid for.
const (
	trimLook   = time.Second
	trimQuiet  = 1 << 20          // allocated in a look, at most: nothing much is going on
	trimWorth  = 4 << 20          // to be gained, at least
	trimPause  = 10 * time.Second // between two
	trimFactor = 4                // and more than a quarter of what lives
)

// trimWhenIdle runs until ctx is done.
func trimWhenIdle(ctx context.Context) error {
	ticker := time.NewTicker(trimLook)
	defer ticker.Stop()
	var heap heapReading
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			if heap.read() < trimQuiet && heap.gain() > trimWorth && heap.gain() > heap.live/trimFactor && now.Sub(last) > trimPause {
				debug.FreeOSMemory()
				last = now
			}
		}
	}
}

// heapReading is what the runtime says of its heap, in bytes.
type heapReading struct {
	allocated, live, held uint64
}

// read reads and returns what was allocated since it was last called.
func (h *heapReading) read() uint64 {
	samples := []runtimemetrics.Sample{
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	runtimemetrics.Read(samples)
	before := h.allocated
	h.allocated, h.live = samples[0].Value.Uint64(), samples[1].Value.Uint64()
	h.held = samples[2].Value.Uint64() + samples[3].Value.Uint64() + samples[4].Value.Uint64()
	return h.allocated - before
}

// gain is what the heap holds beyond what lived at the last collection.
func (h *heapReading) gain() uint64 {
	if h.held < h.live {
		return 0
	}
	return h.held - h.live
}
