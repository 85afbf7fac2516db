package pdp

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/util"
)

// maxSource bounds one file of a policy source, in bytes: what is larger is a
// mistake, and would be compiled again at every change.
const maxSource = 64 << 20

// maxDepth bounds the directories of a policy source: deeper are only links in
// a circle.
const maxDepth = 16

// source is what one place (the binary, a directory, a bundle) holds, parsed
// and not yet compiled.
type source struct {
	modules map[string]*ast.Module // by file name
	tests   map[string]*ast.Module // *_test.rego
	data    map[string]any
	digest  hash.Hash
}

func newSource() *source {
	return &source{
		modules: map[string]*ast.Module{}, tests: map[string]*ast.Module{},
		data: map[string]any{}, digest: sha256.New(),
	}
}

// revision names the content: equal text in equal files has an equal name.
func (s *source) revision() string { return hex.EncodeToString(s.digest.Sum(nil))[:16] }

// loadPath reads a directory or a bundle.
func loadPath(name string, caps *ast.Capabilities) (*source, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("reading policies: %w", err)
	}
	if info.IsDir() {
		return loadTree(os.DirFS(name), ".", name, caps)
	}
	if !strings.HasSuffix(name, ".tar.gz") {
		return nil, fmt.Errorf("reading policies: %s is neither a directory nor a bundle (.tar.gz)", name)
	}
	return loadBundle(name, caps)
}

// loadTree reads every .rego, .json and .yaml file below root, as `opa test`
// would without -b: data stands under the names of its directories. Names that
// begin with a dot are skipped, among them those of a mounted ConfigMap, whose
// visible names are links to the current ones. shown is how the tree is named
// in errors.
func loadTree(tree fs.FS, root, shown string, caps *ast.Capabilities) (*source, error) {
	s := newSource()
	var errs []error
	for _, name := range filesBelow(tree, root, 0, &errs) {
		if err := s.addFile(tree, name, filepath.Join(shown, filepath.FromSlash(name)), caps); err != nil {
			errs = append(errs, err)
		}
	}
	return s, errors.Join(errs...)
}

// filesBelow lists files in order of their names; links are followed, but no
// deeper than a tree of policies is.
func filesBelow(tree fs.FS, dir string, depth int, errs *[]error) []string {
	if depth > maxDepth {
		*errs = append(*errs, fmt.Errorf("%s: directories are nested too deep", dir))
		return nil
	}
	entries, err := fs.ReadDir(tree, dir)
	if err != nil {
		*errs = append(*errs, fmt.Errorf("reading policies: %w", err))
		return nil
	}
	var files []string
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		info, err := fs.Stat(tree, name)
		switch {
		case err != nil:
			*errs = append(*errs, fmt.Errorf("reading policies: %w", err))
		case info.IsDir():
			files = append(files, filesBelow(tree, name, depth+1, errs)...)
		default:
			files = append(files, name)
		}
	}
	return files
}

func (s *source) addFile(tree fs.FS, name, shown string, caps *ast.Capabilities) error {
	ext := path.Ext(name)
	if !slices.Contains([]string{".rego", ".json", ".yaml", ".yml"}, ext) {
		return nil
	}
	info, err := fs.Stat(tree, name)
	if err != nil {
		return fmt.Errorf("reading policies: %w", err)
	}
	if info.Size() > maxSource {
		return fmt.Errorf("%s: larger than %d bytes", shown, maxSource)
	}
	text, err := fs.ReadFile(tree, name)
	if err != nil {
		return fmt.Errorf("reading policies: %w", err)
	}
	s.hash(name, text)
	if ext == ".rego" {
		return s.addModule(shown, text, caps)
	}
	return s.addData(path.Dir(name), shown, ext, text)
}

func (s *source) hash(name string, text []byte) {
	fmt.Fprintf(s.digest, "%q %d\n", name, len(text))
	s.digest.Write(text)
}

func (s *source) addModule(shown string, text []byte, caps *ast.Capabilities) error {
	module, err := ast.ParseModuleWithOpts(shown, string(text), ast.ParserOptions{
		Capabilities: caps, ProcessAnnotation: true, RegoVersion: ast.RegoV1,
	})
	switch {
	case err != nil:
		return placed(err)
	case module == nil:
		return nil // an empty file
	case strings.HasSuffix(shown, "_test.rego"):
		s.tests[shown] = module
	default:
		s.modules[shown] = module
	}
	return nil
}

