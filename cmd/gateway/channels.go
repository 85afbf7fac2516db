package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"sluice/internal/channel"
	"strings"
	"text/tabwriter"
	"time"
)

type channelsCommand struct {
	List  channelsListCommand  `cmd:"" help:"List the live channels of a running gateway."`
	Close channelsCloseCommand `cmd:"" help:"Close channels of a running gateway."`
}

// adminFlags lead to a running gateway's admin listener.
type adminFlags struct {
	configFlags
	Admin     string `placeholder:"URL" help:"The admin listener, such as http://127.0.0.1:8282; without it, the configuration's."`
	TokenFile string `placeholder:"FILE" help:"The file of the admin token; without it, the configuration's."`
}

// filterFlags choose channels.
type filterFlags struct {
	Lease  string `placeholder:"ID" help:"Channels of this lease."`
	Tenant string `placeholder:"ID" help:"Channels of this tenant."`
	Worker string `placeholder:"ID" help:"Channels of this worker."`
}

func (f filterFlags) query() string {
	q := url.Values{}
	for name, value := range map[string]string{"lease": f.Lease, "tenant": f.Tenant, "worker": f.Worker} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q.Encode()
}

type channelsListCommand struct {
	adminFlags
	filterFlags
	outputFlags
}

// Run prints the channels, the oldest first.
func (c *channelsListCommand) Run(a *app) error {
	var answer struct {
		Channels []channel.Info `json:"channels"`
	}
	if err := c.call(a, http.MethodGet, "/v1/channels?"+c.query(), &answer); err != nil {
		return err
	}
	if c.json() {
		return a.writeJSON(answer)
	}
	table := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tLEASE\tTENANT\tSUBJECT\tCAPABILITY\tWORKER\tSTATE\tAGE\tTO WORKER\tTO CALLER")
	for _, i := range answer.Channels {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\n", i.ID, i.Lease, i.Tenant, i.Subject, i.Capability, i.Worker, i.State,
			time.Since(i.OpenedAt).Round(time.Second), i.BytesToWorker, i.BytesToCaller)
	}
	return table.Flush()
}

type channelsCloseCommand struct {
	adminFlags
	filterFlags
	outputFlags
	ID string `placeholder:"ID" help:"This channel."`
}

// Run closes channels; at least one filter says which. The answer is no when
// there were none.
func (c *channelsCloseCommand) Run(a *app) error {
	path := "/v1/channels?" + c.query()
	switch {
	case c.ID != "" && c.filterFlags != filterFlags{}:
		return wrongUsage("--id stands alone")
	case c.ID != "":
		path = "/v1/channels/" + url.PathEscape(c.ID)
	case c.filterFlags == filterFlags{}:
		return wrongUsage("say which channels: --lease, --tenant, --worker or --id")
	}
	var answer struct {
		Closed int `json:"closed"`
	}
	if err := c.call(a, http.MethodDelete, path, &answer); err != nil {
		return err
	}
	if c.json() {
		return a.writeJSON(answer)
	}
	fmt.Fprintf(a.stdout, "closed %d\n", answer.Closed)
	if answer.Closed == 0 {
		return errNo
	}
	return nil
}

const adminCallTime = 10 * time.Second

// call asks the admin listener and reads its JSON answer.
func (f adminFlags) call(a *app, method, path string, answer any) error {
	base, token, err := f.admin()
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(a.ctx, method, base+path, nil)
	if err != nil {
		return wrongUsage("--admin: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	client := &http.Client{Timeout: adminCallTime, Transport: &http.Transport{}} // no proxy: it is this machine's own
	response, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("ask the admin listener (is the gateway running?): %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<20))
	if err != nil {
		return fmt.Errorf("read the admin listener's answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		var told struct{ Error string }
		_ = json.Unmarshal(body, &told)
		return fmt.Errorf("the admin listener answered %s: %s", response.Status, told.Error)
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return fmt.Errorf("read the admin listener's answer: %w", err)
	}
	return nil
}

// admin is the listener's URL and token.
func (f adminFlags) admin() (base, token string, err error) {
	cfg, err := f.load()
	if err != nil {
		return "", "", err
	}
	file := f.TokenFile
	switch {
	case file != "":
	case cfg.Admin.TokenFile != "":
		file = cfg.Admin.TokenFile
	case cfg.StateDir != "":
		file = filepath.Join(cfg.StateDir, "admin-token")
	default:
		return "", "", wrongUsage("the admin calls need a token: configure admin.token_file or state_dir, or give --token-file")
	}
	if token, err = readToken(file); err != nil {
		return "", "", wrongUsage("%w", err)
	}
	if f.Admin != "" {
		return strings.TrimSuffix(f.Admin, "/"), token, nil
	}
	host, port, err := net.SplitHostPort(cfg.Admin.Address)
	if err != nil {
		return "", "", wrongUsage("admin.address: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port), token, nil
}
