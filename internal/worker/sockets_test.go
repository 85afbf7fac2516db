package worker_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/worker"
)

// full returns the address of a listener whose queue is full, so that another
// connection is neither taken nor refused.
func full(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	control(t, l.(syscall.Conn), func(fd int) error { return syscall.Listen(fd, 0) })
	for {
		c, err := net.DialTimeout("tcp", l.Addr().String(), 100*time.Millisecond)
		if err != nil {
			return l.Addr().String()
		}
		t.Cleanup(func() { _ = c.Close() })
	}
}

func control(t *testing.T, c syscall.Conn, f func(fd int) error) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
}

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

// writeCertificate writes der as PEM and returns the file.
func writeCertificate(t *testing.T, der []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.crt")
	writePEM(t, file, "CERTIFICATE", der)
	return file
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// writePair writes a new key and a certificate for it that signs itself.
func writePair(t *testing.T, certFile, keyFile, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, certFile, "CERTIFICATE", der)
	writePEM(t, keyFile, "PRIVATE KEY", private)
}
