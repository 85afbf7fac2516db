package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// TLSFiles are the PEM files of the data plane's TLS.
type TLSFiles struct {
	Cert, Key string
	ClientCA  string // set: every caller must show a certificate of these authorities
}

// TLSConfig reads the files and returns a configuration that follows their
// changes: a renewed certificate or authority serves the next handshake
// without a restart, a bad one is logged and the last good one stays.
func TLSConfig(f TLSFiles, log *slog.Logger) (*tls.Config, error) {
	files := &tlsFiles{TLSFiles: f, log: log}
	if err := files.read(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols, // net/http looks here whether it is to serve HTTP/2
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return files.current(), nil
		},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return nil, errors.New("the configuration for the client holds the certificate")
		},
	}, nil
}

// protocols are what is offered to callers over TLS.
var protocols = []string{"h2", "http/1.1"}

type tlsFiles struct {
	TLSFiles
	log *slog.Logger

	mu     sync.Mutex
	config *tls.Config
	looked time.Time
	stamps string
}

// lookInterval is how often, at most, the files are looked at.
const lookInterval = time.Second

func (t *tlsFiles) current() *tls.Config {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); now.Sub(t.looked) >= lookInterval {
		t.looked = now
		if err := t.readLocked(); err != nil {
			t.log.Error("the changed TLS files are not usable; the last good ones stay", "error", err)
		}
	}
	return t.config
}

func (t *tlsFiles) read() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.readLocked()
}

func (t *tlsFiles) readLocked() error {
	stamps := t.stampsOf(t.Cert, t.Key, t.ClientCA)
	if stamps == t.stamps {
		return nil
	}
	t.stamps = stamps
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return fmt.Errorf("read the TLS certificate: %w", err)
	}
	config := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{pair},
		NextProtos:   protocols,
	}
	if t.ClientCA != "" {
		if config.ClientCAs, err = authorities(t.ClientCA); err != nil {
			return err
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
		// A ticket would carry an old verification past a changed authority.
		config.SessionTicketsDisabled = true
	}
	t.config = config
	return nil
}

func authorities(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the client authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read the client authorities: %s holds no certificate", file)
	}
	return pool, nil
}

func (t *tlsFiles) stampsOf(names ...string) string {
	out := ""
	for _, name := range names {
		if info, err := os.Stat(name); err == nil {
			out += fmt.Sprintf("%s %d %d;", name, info.ModTime().UnixNano(), info.Size())
		}
	}
	return out
}
