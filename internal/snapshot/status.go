package snapshot

import (
	"errors"
	"fmt"
	"time"
)

// Ready is nil while the store is watched and confirms; else it says what is
// wrong. A short reconnection does not show.
func (c *Cache) Ready() error {
	c.mu.Lock()
	up, err := c.up, c.downErr
	c.mu.Unlock()
	ep := c.epoch.Load()
	if ep == nil {
		return fmt.Errorf("store: %w", err)
	}
	confirmed := time.Duration(ep.confirmed.Load())
	age := c.now() - confirmed
	if confirmed > 0 && age <= min(c.opt.MaxAge, max(readyGrace, c.opt.MaxAge/2)) {
		return nil
	}
	if up {
		err = errors.New("it does not confirm")
	}
	return fmt.Errorf("store: not confirmed for %s: %w", age.Round(time.Millisecond), err)
}

// Stats are numbers for metrics.
type Stats struct {
	Up      bool          // changes are being told
	Resyncs uint64        // epochs after the first
	Age     time.Duration // since the last confirmation; of a never confirmed store, since New
	Leases  int           // held, malformed ones included
	Absent  int           // ids remembered as no lease
	Bytes   int64         // of records held
}

// Stats returns the numbers of now.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Stats{Up: c.up, Leases: c.leases.len(), Absent: c.absent.len(), Bytes: c.bytes, Age: c.now()}
	if ep := c.epoch.Load(); ep != nil {
		s.Age -= time.Duration(ep.confirmed.Load())
		s.Resyncs = c.resyncs - 1
	}
	return s
}
