package main

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What the documents tell a reader to type is typed here, in order, in a copy
// of what they would have checked out. A block that begins with ```sh is run;
// a ```text block right behind it is what it must print, where "…" stands for
// anything in a line. A ```console block is not run: it needs what a test
// machine has not (a cluster, root).
//
// Four words mean something else than to the reader: "make" only says what it
// would do (it would run these tests again), "go build" builds where the
// build cache knows the source, "gateway" is this test binary, and the ports
// are free ones.

// docPorts are the ports of the documents; each run gets others.
var docPorts = []string{"8080", "8282", "8283", "9000", "6380"}

// docBlock is one fenced block of a document.
type docBlock struct {
	line       int
	info, text string
}

var docFence = regexp.MustCompile("^ {0,3}```([a-z]*) *$")

// docBlocks returns the fenced blocks of a document, with what stands between
// them left out; a block that follows directly on another has its line right
// behind it.
func docBlocks(t *testing.T, path string) []docBlock {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []docBlock
	var open *docBlock
	for i, line := range strings.Split(string(text), "\n") {
		fence := docFence.FindStringSubmatch(line)
		switch {
		case fence == nil && open != nil:
			open.text += line + "\n"
		case fence != nil && open == nil:
			open = &docBlock{line: i + 1, info: fence[1]}
		case fence != nil:
			blocks = append(blocks, *open)
			open = nil
		}
	}
	if open != nil {
		t.Fatalf("%s:%d: the block does not end", path, open.line)
	}
	return blocks
}

// documents are all Markdown files of the repository.
func documents(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(docRoot, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != docRoot {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".md") {
			found = append(found, path)
		}
		return err
	})
	if err != nil || len(found) < 5 {
		t.Fatalf("found %v, %v", found, err)
	}
	return found
}

const docRoot = "../.."

// docStep is a shell block and what it must print.
type docStep struct {
	docBlock
	prints string // "" where the document does not say
}

func docSteps(t *testing.T, path string) []docStep {
	t.Helper()
	var steps []docStep
	behind := 0 // the line behind the last block
	for _, b := range docBlocks(t, path) {
		switch {
		case b.info == "sh":
			steps = append(steps, docStep{docBlock: b})
		case b.info == "text" && b.line == behind && len(steps) > 0:
			steps[len(steps)-1].prints = b.text
		}
		behind = b.line + strings.Count(b.text, "\n") + 2
	}
	return steps
}

func TestWhatTheDocumentsSayToTypeDoesWhatTheySay(t *testing.T) {
	samples := buildSamples(t)
	for _, path := range documents(t) {
		steps := docSteps(t, path)
		if len(steps) == 0 {
			continue
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			newDocRun(t, samples).play(path, steps)
		})
	}
}

// buildSamples builds the programs of deploy, as the documents say, and fetches
// what `go tool opa` is made of, so that this is not printed where it runs first.
func buildSamples(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "./deploy/...")
	build.Dir = docRoot
	opa := exec.Command("go", "tool", "opa", "version")
	opa.Dir = docRoot
	for _, command := range []*exec.Cmd{build, opa} {
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command.Args, err, out)
		}
	}
	return dir
}

// docRun is one reader: a copy of the repository, and a shell in it.
type docRun struct {
	t     *testing.T
	dir   string // the copy; a document's commands begin here
	out   string // what each step printed
	ports map[string]string
}

func newDocRun(t *testing.T, samples string) *docRun {
	t.Helper()
	r := &docRun{t: t, dir: t.TempDir(), out: t.TempDir(), ports: map[string]string{}}
	for _, port := range docPorts {
		r.ports[port] = docFreePort(t, r.ports)
	}
	for _, part := range []string{"deploy", "policies", "policy_test"} {
		r.copyTree(filepath.Join(docRoot, part), filepath.Join(r.dir, part))
	}
	r.writeTools(samples)
	return r
}

