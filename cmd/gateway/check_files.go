package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sluice/internal/authz"
	"sluice/internal/identity"
	"sluice/internal/pdp"
	"sluice/internal/snapshot"
	"sluice/internal/worker"
	"strconv"
	"strings"
)

// policies compiles what would be served: strictly, with the input schema.
func (k *checker) policies(ctx context.Context, cfg *Config, path string) error {
	o := pdp.Options{}
	if cfg != nil {
		o = policyOptions(cfg)
	}
	if path != "" {
		if _, err := os.Stat(path); err != nil {
			return wrongUsage("--policies: %w", err)
		}
		o.Path = path
	}
	engine, err := pdp.New(o)
	if err == nil {
		err = engine.Reload(ctx)
	}
	if err != nil {
		k.policyFaults(err)
		return nil
	}
	k.capabilities = engine.Capabilities()
	return k.survey(ctx, o)
}

// survey looks at what loads, and is probably not what was meant.
func (k *checker) survey(ctx context.Context, o pdp.Options) error {
	if o.Path == "" {
		return nil
	}
	found, err := pdp.Look(ctx, o)
	if err != nil {
		return fmt.Errorf("look at the policies: %w", err)
	}
	k.Policies = &policiesFound{found.Denies, found.Limits}
	for _, r := range found.Faults {
		k.fault(ConfigFault{Source: r.File, Line: r.Line, Column: r.Col, Message: r.Message})
	}
	for _, r := range found.Warnings {
		k.warning(ConfigFault{Source: r.File, Line: r.Line, Column: r.Col, Message: r.Message})
	}
	return nil
}

// placedLine is how a policy fault with a place is written.
var placedLine = regexp.MustCompile(`^(.+?):(\d+):(\d+): (.*)$`)

func (k *checker) policyFaults(err error) {
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "loading policies: ")
		f := ConfigFault{Message: line}
		if part := placedLine.FindStringSubmatch(line); part != nil {
			f.Source, f.Message = part[1], part[4]
			f.Line, _ = strconv.Atoi(part[2])
			f.Column, _ = strconv.Atoi(part[3])
		}
		k.fault(f)
	}
}

// recordsOf looks at every record of a directory: the named one or the
// configured store's. Another store's records are judged as they are read.
func (k *checker) recordsOf(ctx context.Context, cfg *Config, dir string) error {
	switch {
	case dir != "" && !isDirectory(dir):
		return wrongUsage("--records %s is not a directory that can be read", dir)
	case dir == "" && (cfg == nil || cfg.Store.Type != "file"):
		return nil
	case dir == "" && !isDirectory(cfg.Store.File.Dir):
		k.read = true // and found nothing, which is warned of
		return nil
	case dir == "":
		dir = cfg.Store.File.Dir
	}
	store, err := snapshot.NewFileStore(snapshot.FileOptions{Dir: dir})
	if err != nil {
		return err
	}
	k.read = true
	records := recordStore(store)
	if cfg != nil {
		k.extraFields = cfg.Policies.ExtraFields
		if records, err = verified(cfg, store, nil); err != nil {
			return nil //nolint:nilerr // the keys file has faults, and is told of with the other files
		}
	}
	for _, kind := range snapshot.Kinds() {
		if err := k.recordsOfKind(ctx, records, store, kind); err != nil {
			return err
		}
	}
	k.strays(store, dir)
	return nil
}

func (k *checker) recordsOfKind(ctx context.Context, records recordStore, store *snapshot.FileStore, kind authz.Kind) error {
	ids, err := records.List(ctx, kind)
	if err != nil {
		return err
	}
	for _, id := range ids {
		key := snapshot.Key{Kind: kind, ID: id}
		source := pathOf(store, key)
		k.Records++
		record, err := records.Get(ctx, key)
		switch {
		case errors.Is(err, snapshot.ErrNotFound): // removed meanwhile
		case err != nil:
			k.fault(ConfigFault{Source: source, Message: err.Error()})
		case record.Fault != nil:
			k.fault(recordFault(source, record.Fault))
		default:
			// What is signed has no place in the file.
			k.Warnings = append(k.Warnings, adviseRecord(source, kind, record.Text, record.Signed == nil, k.extraFields, k.capabilities)...)
		}
	}
	return nil
}

func recordFault(source string, err error) ConfigFault {
	if f, ok := errors.AsType[*snapshot.Fault](err); ok {
		return ConfigFault{Source: source, Line: f.Line, Column: f.Column, Path: f.Field, Message: f.What}
	}
	return ConfigFault{Source: source, Message: err.Error()}
}

