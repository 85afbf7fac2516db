package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sluice/internal/authz"
	"sluice/internal/snapshot"
)

// recordStore is a store as the cache watches it and as operators edit it.
type recordStore interface {
	snapshot.Store
	Get(ctx context.Context, k snapshot.Key) (*snapshot.Stored, error)
	Put(ctx context.Context, k snapshot.Key, text []byte, expect snapshot.Expect) (*authz.Record, error)
	Delete(ctx context.Context, k snapshot.Key, expect snapshot.Expect) error
	List(ctx context.Context, kind authz.Kind) ([]string, error)
}

// openStore returns the configured store, behind the layer that verifies what
// is signed where keys are named; it connects to nothing yet. A store that is
// an io.Closer is closed by whoever opened it.
func openStore(cfg *Config, log *slog.Logger) (recordStore, error) {
	store, err := openBareStore(cfg, log)
	if err != nil {
		return nil, err
	}
	return verified(cfg, store, log)
}

// verified is store, as it is or behind the layer that verifies.
func verified(cfg *Config, store bareStore, log *slog.Logger) (recordStore, error) {
	if cfg.Store.Verify.KeysFile == "" {
		return store, nil
	}
	keys, err := snapshot.OpenKeys(cfg.Store.Verify.KeysFile)
	if err != nil {
		return nil, fmt.Errorf("store.verify.keys_file: %w", err)
	}
	return snapshot.NewVerifier(store, snapshot.VerifierOptions{
		Keys: keys, MaxLife: cfg.Store.Verify.MaxLife, AllowUnsigned: !cfg.Store.Verify.Required, Log: log,
	})
}

// bareStore is a store as it stands behind every layer.
type bareStore interface {
	recordStore
	snapshot.Swapper
}

func openBareStore(cfg *Config, log *slog.Logger) (bareStore, error) {
	if cfg.Store.Type != "redis" {
		store, err := snapshot.NewFileStore(snapshot.FileOptions{Dir: cfg.Store.File.Dir, Log: log})
		if err != nil {
			return nil, fmt.Errorf("store.file: %w", err)
		}
		return store, nil
	}
	secured, err := redisTLS(cfg.Store.Redis.TLS)
	if err != nil {
		return nil, fmt.Errorf("store.redis.tls: %w", err)
	}
	store, err := snapshot.NewRedisStore(snapshot.RedisOptions{
		Addresses: cfg.Store.Redis.Addresses, MasterName: cfg.Store.Redis.MasterName, Username: cfg.Store.Redis.Username, Password: string(cfg.Store.Redis.Password),
		TLS: secured, KeyPrefix: cfg.Store.Redis.KeyPrefix, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("store.redis: %w", err)
	}
	return store, nil
}

func redisTLS(cfg RedisTLSConfig) (*tls.Config, error) {
	if !cfg.Enabled {
		return nil, nil
	}
	secured := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the authorities: %w", err)
		}
		secured.RootCAs = x509.NewCertPool()
		if !secured.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read the authorities: %s holds no certificate", cfg.CAFile)
		}
	}
	if cfg.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("read the client certificate: %w", err)
		}
		secured.Certificates = []tls.Certificate{pair}
	}
	return secured, nil
}
