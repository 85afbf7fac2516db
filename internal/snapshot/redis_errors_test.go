package snapshot

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sluice/internal/snapshot/redistest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// What a server says when it cannot answer, and what no server should say, is
// never read as "there is no such record".
func TestAnErrorOfRedisIsNeverAnAbsence(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		"-NOAUTH Authentication required.", "-NOPERM this user has no permissions", "-LOADING Redis is loading the dataset in memory",
		"-MASTERDOWN Link with MASTER is down", "-READONLY You can't write against a read only replica.", "-MOVED 3999 127.0.0.1:1",
		"-CLUSTERDOWN The cluster is down", "-TRYAGAIN Multiple keys request during rehashing of slot", "-OOM command not allowed",
		"-ERR max number of clients reached", "-WRONGTYPE Operation against a key", "+OK", "*0", "*-1", "_", "$-1", "#t", ":x", "$1000", "?",
	} {
		for _, to := range []string{"GETRANGE", "PTTL", "GETRANGE PTTL", "GETRANGE PTTL HELLO CLIENT"} {
			t.Run(answer+" to "+to, func(t *testing.T) {
				t.Parallel()
				server := script(t)
				server.misbehave(func(command []string) string {
					aside := command[0] != "GETRANGE" && command[0] != "PTTL"
					if slices.Contains(strings.Fields(to), command[0]) && (aside || command[1] == "sluice:lease:lease-1") {
						return answer + "\r\n"
					}
					return ""
				})
				readNonsense(t, server, to == "GETRANGE")
			})
		}
	}
}

// readNonsense reads from a server that answers nonsense until it is well. One
// that does so to the text alone has said that there is something.
func readNonsense(t *testing.T, server *scripted, there bool) {
	c, store := cacheOn(t, Options{}, RedisOptions{Addresses: []string{server.address}})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	values, err := store.Read(ctx, []Key{leaseKey})
	if err == nil && values[0].Err == nil && !(there && values[0].Found) {
		t.Errorf("read %+v", values[0])
	}
	for range 3 {
		v := c.Snapshot(ctx, "lease-1")
		if v.Snapshot != nil && v.Snapshot.Lease != nil || v.Fresh && !(there && malformed(v) == "[lease]") {
			t.Errorf("got fresh %v, %+v", v.Fresh, v.Snapshot)
		}
	}
	server.misbehave(nil)
	if there {
		server.change(leaseKey, goodLease)
	}
	for { // a read may be under way, and a connection to be made again
		v := c.Snapshot(ctx, "lease-1")
		if v.Fresh && v.Snapshot.Lease != nil {
			return
		}
		if v.Fresh && malformed(v) != "[lease]" || ctx.Err() != nil {
			t.Fatalf("once the server is well: fresh %v, %+v, %v", v.Fresh, v.Snapshot, v.Err)
		}
		time.Sleep(time.Millisecond)
	}
}

// certificate makes a certificate for 127.0.0.1 and writes it and its key.
func certificate(t *testing.T, dir, name string) *x509.CertPool {
	t.Helper()
	return certificateUntil(t, dir, name, time.Now().Add(time.Hour))
}

func certificateUntil(t *testing.T, dir, name string, end time.Time) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: end.Add(-2 * time.Hour), NotAfter: end,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for file, text := range map[string][]byte{name + ".crt": cert, name + ".key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})} {
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return pool
}

func TestRedisOverTLSIsTrustedByItsCertificateAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	right, wrong := certificate(t, dir, "right"), certificate(t, dir, "wrong")
	port := redistest.FreePort(t)
	server := redistest.Start(t, "--bind", "127.0.0.1", "--tls-port", port, "--tls-auth-clients", "no",
		"--tls-cert-file", filepath.Join(dir, "right.crt"), "--tls-key-file", filepath.Join(dir, "right.key"), "--tls-ca-cert-file", filepath.Join(dir, "right.crt"))
	plain := redistest.StartNode(t)
	for _, c := range []struct {
		name    string
		address string
		roots   *x509.CertPool
		trusted bool
	}{
		{"its authority", "127.0.0.1:" + port, right, true},
		{"another authority", "127.0.0.1:" + port, wrong, false},
		{"another name", "localhost:" + port, right, false},
		{"plain text", plain.Address, right, false},
	} {
		b := redisBackendOf(t, RedisOptions{
			Addresses: []string{c.address}, KeyPrefix: "sluice:", TLS: &tls.Config{RootCAs: c.roots, MinVersion: tls.VersionTLS12},
		}, server.Client)
		b.set(leaseKey, goodLease)
		if c.trusted {
			s := newScene(t, b, Options{})
			s.Retain("lease-1")
			s.eventually("it is read", func() bool { v := s.view("lease-1"); return v.Fresh && v.Snapshot.Lease != nil })
			b.set(leaseKey, leaseOf("lease-1", 9, "revoked"))
			s.eventually("a change is seen", func() bool { return s.view("lease-1").Snapshot.Lease.Status == "revoked" })
			continue
		}
		if values, err := b.Read(context.Background(), []Key{leaseKey}); err == nil && values[0].Err == nil {
			t.Errorf("%s: read %+v", c.name, values[0])
		}
	}
}

// The records of a server whose certificate has expired, or that speaks no TLS
// of today, are not read, and nothing is told to it.
func TestRedisOverOldTLSIsNotTrusted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	now := time.Now()
	roots := map[string]*x509.CertPool{
		"good":    certificate(t, dir, "good"),
		"expired": certificateUntil(t, dir, "expired", now.Add(-time.Minute)),
		"early":   certificateUntil(t, dir, "early", now.Add(3*time.Hour)),
	}
	for _, row := range []struct {
		certificate string
		version     uint16
		trusted     bool
	}{
		{"good", tls.VersionTLS13, true},
		{"good", tls.VersionTLS12, true},
		{"good", tls.VersionTLS11, false},
		{"good", tls.VersionTLS10, false},
		{"expired", tls.VersionTLS13, false},
		{"expired", tls.VersionTLS12, false},
		{"early", tls.VersionTLS13, false},
	} {
		t.Run(row.certificate+" "+tls.VersionName(row.version), func(t *testing.T) {
			t.Parallel()
			pair, err := tls.LoadX509KeyPair(filepath.Join(dir, row.certificate+".crt"), filepath.Join(dir, row.certificate+".key"))
			if err != nil {
				t.Fatal(err)
			}
			l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
				Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS10, MaxVersion: row.version,
			})
			if err != nil {
				t.Fatal(err)
			}
			server := scriptOn(t, l)
			var told atomic.Int32
			server.misbehave(func([]string) string { told.Add(1); return "" })
			c, store := cacheOn(t, Options{}, RedisOptions{
				Addresses: []string{server.address}, Password: "secret",
				TLS: &tls.Config{RootCAs: roots[row.certificate], MinVersion: tls.VersionTLS12},
			})
			if row.trusted {
				awaitFresh(t, c, "lease-1")
				return
			}
			for range 3 {
				if v := c.Snapshot(t.Context(), "lease-1"); v.Fresh || v.Snapshot != nil || v.Err == nil {
					t.Errorf("got %+v", v)
				}
			}
			if values, err := store.Read(t.Context(), []Key{leaseKey}); err == nil && values[0].Err == nil {
				t.Errorf("read %+v", values[0])
			}
			if c.Ready() == nil || told.Load() > 0 || server.accepted.Load() == 0 {
				t.Errorf("ready: %v, told %d commands over %d connections", c.Ready(), told.Load(), server.accepted.Load())
			}
		})
	}
}