func (s *source) addData(dir, shown, ext string, text []byte) error {
	if ext == ".json" {
		if err := checkJSON(shown, text); err != nil {
			return err
		}
	}
	var doc any
	if err := util.Unmarshal(text, &doc); err != nil {
		return fmt.Errorf("%s: %w", shown, err)
	}
	if doc == nil {
		return nil
	}
	object, ok := doc.(map[string]any)
	if !ok {
		return fmt.Errorf("%s:1:1: data is no object", shown)
	}
	if dir != "." {
		parts := strings.Split(dir, "/")
		for _, part := range slices.Backward(parts) {
			object = map[string]any{part: object}
		}
	}
	return mergeData(s.data, object, nil, shown)
}

// checkJSON refuses what is not JSON, or says something twice, with its place.
func checkJSON(shown string, text []byte) error {
	d := jsontext.NewDecoder(bytes.NewReader(text))
	_, err := d.ReadValue()
	if err == nil {
		return nil
	}
	line, col := 1, 1
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		before := text[:min(int(syntax.ByteOffset), len(text))]
		line = 1 + bytes.Count(before, []byte("\n"))
		col = len(before) - bytes.LastIndexByte(before, '\n')
	}
	return fmt.Errorf("%s:%d:%d: %w", shown, line, col, err)
}

func mergeData(into, from map[string]any, at []string, shown string) error {
	for key, value := range from {
		old, taken := into[key]
		if !taken {
			into[key] = value
			continue
		}
		a, aok := old.(map[string]any)
		b, bok := value.(map[string]any)
		if !aok || !bok {
			return fmt.Errorf("%s: data.%s is given twice", shown, strings.Join(append(at, key), "."))
		}
		if err := mergeData(a, b, append(at, key), shown); err != nil {
			return err
		}
	}
	return nil
}

// loadBundle reads an OPA bundle. A bundle of the operator's own disk is taken
// at the operator's word: signatures are for bundles that come over a network.
func loadBundle(name string, caps *ast.Capabilities) (*source, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading policies: %w", err)
	}
	defer func() { _ = file.Close() }()
	b, err := bundle.NewReader(file).
		WithSizeLimitBytes(maxSource).WithSkipBundleVerification(true).
		WithProcessAnnotations(true).WithRegoVersion(ast.RegoV1).WithCapabilities(caps).
		Read()
	if err != nil {
		return nil, fmt.Errorf("bundle %s: %w", name, placed(err))
	}
	if len(b.Patch.Data) > 0 {
		return nil, fmt.Errorf("bundle %s: it holds changes of another bundle, and is none itself", name)
	}
	s := newSource()
	for _, m := range b.Modules {
		shown := name + ":" + strings.TrimPrefix(m.Path, "/")
		s.hash(m.Path, m.Raw)
		if err := s.addModule(shown, m.Raw, caps); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(b.Data)
	if err != nil {
		return nil, fmt.Errorf("bundle %s: %w", name, err)
	}
	s.hash("data", text)
	if b.Data != nil {
		s.data = b.Data
	}
	return s, nil
}

// placed rewrites OPA's errors as file:line:column: what.
func placed(err error) error {
	list, ok := errors.AsType[ast.Errors](err)
	if !ok {
		return err
	}
	errs := make([]error, 0, len(list))
	for _, e := range list {
		// One fault is one line, and its place stands in front.
		what := fmt.Sprintf("%s: %s%s", e.Code, strings.Join(strings.Fields(e.Message), " "), wayOut(e.Message))
		if e.Location != nil {
			column := max(e.Location.Col, 1) // OPA gives the end of a file none
			what = fmt.Sprintf("%s:%d:%d: %s", e.Location.File, e.Location.Row, column, what)
		}
		if !slices.ContainsFunc(errs, func(other error) bool { return other.Error() == what }) {
			errs = append(errs, errors.New(what))
		}
	}
	return errors.Join(errs...)
}

// wayOut says, behind OPA's words for a mistake that every team makes once,
// what to do about it; "" for any other.
func wayOut(message string) string {
	name, found := strings.CutPrefix(message, "undefined function ")
	builtin := ast.BuiltinMap[name]
	switch {
	case !found:
		return teamRuleForm(message)
	case name == "print" || name == "trace" || strings.HasPrefix(name, "internal.print"):
		return " (print and trace may not be called: a policy has no output; remove them before the gateway loads it, gateway test shows what they print)"
	case builtin != nil:
		return " (it may not be called: a policy has no clock, network, randomness or output; the time is input.now_ns)"
	}
	return ""
}

// teamRuleForm is how the team's rules must be written, when message is that
// one of them collides with the shipped rule of its name.
func teamRuleForm(message string) string {
	collides := strings.Contains(message, "conflict")
	switch {
	case collides && strings.Contains(message, teamPackage+".deny"):
		return ` (deny must be a set: deny contains "reason" if { ... })`
	case collides && strings.Contains(message, teamPackage+".limits"):
		return ` (limits must be one object: limits := {"max_lifetime_ms": 3600000} if { ... })`
	}
	return ""
}
