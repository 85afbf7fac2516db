//go:build !linux

package proxy

// parking is for systems with epoll; elsewhere a pump that rests keeps its
// goroutine.
type parking struct{}

var lot parking

func (*parking) works() bool { return false }

func (*parking) enter(*pump) bool { return false }

func (*parking) leave(uint64) *pump { return nil }
