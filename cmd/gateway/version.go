package main

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"sluice/internal/pdp"

	opa "github.com/open-policy-agent/opa/v1/version"
)

// release and commit are set by the linker (-X main.release=1.2.3); without
// that, what the build recorded of its source speaks.
var (
	release string
	commit  string
)

type versionCommand struct {
	outputFlags
}

// versionInfo is what the binary is made of.
type versionInfo struct {
	Version        string `json:"version"`
	Commit         string `json:"commit"`
	OPA            string `json:"opa"`
	Go             string `json:"go"`
	PolicyRevision string `json:"policyRevision"` // of the shipped packages
}

// Run prints the versions.
func (c *versionCommand) Run(a *app) error {
	info := buildVersion()
	engine, err := pdp.New(pdp.Options{})
	if err != nil {
		return err
	}
	if err := engine.Reload(a.ctx); err != nil {
		return err
	}
	info.PolicyRevision = engine.Revision()
	if c.json() {
		return a.writeJSON(info)
	}
	fmt.Fprintf(a.stdout, "Version:          %s\nCommit:           %s\nOPA:              %s\nGo:               %s\nPolicy revision:  %s\n",
		info.Version, info.Commit, info.OPA, info.Go, info.PolicyRevision)
	return nil
}

// buildVersion is all but the policy revision.
func buildVersion() versionInfo {
	info := versionInfo{Version: release, Commit: commit, OPA: opa.Version}
	if build, ok := debug.ReadBuildInfo(); ok {
		info.Go = build.GoVersion
		info.Version = cmp.Or(info.Version, build.Main.Version)
		for _, s := range build.Settings {
			switch {
			case s.Key == "vcs.revision":
				info.Commit = cmp.Or(info.Commit, s.Value)
			case s.Key == "vcs.modified" && s.Value == "true" && commit == "":
				info.Commit += " (modified)"
			}
		}
	}
	info.Version, info.Commit = cmp.Or(info.Version, "(devel)"), cmp.Or(info.Commit, "unknown")
	return info
}