func (r *docRun) copyTree(from, to string) {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		r.t.Fatal(err)
	}
	err := filepath.WalkDir(to, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !slices.Contains([]string{".json", ".jsonl", ".yaml"}, filepath.Ext(path)) {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, []byte(r.withPorts(string(text))), 0o600)
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// writeTools lays out the commands of the documents.
func (r *docRun) writeTools(samples string) {
	root, err := filepath.Abs(docRoot)
	if err != nil {
		r.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	goTool, err := exec.LookPath("go")
	if err != nil {
		r.t.Fatal(err)
	}
	ports := ""
	for from, to := range r.ports {
		ports += fmt.Sprintf("s/:%s/:%s/g; ", from, to)
	}
	tools := map[string]string{
		// A busy machine must not change a verdict, so evaluation gets longer
		// than its 50 ms.
		"gateway": fmt.Sprintf(`export SLUICE_TEST_GATEWAY=1
case "$1" in
init)
	for last; do :; done
	%[1]q "$@" >init.out || exit
	sed '%[2]s' init.out && rm init.out
	sed -i '%[2]s' "$last/gateway.yaml" ;;
serve) exec %[1]q "$@" --set evaluation.timeout=2s ;;
*) exec %[1]q "$@" ;;
esac`, self, ports),
		"make": fmt.Sprintf(`exec /usr/bin/env -u MAKEFLAGS PATH="$REAL_PATH" make -n -C %q "$@"`, root),
		"go": fmt.Sprintf(`case "$1 $2 $3 $4" in
"build -o bin/ ./deploy/...") exit 0 ;; # done already, from the same source
*) cd %q && exec %q "$@" ;;
esac`, root, goTool),
		"python3": `exec /usr/bin/python3 "$@"`,
	}
	bin := filepath.Join(r.dir, "bin")
	if err := os.CopyFS(bin, os.DirFS(samples)); err != nil {
		r.t.Fatal(err)
	}
	for name, text := range tools {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			r.t.Fatal(err)
		}
	}
}

var docPort = regexp.MustCompile(`\b(` + strings.Join(docPorts, "|") + `)\b`)

func (r *docRun) withPorts(text string) string {
	return docPort.ReplaceAllStringFunc(text, func(port string) string { return r.ports[port] })
}

// docFreePort finds a port below those that the system gives out by itself.
func docFreePort(t *testing.T, taken map[string]string) string {
	t.Helper()
	for range 1000 {
		port := fmt.Sprint(10000 + rand.IntN(20000))
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			continue
		}
		_ = l.Close()
		used := false
		for _, other := range taken {
			used = used || other == port
		}
		if !used {
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// play runs the steps in one shell, whose children all end with it.
func (r *docRun) play(path string, steps []docStep) {
	r.t.Helper()
	script := "set -eu\n"
	for i, step := range steps {
		script += fmt.Sprintf("{\n%s} >%q 2>&1 </dev/null\n", r.withPorts(step.text), r.printed(i))
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), 3*time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "/bin/sh", "-c", script)
	shell.Dir = r.dir
	shell.Env = append(os.Environ(), "PATH="+filepath.Join(r.dir, "bin")+":"+os.Getenv("PATH"), "REAL_PATH="+os.Getenv("PATH"))
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
	err := shell.Run()
	if shell.Process != nil {
		_ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL)
	}
	for i, step := range steps {
		r.compare(fmt.Sprintf("%s:%d", path, step.line), i, step)
	}
	if err != nil {
		r.t.Errorf("%s: the commands ended with %v; the gateway's log:\n%s", path, err, r.logs())
	}
}

func (r *docRun) printed(i int) string { return filepath.Join(r.out, fmt.Sprint(i)) }

func (r *docRun) compare(place string, i int, step docStep) {
	r.t.Helper()
	out, err := os.ReadFile(r.printed(i))
	if err != nil {
		r.t.Errorf("%s: was not reached", place)
		return
	}
	want := regexp.QuoteMeta(strings.TrimSpace(r.withPorts(step.prints)))
	want = strings.ReplaceAll(want, "…", ".*")
	if step.prints != "" && !regexp.MustCompile("^"+want+"$").MatchString(strings.TrimSpace(string(out))) {
		r.t.Errorf("%s: printed\n%s\nand the document says\n%s", place, out, step.prints)
	} else {
		r.t.Logf("%s: printed\n%s", place, out)
	}
}

func (r *docRun) logs() string {
	files, _ := filepath.Glob(filepath.Join(r.dir, "*", "gateway.log"))
	text := ""
	for _, file := range files {
		log, _ := os.ReadFile(file)
		text += string(log)
	}
	return text
}