// pathOf is the file that holds a record.
func pathOf(store *snapshot.FileStore, key snapshot.Key) string {
	paths := store.Paths(key)
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil {
			return path
		}
	}
	return paths[0]
}

// strays warns of JSON files that are the file of no record, such as one in a
// folder of another name.
func (k *checker) strays(store *snapshot.FileStore, dir string) {
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil, entry.IsDir() && path != dir && strings.HasPrefix(name, "."):
			return fs.SkipDir
		case entry.IsDir(), !strings.HasSuffix(name, ".json"), strings.HasPrefix(name, "."), isRecordFile(store, path), path == filepath.Join(dir, "rebase.json"):
			return nil
		}
		k.warning(ConfigFault{Source: path, Message: "is the file of no record and is not read"})
		return nil
	})
}

func isRecordFile(store *snapshot.FileStore, path string) bool {
	stem := strings.TrimSuffix(filepath.Base(path), ".json")
	for _, kind := range snapshot.Kinds() {
		for _, id := range []string{"", stem, strings.TrimPrefix(stem, string(kind)+".")} {
			key := snapshot.Key{Kind: kind, ID: id}
			if key.Valid() && slices.Contains(store.Paths(key), path) {
				return true
			}
		}
	}
	return false
}

// files looks at the files that the configuration names.
func (k *checker) files(cfg *Config) {
	if path := cfg.Identity.TokensFile; path != "" {
		_, err := identity.OpenTokens(path)
		k.tokens(cfg, err)
	}
	if path := cfg.Store.Verify.KeysFile; path != "" {
		_, err := snapshot.OpenKeys(path)
		k.keys(cfg, err)
	}
	server, client, redis := cfg.Listen.TLS, cfg.Workers.TLS, cfg.Store.Redis.TLS
	for _, pair := range []struct{ path, cert, key, authorities string }{
		{"listen.tls", server.CertFile, server.KeyFile, server.ClientCAFile},
		{"workers.tls", client.CertFile, client.KeyFile, client.CAFile},
		{"store.redis.tls", redis.CertFile, redis.KeyFile, redis.CAFile},
	} {
		if pair.cert != "" {
			_, err := tls.LoadX509KeyPair(pair.cert, pair.key)
			k.file(cfg, pair.path, err)
		}
		if pair.authorities != "" {
			k.file(cfg, pair.path, readAuthorities(pair.authorities))
		}
	}
	for path, name := range map[string]string{"admin.token_file": cfg.Admin.TokenFile, "workers.token_file": cfg.Workers.TokenFile} {
		if name != "" {
			_, err := os.ReadFile(name)
			k.file(cfg, path, err)
		}
	}
}

func (k *checker) file(cfg *Config, path string, err error) {
	if err != nil {
		k.fault(cfg.fault(path, "%v", err))
	}
}

func (k *checker) tokens(cfg *Config, err error) {
	e, ok := errors.AsType[*identity.FileError](err)
	if !ok {
		k.file(cfg, "identity.tokens_file", err)
		return
	}
	for _, f := range e.Faults {
		k.fault(ConfigFault{e.Path, f.Line, f.Column, f.Path, f.Message})
	}
}

func (k *checker) keys(cfg *Config, err error) {
	e, ok := errors.AsType[*snapshot.KeysFileError](err)
	if !ok {
		k.file(cfg, "store.verify.keys_file", err)
		return
	}
	for _, f := range e.Faults {
		k.fault(ConfigFault{e.Path, f.Line, f.Column, f.Path, f.Message})
	}
}

func readAuthorities(path string) error {
	text, err := os.ReadFile(path)
	if err == nil && !x509.NewCertPool().AppendCertsFromPEM(text) {
		err = fmt.Errorf("%s holds no certificate in PEM form", path)
	}
	return err
}

// literalAddress is the address of a URL that names one, not a host.
func literalAddress(url string) (netip.AddrPort, bool) {
	target, err := worker.ParseURL(url)
	if err != nil {
		return netip.AddrPort{}, false
	}
	address, err := netip.ParseAddrPort(target.Address())
	return address, err == nil
}

// covers says whether an address is inside workers.allow.
func (w *WorkersConfig) covers(address netip.AddrPort) bool {
	return slices.ContainsFunc(w.Allow, func(entry string) bool {
		allowed, err := parseAllow(entry)
		return err == nil && allowed.prefix.Contains(address.Addr()) && (allowed.port == 0 || allowed.port == address.Port())
	})
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
