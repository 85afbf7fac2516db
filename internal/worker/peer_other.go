//go:build !linux

package worker

import "net"

// Unanswered is 0: only Linux tells.
func Unanswered(net.Conn) int { return 0 }
