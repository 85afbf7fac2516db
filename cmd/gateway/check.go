package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sluice/internal/authz"
	"text/tabwriter"
)

type checkCommand struct {
	configFlags
	Records  string `placeholder:"DIR" help:"Check the records of this directory, in place of the configured file store's."`
	Policies string `placeholder:"DIR" help:"Check the policies of this directory or bundle, in place of policies.path."`
	Limits   bool   `help:"List every limit in force."`
	outputFlags
}

// checker collects what is wrong, and what is merely worth knowing.
type checker struct {
	Fine     bool          `json:"fine"`
	Faults   []ConfigFault `json:"faults"`
	Warnings []ConfigFault `json:"warnings"`
	Records  int           `json:"records"`          // how many were looked at
	Limits   []Limit       `json:"limits,omitempty"` // with --limits

	Policies *policiesFound `json:"policies,omitempty"` // the team's own, when there are any

	capabilities []authz.Capability // of the checked policies; empty when there are none
	extraFields  []string           // policies.extra_fields
	subject      string             // what was looked at but for the records
	read         bool               // whether records were looked at
	unread       string             // the store's type, when they were not and might be expected to be
}

// policiesFound counts the rules of the team's that the gateway asks for.
type policiesFound struct {
	Deny   int `json:"deny"`
	Limits int `json:"limits"`
}

func (k *checker) fault(f ConfigFault)   { k.Faults = append(k.Faults, f) }
func (k *checker) warning(f ConfigFault) { k.Warnings = append(k.Warnings, f) }

// Run checks everything that there is; what could not be read because of a
// fault elsewhere is left out.
func (c *checkCommand) Run(a *app) error {
	if c.Config != "" {
		if _, err := os.Stat(c.Config); err != nil {
			return wrongUsage("--config: %w", err)
		}
	}
	k := &checker{Faults: []ConfigFault{}, Warnings: []ConfigFault{}}
	cfg := k.config(c.configFlags)
	k.subject = "configuration and policies"
	if c.Policies != "" && c.Records == "" && !c.configFlags.given() {
		k.subject = "policies"
	}
	if err := k.policies(a.ctx, cfg, c.Policies); err != nil {
		return err
	}
	if k.subject != "policies" {
		if err := k.recordsOf(a.ctx, cfg, c.Records); err != nil {
			return err
		}
	}
	if !k.read && c.configFlags.given() && cfg != nil {
		k.unread = cfg.Store.Type
	}
	if cfg != nil {
		k.files(cfg)
		if c.configFlags.given() {
			k.Warnings = append(k.Warnings, configWarnings(cfg)...)
			k.routes(cfg)
		}
		if c.Limits {
			k.Limits = cfg.Limits()
		}
	}
	k.Fine = len(k.Faults) == 0
	return c.answer(a, k)
}

func (c *checkCommand) answer(a *app, k *checker) error {
	if c.json() {
		if err := a.writeJSON(k); err != nil {
			return err
		}
	} else {
		k.print(a)
	}
	if !k.Fine {
		return errNo
	}
	return nil
}

func (k *checker) print(a *app) {
	if len(k.Limits) > 0 {
		printLimits(a, k.Limits)
	}
	for _, w := range k.Warnings {
		fmt.Fprintf(a.stderr, "warning: %s\n", w)
	}
	for _, f := range k.Faults {
		fmt.Fprintln(a.stderr, f)
	}
	if !k.Fine {
		fmt.Fprintf(a.stderr, "%s\n", plural(len(k.Faults), "fault"))
		return
	}
	if p := k.Policies; p != nil {
		fmt.Fprintf(a.stdout, "policies: %s, %d limits\n", plural(p.Deny, "deny rule"), p.Limits)
	}
	if k.unread != "" {
		fmt.Fprintf(a.stdout, "the records were not read: they are in %s; gateway records list KIND shows them\n", k.unread)
	}
	if k.read {
		fmt.Fprintf(a.stdout, "configuration, policies and %s are fine\n", plural(k.Records, "record"))
		return
	}
	fmt.Fprintf(a.stdout, "%s are fine\n", k.subject)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func printLimits(a *app, limits []Limit) {
	w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "LIMIT\tVALUE\tMEANS")
	for _, l := range limits {
		fixed := ""
		if l.Fixed {
			fixed = " (fixed)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s%s\n", l.Name, l.Value, l.Means, fixed)
	}
	_ = w.Flush()
	fmt.Fprintln(a.stdout)
}

// config loads the configuration; nil when it has faults.
func (k *checker) config(flags configFlags) *Config {
	cfg, err := flags.load()
	if err == nil {
		return cfg
	}
	if e, ok := errors.AsType[*ConfigError](err); ok {
		k.Faults = append(k.Faults, e.Faults...)
	} else {
		k.fault(ConfigFault{Message: err.Error()})
	}
	return nil
}

// configWarnings are about what a configuration may say and probably does not
// mean. A gateway that starts logs them.
func configWarnings(cfg *Config) []ConfigFault {
	var found []ConfigFault
	warn := func(path, format string, args ...any) {
		found = append(found, cfg.fault(path, format, args...))
	}
	if dir := cfg.Store.File.Dir; cfg.Store.Type == "file" && !isDirectory(dir) {
		warn("store.file.dir", "%s is not there yet, so there are no records", dir)
	}
	if verify := cfg.Store.Verify; verify.KeysFile != "" && !verify.Required {
		warn("store.verify.required", "is false, so what is not signed is taken too, and whoever writes to the store can grant; set it to true when every record is signed")
	}
	if cfg.Workers.Link == "static" {
		warn("workers.link", "static takes your word in place of the workers' live documents: a worker that lost a method or was replaced is not noticed; probe or watch notice it")
		if len(cfg.Workers.Static) == 0 {
			warn("workers.static", "is empty, so no worker is known")
		}
	}
	for i, w := range cfg.Workers.Static {
		if address, ok := literalAddress(w.URL); ok && !cfg.Workers.covers(address) {
			warn(index("workers.static", i)+".url", "%s is outside workers.allow, so it will never be dialled", address)
		}
	}
	if cfg.Identity.TokensFile == "" {
		warn("identity", "no caller is known, so every request is refused; see gateway token new")
	}
	if cfg.Admin.TokenFile == "" && cfg.StateDir == "" {
		warn("admin", "there is neither token_file nor state_dir, so the calls that need the token are off")
	}
	if host, _, ok := splitAddress(cfg.Listen.Address); ok && cfg.Listen.TLS.CertFile == "" && !isLoopback(host) {
		warn("listen.address", "is reachable from other machines without TLS: tokens travel in the clear")
	}
	return found
}

// logWarnings logs what check would warn of.
func logWarnings(log *slog.Logger, cfg *Config) {
	for _, w := range configWarnings(cfg) {
		log.Warn("configuration is probably not what is meant", "key", w.Path, "why", w.Message)
	}
}

// routes warns of capabilities that the policies do not have.
func (k *checker) routes(cfg *Config) {
	for i, r := range cfg.Routes {
		if len(k.capabilities) > 0 && !slices.Contains(k.capabilities, r.Capability) {
			k.warning(cfg.fault(index("routes", i)+".capability", "%s is not in the policies' table, so every request is refused", r.Capability))
		}
	}
}
