package proxy

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// parking waits for the sockets of pumps that rest, for all of them on one
// goroutine, so that a channel at rest holds no goroutine and no stack. It is
// a set of epoll(7) of its own, which the runtime's poller waits for. The
// goroutine is there while somebody rests.
type parking struct {
	mu      sync.Mutex
	set     *os.File // made for the first who rests; nil: not yet
	fd      int      // its
	resting map[uint64]*pump
	tickets uint64 // given out so far
	waits   bool   // the goroutine is there

	useless atomic.Bool // the runtime does not wait for the set: nobody parks any more
}

// works reports whether a pump can park at all.
func (k *parking) works() bool { return !k.useless.Load() }

var lot = parking{resting: map[uint64]*pump{}}

// enter has p woken when its source has something to say, or is gone. It is
// false where that cannot be done. The pump's pipe is locked.
func (k *parking) enter(p *pump) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.works() || k.set == nil && !k.open() {
		return false
	}
	k.tickets++
	event := syscall.EpollEvent{
		Events: syscall.EPOLLIN | syscall.EPOLLRDHUP | epollOneShot,
		Fd:     int32(uint32(k.tickets)), Pad: int32(uint32(k.tickets >> 32)),
	}
	how := syscall.EPOLL_CTL_ADD
	if p.parkedOnce {
		how = syscall.EPOLL_CTL_MOD // the kernel forgets a socket only when it is closed
	}
	var refused error
	if err := p.src.raw.Control(func(fd uintptr) {
		refused = syscall.EpollCtl(k.fd, how, int(fd), &event)
	}); err != nil || refused != nil {
		return false
	}
	p.parkedOnce, p.ticket = true, k.tickets
	k.resting[p.ticket] = p
	if !k.waits {
		k.waits = true
		go k.wait()
	}
	return true
}

// open makes the set, and holds it against the runtime's poller.
func (k *parking) open() bool {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return false
	}
	_ = syscall.SetNonblock(fd, true) // by which os.NewFile knows that the runtime shall wait for it
	set := os.NewFile(uintptr(fd), "parking")
	if set.SetReadDeadline(time.Time{}) != nil {
		_ = set.Close()
		k.useless.Store(true)
		return false
	}
	k.set, k.fd = set, fd
	return true
}

const epollOneShot = 1 << 30 // syscall's constant is for another type

// leave takes a ticket back and returns whose it was; nil: nobody's any more.
func (k *parking) leave(ticket uint64) *pump {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.resting[ticket]
	delete(k.resting, ticket)
	if p != nil && len(k.resting) == 0 {
		_ = k.set.SetReadDeadline(time.Unix(1, 0)) // which ends wait
	}
	return p
}

// wait wakes those whose sockets have something to say, until nobody rests.
func (k *parking) wait() {
	set, err := k.set.SyscallConn()
	events := make([]syscall.EpollEvent, 128)
	for n := 0; err == nil && !k.empty(); n = 0 {
		var failed error
		err = set.Read(func(fd uintptr) bool {
			n, failed = syscall.EpollWait(int(fd), events, 0)
			if errors.Is(failed, syscall.EINTR) {
				n, failed = 0, nil
			}
			return n != 0
		})
		if errors.Is(err, os.ErrDeadlineExceeded) { // by leave
			err = nil
		}
		err = errors.Join(err, failed)
		for _, e := range events[:max(n, 0)] {
			if p := k.leave(uint64(uint32(e.Pad))<<32 | uint64(uint32(e.Fd))); p != nil {
				p.wake()
			}
		}
	}
	if err != nil {
		k.giveUp()
	}
}

// empty reports that nobody rests, and that the goroutine is to end.
func (k *parking) empty() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_ = k.set.SetReadDeadline(time.Time{})
	k.waits = len(k.resting) > 0
	return !k.waits
}

// giveUp wakes all, and has nobody park any more.
func (k *parking) giveUp() {
	k.mu.Lock()
	k.useless.Store(true)
	resting := k.resting
	k.resting, k.waits = map[uint64]*pump{}, false
	k.mu.Unlock()
	for _, p := range resting {
		p.wake()
	}
}
