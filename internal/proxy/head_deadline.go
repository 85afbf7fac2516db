package proxy

import (
	"net"
	"os"
	"sync"
	"time"
)

// readDeadlines is the earlier of the reader's deadline and the head's, and
// lets a read wait without the socket.
type readDeadlines struct {
	mu     sync.Mutex
	reader time.Time
	head   time.Time
	closed bool
	moved  chan struct{} // closed when something of this changes; nil: nobody waits
}

func (d *readDeadlines) set(c net.Conn, t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reader = t
	d.wakeLocked()
	return c.SetReadDeadline(d.earlierLocked())
}

// startHead starts the head's time, unless it runs.
func (d *readDeadlines) startHead(c net.Conn, timeout time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.head.IsZero() {
		d.head = time.Now().Add(timeout)
		_ = c.SetReadDeadline(d.earlierLocked())
	}
}

func (d *readDeadlines) endHead(c net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.head.IsZero() {
		d.head = time.Time{}
		_ = c.SetReadDeadline(d.reader)
	}
}

func (d *readDeadlines) headIsLate() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.head.IsZero() && !time.Now().Before(d.head)
}

func (d *readDeadlines) earlierLocked() time.Time {
	if d.reader.IsZero() || !d.head.IsZero() && d.head.Before(d.reader) {
		return d.head
	}
	return d.reader
}

func (d *readDeadlines) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.wakeLocked()
}

func (d *readDeadlines) wakeLocked() {
	if d.moved != nil {
		close(d.moved)
		d.moved = nil
	}
}

// wait returns when the reader's deadline has passed or the connection was
// closed, with the error that a read would return.
func (d *readDeadlines) wait() error {
	for {
		d.mu.Lock()
		if d.closed {
			d.mu.Unlock()
			return net.ErrClosed
		}
		if d.moved == nil {
			d.moved = make(chan struct{})
		}
		moved, until := d.moved, d.reader
		d.mu.Unlock()
		if !waitUntil(until, moved) {
			return os.ErrDeadlineExceeded
		}
	}
}

// waitUntil reports whether moved was closed before until, which is never
// when it is zero.
func waitUntil(until time.Time, moved <-chan struct{}) bool {
	var expired <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-moved:
		return true
	case <-expired:
		return false
	}
}
