package pdp

import (
	"bytes"
	_ "embed"
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
)

// capabilitiesFile is what policies may use: OPA's own list without network,
// clock, randomness, the process's environment and output. The same question
// then always has the same answer, and a policy cannot call home.
//
//go:embed capabilities.json
var capabilitiesFile []byte

// Capabilities returns the list of builtins and features that policies are
// compiled with, for `opa check --capabilities`.
func Capabilities() []byte { return bytes.Clone(capabilitiesFile) }

func loadCapabilities() (*ast.Capabilities, error) {
	caps, err := ast.LoadCapabilitiesJSON(bytes.NewReader(capabilitiesFile))
	if err != nil {
		return nil, fmt.Errorf("reading the capabilities file: %w", err)
	}
	return caps, nil
}
