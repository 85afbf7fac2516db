package worker

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Unanswered says how many times in a row the kernel has sent something on
// conn again because the other end did not acknowledge it: data, or the
// question whether a full receiver has room again. Each is twice as long
// after the one before; seven are some 25 seconds in a local network. It is
// how a dead peer is told from a slow one, which acknowledges all along.
// (TCP_USER_TIMEOUT cannot tell: it also ends the connection of a reader that
// is slow for that long.) It is 0 where nobody knows: for what is no TCP
// connection, and on other systems than Linux.
func Unanswered(conn net.Conn) int {
	if secured, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = secured.NetConn()
	}
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0
	}
	var info *unix.TCPInfo
	if err := raw.Control(func(fd uintptr) {
		info, _ = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	}); err != nil || info == nil {
		return 0
	}
	return int(max(info.Retransmits, info.Probes))
}
