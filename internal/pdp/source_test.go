package pdp

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io/fs"
	"os"
	"path/filepath"
	"sluice/policies"
	"strings"
	"testing"
	"time"
)

// files are a directory's, by name.
type files map[string]string

func (f files) write(t testing.TB, dir string) {
	t.Helper()
	for name, text := range f {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func (f files) dir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	f.write(t, dir)
	return dir
}

// bundle packs the files as an OPA bundle.
func (f files) bundle(t testing.TB) string {
	t.Helper()
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	out := tar.NewWriter(zip)
	for name, text := range f {
		if err := out.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "bundle.tar.gz")
	if err := os.WriteFile(path, packed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// custom is a rule of a team's own.
func custom(rules string) files {
	return files{"team.rego": "package sluice.custom\n\n" + rules + "\n"}
}

func load(t testing.TB, o Options) (*policySet, error) {
	t.Helper()
	o, err := o.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return buildSet(t.Context(), o)
}

func TestABadSetIsRefusedWithItsPlace(t *testing.T) {
	for name, test := range map[string]struct {
		files files
		want  string
	}{
		"a word too many":            {custom(`deny contains "x" if if`), "team.rego:3:"},
		"the v0 syntax":              {custom(`deny["x"] { true }`), "team.rego:3:1: rego_parse_error"},
		"an unknown function":        {custom(`deny contains "x" if no.such(1)`), "team.rego:3:22: rego_type_error"},
		"a type that cannot be":      {custom(`deny contains "x" if count(1) == 1`), "team.rego:3:22: rego_type_error"},
		"an unused variable":         {custom("deny contains \"x\" if {\n\tx := 1\n}"), "team.rego:4:2: rego_compile_error"},
		"an unsafe variable":         {custom(`deny contains x if true`), "team.rego:3:15: rego_unsafe_var_error"},
		"a misspelt field":           {custom(`deny contains "x" if input.snapshott.lease`), "team.rego:3:22: rego_type_error"},
		"a misspelt field below":     {custom(`deny contains "x" if input.request.metod == "GET"`), "team.rego:3:22: rego_type_error"},
		"a deny that is a value":     {custom(`deny := true`), "team.rego:3:1: rego_type_error: conflicting rules data.sluice.custom.deny"},
		"a deny that is a boolean":   {custom(`deny if input.request.method == "GET"`), "team.rego:3:1: rego_type_error: conflicting rules data.sluice.custom.deny"},
		"a deny that is a map":       {custom(`deny["x"] := true if true`), "team.rego:3:1: rego_type_error: rule data.sluice.custom.deny conflicts"},
		"a deny that is a function":  {custom(`deny(x) := true if x`), "conflicting rules data.sluice.custom.deny"},
		"limits that are a set":      {custom(`limits contains 1`), "conflicting rules data.sluice.custom.limits"},
		"a call home":                {custom(`deny contains "x" if http.send({"method": "GET", "url": "http://a"}).status_code == 200`), "undefined function http.send"},
		"a look at the clock":        {custom(`deny contains "x" if time.now_ns() > 0`), "undefined function time.now_ns"},
		"a look at the environment":  {custom(`deny contains "x" if opa.runtime().env`), "undefined function opa.runtime"},
		"a name looked up":           {custom(`deny contains "x" if net.lookup_ip_addr("a")`), "undefined function net.lookup_ip_addr"},
		"dice":                       {custom(`deny contains "x" if rand.intn("x", 2) == 1`), "undefined function rand.intn"},
		"a random name":              {custom(`deny contains uuid.rfc4122("x")`), "undefined function uuid.rfc4122"},
		"print":                      {custom("deny contains \"x\" if {\n\tprint(input)\n}"), "team.rego:4:2: rego_type_error: undefined function internal.print"},
		"trace":                      {custom(`deny contains "x" if trace("x")`), "undefined function trace"},
		"a circle":                   {custom(`deny contains "x" if data.sluice.authz.allow`), "rego_recursion_error"},
		"a misspelt package":         {files{"a.rego": "package sluice.costum\n\ndeny contains \"x\" if true\n"}, "a.rego:1:1: nobody knows package sluice.costum"},
		"a package below the team's": {files{"a.rego": "package sluice.custom.more\n\nx := 1\n"}, "a.rego:1:1: nobody knows package sluice.custom.more"},
		"the root package":           {files{"a.rego": "package sluice\n\nx := 1\n"}, "a.rego:1:1: nobody knows package sluice"},
		"a shipped package":          {files{"a.rego": "package sluice.authz\n\nx := 1\n"}, "a.rego:1:1: package sluice.authz comes with the gateway"},
		"the shipped tables":         {files{"sluice/tables/data.json": `{"opt_in": []}`}, "data.sluice.tables comes with the gateway"},
		"data that nobody knows":     {files{"sluice/other/data.json": `{"a": 1}`}, "nobody knows data.sluice.other"},
		"data where a rule is":       {files{"sluice/custom/data.json": `{"deny": ["x"]}`}, "data path sluice/custom/deny"},
		"broken JSON":                {files{"acme/data.json": "{\n  \"a\": 1,,\n}"}, "acme/data.json:2:10: "},
		"a key twice":                {files{"acme/data.json": "{\"a\": 1,\n \"a\": 2}"}, "acme/data.json:2:2: "},
		"a list for data":            {files{"acme/data.json": `[]`}, "acme/data.json:1:1: data is no object"},
		"the same data twice":        {files{"acme/a.json": `{"a": 1}`, "acme/b.json": `{"a": 2}`}, "data.acme.a is given twice"},
		"broken YAML":                {files{"acme/data.yaml": "a: [1"}, "acme/data.yaml"},
		"bytes that are no text":     {files{"a.rego": "package \xff\xfe"}, "a.rego:1:"},
		"a test of an unknown":       {files{"a_test.rego": "package sluice.costum_test\n\ntest_x if true\n"}, "a_test.rego:1:1: nobody knows"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, Options{Path: test.files.dir(t)})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

func TestAllFaultsAreToldAtOnce(t *testing.T) {
	set := files{}
	for _, name := range []string{"a.rego", "b.rego"} {
		set[name] = "package sluice.custom\n\ndeny contains if\n"
	}
	_, err := load(t, Options{Path: set.dir(t)})
	if err == nil || !strings.Contains(err.Error(), "a.rego:3:") || !strings.Contains(err.Error(), "b.rego:3:") {
		t.Errorf("got %v", err)
	}
}

func TestAPathThatIsNoneIsRefused(t *testing.T) {
	for _, path := range []string{
		filepath.Join(t.TempDir(), "absent"),
		filepath.Join(custom("").dir(t), "team.rego"),
	} {
		if _, err := load(t, Options{Path: path}); err == nil {
			t.Errorf("%s was loaded", path)
		}
	}
	broken := filepath.Join(t.TempDir(), "bundle.tar.gz")
	if err := os.WriteFile(broken, []byte("no gzip"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := load(t, Options{Path: broken}); err == nil || !strings.Contains(err.Error(), broken) {
		t.Errorf("got %v", err)
	}
}

func TestATeamsSetIsLoadedFromADirectoryAndFromABundle(t *testing.T) {
	set := files{
		"sluice/custom/custom.rego":      "package sluice.custom\n\ndeny contains \"banned\" if data.acme.banned[input.principal.subject]\n",
		"acme/data.json":                 `{"banned": {"agent-7": true}}`,
		"acme/lib.rego":                  "package acme.lib\n\nx := 1\n",
		"sluice/custom/custom_test.rego": "package sluice.custom_test\n\ntest_fails if false\n",
	}
	for name, path := range map[string]string{"directory": set.dir(t), "bundle": set.bundle(t)} {
		t.Run(name, func(t *testing.T) {
			s, err := load(t, Options{Path: path, Required: []string{"sluice.custom", "data.acme.lib", "sluice.authz"}})
			if err != nil {
				t.Fatal(err)
			}
			d := s.decide(question(t, "grants"), patient())
			if d.Allow || len(d.Reasons) != 2 || d.Reasons[1] != "banned" {
				t.Errorf("got %+v", d)
			}
		})
	}
}

func TestHiddenFilesAndLinksOfAConfigMapAreNotReadTwice(t *testing.T) {
	dir := t.TempDir()
	files{"..v1/team.rego": "package sluice.custom\n\ndeny contains \"once\" if true\n", ".git/x.rego": "no rego"}.write(t, dir)
	for link, target := range map[string]string{"..data": "..v1", "team.rego": "..data/team.rego"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := load(t, Options{Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	if d := s.decide(question(t, "grants"), patient()); len(d.Reasons) != 2 || d.Reasons[1] != "once" {
		t.Errorf("got %+v", d)
	}
}

func TestLinksInACircleAreRefused(t *testing.T) {
	dir := custom("").dir(t)
	if err := os.Symlink("..", filepath.Join(dir, "up")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(".", filepath.Join(dir, "here")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "up")); err != nil {
		t.Fatal(err)
	}
	if _, err := load(t, Options{Path: dir}); err == nil {
		t.Error("it was loaded")
	}
}

func TestARequiredPackageMustBeTheTeamsOwn(t *testing.T) {
	for _, required := range []string{"sluice.custom", "acme.lib"} {
		_, err := load(t, Options{Path: files{"b.rego": "package acme.other\n\nx := 1\n"}.dir(t), Required: []string{required}})
		if err == nil || !strings.Contains(err.Error(), "lacks package "+required) {
			t.Errorf("got %v", err)
		}
	}
}

func TestWithReplaceThePathBringsPackagesAndTables(t *testing.T) {
	path := files{
		"a.rego":                  "package sluice.teardown\n\ndecision := {\"ready\": false, \"reason\": \"NEVER\"}\n",
		"sluice/schemas/in.json":  `{"type": "object"}`,
		"sluice/tables/data.json": `{"capabilities": {"flying": {"methods": [["fly", "glide"]]}}}`,
	}.dir(t)
	s, err := load(t, Options{Path: path, Replace: true})
	if err != nil {
		t.Fatal(err)
	}
	if ready, reason := s.tearDown(question(t, "grants"), patient()); ready || reason != "NEVER" {
		t.Errorf("got %v %s", ready, reason)
	}
	if len(s.capabilities) != 1 || s.capabilities[0] != "flying" {
		t.Errorf("got %v", s.capabilities)
	}
}

// The whole shipped tree, as it is copied or built to be changed.
func TestACopyOfTheShippedTreeReplacesIt(t *testing.T) {
	whole := files{}
	err := fs.WalkDir(policies.FS, "sluice", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(policies.FS, name)
		whole[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	whole["team.rego"] = "# METADATA\n# title: ours\npackage acme\n\nx := 1\n"
	for name, path := range map[string]string{"directory": whole.dir(t), "bundle": whole.bundle(t)} {
		s, err := load(t, Options{Path: path, Replace: true})
		if err != nil {
			t.Fatal(name, err)
		}
		if d := s.decide(question(t, "grants"), patient()); !d.Allow {
			t.Errorf("%s: got %+v", name, d)
		}
		if _, err := load(t, Options{Path: path}); err == nil {
			t.Errorf("%s was taken without replace", name)
		}
	}
}

func TestATeamMayDescribeItsPackage(t *testing.T) {
	set := files{"team.rego": "# METADATA\n# title: ours\n# scope: package\npackage sluice.custom\n\n# METADATA\n# title: none\ndeny contains \"x\" if false\n"}
	if _, err := load(t, Options{Path: set.dir(t)}); err != nil {
		t.Error(err)
	}
}

func TestReplacingMustLeaveEveryQuestionAnswered(t *testing.T) {
	for name, test := range map[string]struct {
		files files
		want  string
	}{
		"no decision":        {files{"a.rego": "package sluice.authz\n\nallow := true\n"}, "data.sluice.authz.decision"},
		"no table":           {files{"sluice/tables/data.json": `{}`}, "capability table is empty"},
		"a table of strings": {files{"sluice/tables/data.json": `{"capabilities": []}`}, "reading the tables"},
		"a need of nothing":  {files{"sluice/tables/data.json": `{"capabilities": {"a": {"methods": []}}}`}, "needs no live method"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, Options{Path: test.files.dir(t), Replace: true})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

func TestASetWhoseTestsFailIsRefusedWhenAskedTo(t *testing.T) {
	with := func(test string) Options {
		set := custom(`deny contains "x" if input.request.method == "PUT"`)
		set["team_test.rego"] = "package sluice.custom_test\n\n" + test
		return Options{Path: set.dir(t), RunTests: true}
	}
	if _, err := load(t, with("test_put if \"x\" in data.sluice.custom.deny with input.request.method as \"PUT\"\n")); err != nil {
		t.Error(err)
	}
	_, err := load(t, with("test_get if \"x\" in data.sluice.custom.deny with input.request.method as \"GET\"\n"))
	if err == nil || !strings.Contains(err.Error(), "team_test.rego:3:1: test data.sluice.custom_test.test_get: fails") {
		t.Errorf("got %v", err)
	}
	if _, err := load(t, with("test_x if nothing(1)\n")); err == nil {
		t.Error("a test that does not compile passed")
	}
	beside := custom("deny contains \"x\" if false\n\ntest_x if false")
	if _, err := load(t, Options{Path: beside.dir(t), RunTests: true}); err == nil || !strings.Contains(err.Error(), "team.rego:5:1: test data.sluice.custom.test_x: fails") {
		t.Errorf("beside the rules: %v", err)
	}
}

func TestARevisionNamesTheContent(t *testing.T) {
	one := custom(`deny contains "x" if false`)
	revision := func(f files) string {
		s, err := load(t, Options{Path: f.dir(t)})
		if err != nil {
			t.Fatal(err)
		}
		return s.revision
	}
	a, b := revision(one), revision(custom(`deny contains "y" if false`))
	if a != revision(one) || a == b {
		t.Errorf("%s, %s", a, b)
	}
}

// patient is an evaluation that is given time.
func patient() *evaluation {
	e := new(evaluation)
	e.begin(time.Minute)
	return e
}

func TestAClassicMistakeIsToldWithItsWayOut(t *testing.T) {
	for rule, want := range map[string]string{
		`deny contains "x" if http.send({"url": "x"}).status == 200`: "no clock, network, randomness or output; the time is input.now_ns",
		`deny contains "x" if time.now_ns() > 3`:                     "the time is input.now_ns",
		`deny contains "x" if rand.intn("x", 3) == 1`:                "may not be called",
		`deny contains "x" if opa.runtime().env.X == "1"`:            "may not be called",
		`deny contains "x" if print("x")`:                            "print and trace may not be called",
		`deny if input.now_ns > 3`:                                   `deny must be a set: deny contains "reason" if { ... }`,
		`deny := "x" if input.now_ns > 3`:                            "deny must be a set",
		`deny["x"] := 3`:                                             "deny must be a set",
		`limits contains "x" if true`:                                "limits must be one object",
	} {
		_, err := load(t, Options{Path: custom("\n" + rule + "\n").dir(t)})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v", rule, err)
		}
	}
}
