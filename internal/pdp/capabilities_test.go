package pdp

import (
	"encoding/json"
	"flag"
	"os"
	"slices"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
)

var update = flag.Bool("update", false, "rewrite generated files")

// forbidden are the builtins that OPA does not itself mark as giving another
// answer each time, and that a decision must not use all the same: output, and
// verifications that look at the clock unless told a time.
var forbidden = []string{
	"trace", "print", "internal.print",
	"io.jwt.decode_verify",
	"crypto.x509.parse_and_verify_certificates", "crypto.x509.parse_and_verify_certificates_with_options",
}

func TestTheCapabilitiesFileIsOPAsListWithoutNetworkClockAndOutput(t *testing.T) {
	want := ast.CapabilitiesForThisVersion()
	want.Builtins = slices.DeleteFunc(want.Builtins, func(b *ast.Builtin) bool {
		return b.Nondeterministic || slices.Contains(forbidden, b.Name)
	})
	want.AllowNet = []string{}
	text, err := json.MarshalIndent(want, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	if *update {
		if err := os.WriteFile("capabilities.json", text, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != string(capabilitiesFile) {
		t.Fatal("capabilities.json is not OPA's list as filtered here; go test -run Capabilities -update ./internal/pdp")
	}
}

func TestNoBuiltinGivesAnotherAnswerEachTime(t *testing.T) {
	caps, err := loadCapabilities()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"http.send", "net.lookup_ip_addr", "opa.runtime", "rand.intn", "time.now_ns",
		"uuid.rfc4122", "trace", "print", "io.jwt.encode_sign", "io.jwt.encode_sign_raw", "io.jwt.decode_verify",
	} {
		if slices.ContainsFunc(caps.Builtins, func(b *ast.Builtin) bool { return b.Name == name }) {
			t.Errorf("%s is allowed", name)
		}
	}
}
