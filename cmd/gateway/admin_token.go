package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sluice/internal/authz"
	"strings"
)

// adminToken reads the configured token, or keeps a generated one in
// state_dir.
func adminToken(cfg *Config) (string, error) {
	switch {
	case cfg.Admin.TokenFile != "":
		return readToken(cfg.Admin.TokenFile)
	case cfg.StateDir == "":
		return "", nil
	}
	file := filepath.Join(cfg.StateDir, "admin-token")
	token, err := readToken(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return token, err
	}
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return "", fmt.Errorf("state_dir: %w", err)
	}
	token = authz.NewID() + authz.NewID()
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("state_dir: keep the admin token: %w", err)
	}
	return token, nil
}

const leastAdminToken = 16

func readToken(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the admin token: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if len(token) < leastAdminToken || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("read the admin token: %s must hold one word of at least %d characters", file, leastAdminToken)
	}
	return token, nil
}
