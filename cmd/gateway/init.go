package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sluice/internal/worker"
	"strings"
	"time"
)

type initCommand struct {
	Worker string `required:"" placeholder:"URL" help:"The WebSocket server, as http://host:port or ws://host:port."`
	Dir    string `arg:"" help:"Directory to write into; it is made when it is not there."`
}

// Help is shown by init --help.
func (*initCommand) Help() string {
	return `The written configuration lets one token through to one lease, whose channel goes to the given server. ` +
		`Nothing that exists is overwritten. The server gets the caller's path, /v1/leases/{lease}/duplex, and must serve it.`
}

// Run writes the files and says what to do next.
func (c *initCommand) Run(a *app) error {
	plan, err := planInit(a.ctx, c.Worker, c.Dir)
	if err != nil {
		return err
	}
	if err := plan.write(c.Dir); err != nil {
		return err
	}
	fmt.Fprint(a.stdout, plan.next(c.Dir))
	return nil
}

// initPlan is everything that init writes.
type initPlan struct {
	token  madeToken
	listen string // the data plane's address
	files  []initFile
}

type initFile struct {
	path, text string // the path is inside the directory
	mode       fs.FileMode
}

func planInit(ctx context.Context, url, dir string) (*initPlan, error) {
	target, err := readWorkerURL(url)
	if err != nil {
		return nil, err
	}
	allow, err := allowFor(ctx, target)
	if err != nil {
		return nil, err
	}
	if strings.IndexFunc(dir, func(r rune) bool { return r < ' ' }) >= 0 {
		return nil, wrongUsage("the directory's name %q holds a control character", dir)
	}
	token, err := newToken("first-caller", initTenant, nil, "")
	if err != nil {
		return nil, err
	}
	ports := portsBeside(target.Port)
	p := &initPlan{token: token, listen: "127.0.0.1:" + ports[0]}
	p.files = []initFile{
		{"gateway.yaml", initConfig(target, allow, ports), 0o644},
		{"tokens.yaml", initTokens(token), 0o600},
		{"records/control.json", initControl, 0o644},
		{"records/plugins/plugin-1.json", initPlugin, 0o644},
		{"records/leases/" + initLease + ".json", initLeaseRecord, 0o644},
	}
	return p, nil
}

// readWorkerURL takes http, https, ws and wss.
func readWorkerURL(url string) (worker.Target, error) {
	plain := url
	if rest, ok := strings.CutPrefix(url, "ws://"); ok {
		plain = "http://" + rest
	} else if rest, ok := strings.CutPrefix(url, "wss://"); ok {
		plain = "https://" + rest
	}
	target, err := worker.ParseURL(plain)
	if err != nil {
		return target, wrongUsage("%w; give the server as http://host:port or ws://host:port (it gets the caller's path)", err)
	}
	return target, nil
}

// allowFor is the narrowest workers.allow that lets the server be dialled.
func allowFor(ctx context.Context, t worker.Target) ([]string, error) {
	if ip, err := netip.ParseAddr(t.Name); err == nil {
		return []string{allowText(ip, t.Port)}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", t.Name)
	if err != nil {
		return nil, wrongUsage("the server's name cannot be resolved (%w); give its address", err)
	}
	var allow []string
	for _, ip := range ips {
		allow = append(allow, allowText(ip.Unmap().WithZone(""), t.Port))
	}
	return allow, nil
}

func allowText(ip netip.Addr, port string) string {
	return netip.PrefixFrom(ip, ip.BitLen()).String() + ":" + port
}

// portsBeside are the ports of the data plane, the probes and the admin
// listener: the usual ones, but where the server has that port.
func portsBeside(taken string) [3]string {
	ports := [3]string{"8080", "8283", "8282"}
	for i, other := range [3]string{"8088", "8285", "8284"} {
		if ports[i] == taken {
			ports[i] = other
		}
	}
	return ports
}

// write writes every file, or none when one is there already.
func (p *initPlan) write(dir string) error {
	for _, f := range p.files {
		path := filepath.Join(dir, f.path)
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return wrongUsage("%w; choose another directory", cmp.Or(err, fmt.Errorf("%s is there already", path)))
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "state"), 0o700); err != nil {
		return wrongUsage("make the directory: %w", err)
	}
	for _, f := range p.files {
		if err := writeNew(filepath.Join(dir, f.path), f); err != nil {
			return fmt.Errorf("write the configuration: %w", err)
		}
	}
	return nil
}

func writeNew(path string, file initFile) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, file.mode)
	if err != nil {
		return err
	}
	_, err = f.WriteString(file.text)
	return errors.Join(err, f.Close())
}

// next says what was written and what to do with it.
func (p *initPlan) next(dir string) string {
	var b strings.Builder
	b.WriteString("Written:\n")
	for _, f := range p.files {
		fmt.Fprintf(&b, "  %s\n", filepath.Join(dir, f.path))
	}
	url := "ws://" + p.listen + "/v1/leases/" + initLease + "/duplex"
	fmt.Fprintf(&b, `
The token, shown this once (tokens.yaml keeps only its SHA-256):
  %s

Start the gateway:
  gateway serve -c %s

Open a channel with any WebSocket client that can send a header:
  npx wscat -H "Authorization: Bearer %[1]s" -c %[3]s
An answer other than 101 is your server's own, passed on. A 404 means that it
does not serve that path: it must serve /v1/leases/{lease}/duplex.

Take the lease away while the channel is open, and watch it end:
  gateway records get -c %[2]s lease %[4]s |
    sed 's/"active"/"revoked"/; s/"revision": 1/"revision": 2/' |
    gateway records put -c %[2]s lease %[4]s
`, p.token.Token, shellWord(filepath.Join(dir, "gateway.yaml")), url, initLease)
	return b.String()
}

// shellWord quotes s for a POSIX shell where it has to be.
func shellWord(s string) string {
	if strings.IndexFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=:,@", r)
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
