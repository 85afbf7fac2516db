package worker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"time"
)

// TLSOptions configures TLS to workers with an https URL. The worker's name
// is always verified.
type TLSOptions struct {
	CAFile   string // PEM; empty: the system's roots. Read once
	CertFile string // PEM, shown to workers that ask; empty: none
	KeyFile  string // its key. Both are read again for each handshake
}

func (o TLSOptions) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the workers' authorities: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read the workers' authorities: %s holds no certificate", o.CAFile)
		}
	}
	if o.CertFile == "" && o.KeyFile == "" {
		return c, nil
	}
	load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("read the certificate for workers: %w", err)
		}
		return &pair, nil
	}
	if _, err := load(nil); err != nil {
		return nil, err
	}
	c.GetClientCertificate = load
	return c, nil
}

// secure does the handshake over conn within one step. It takes conn over,
// also when it fails.
func (d *Dialer) secure(ctx context.Context, conn net.Conn, name string) (net.Conn, error) {
	config := d.tls.Clone()
	config.ServerName = name
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secured, nil
}

// aStep ends one step of asking a worker.
func (d *Dialer) aStep() time.Time { return time.Now().Add(d.timeout) }
