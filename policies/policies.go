// Package policies carries the shipped Rego packages, their tables and the
// input schema inside the binary.
//
// Everything under sluice/ is what `opa test policies policy_test` and `opa
// check --schema policies/sluice/schemas policies` see; internal/pdp compiles
// the same files. Nothing else lives here: go:embed cannot reach upwards.
package policies

import "embed"

// FS holds the tree "sluice".
//
//go:embed sluice
var FS embed.FS

// Schema is the JSON Schema of the policy input.
//
//go:embed sluice/schemas/input.json
var Schema []byte
