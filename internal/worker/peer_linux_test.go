package worker_test

import (
	"io"
	"net"
	"sluice/internal/worker"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// deaf makes the kernel drop all that comes for c, as if its machine were
// gone.
func deaf(t *testing.T, c net.Conn) {
	t.Helper()
	drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	control(t, c.(syscall.Conn), func(fd int) error {
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop[0]})
	})
}

// pair returns both ends of a connection that was made by the Dialer.
func pair(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ours, err = newDialer(t, worker.DialerOptions{}).DialContext(t.Context(), "http://"+l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ours.Close(); _ = theirs.Close() })
	return ours, theirs
}

func TestAPeerThatIsGoneLeavesDataUnanswered(t *testing.T) {
	t.Parallel()
	ours, theirs := pair(t)
	deaf(t, theirs)
	if _, err := io.WriteString(ours, "anybody there?"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "data is sent again and again", func() bool { return worker.Unanswered(ours) >= 3 })
}

func TestASlowReaderAnswersAllTheSame(t *testing.T) {
	t.Parallel()
	ours, _ := pair(t)
	_ = ours.SetWriteDeadline(time.Now().Add(1500 * time.Millisecond))
	most := 0
	for chunk := make([]byte, 1<<20); ; {
		_ = ours.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		if _, err := ours.Write(chunk); err != nil {
			break
		}
	}
	for until := time.Now().Add(time.Second); time.Now().Before(until); {
		most = max(most, worker.Unanswered(ours))
	}
	if most > 1 {
		t.Errorf("sent again %d times in a row", most)
	}
}

func TestIdleConnectionsAreKeptAlive(t *testing.T) {
	ours, _ := pair(t)
	control(t, ours.(syscall.Conn), func(fd int) error {
		for option, want := range map[int]int{unix.TCP_KEEPIDLE: 15, unix.TCP_KEEPINTVL: 5, unix.TCP_KEEPCNT: 3} {
			if got, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, option); err != nil || got != want {
				t.Errorf("option %d is %d, error %v", option, got, err)
			}
		}
		return nil
	})
}

func TestNothingIsKnownOfWhatIsNoSocket(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if got := worker.Unanswered(a); got != 0 {
		t.Errorf("%d", got)
	}
}
