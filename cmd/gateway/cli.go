package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/alecthomas/kong"
)

// Exit codes.
const (
	exitFine  = 0
	exitNo    = 1 // the answer is no
	exitUsage = 2 // wrong usage, or a configuration that the command cannot run with
)

// commands is the command tree.
type commands struct {
	Serve    serveCommand    `cmd:"" help:"Run the gateway."`
	Demo     demoCommand     `cmd:"" help:"Show the main job on this machine: grants, refusals, a revocation."`
	Init     initCommand     `cmd:"" help:"Write a first configuration in front of a WebSocket server."`
	Check    checkCommand    `cmd:"" help:"Validate configuration, policies and records."`
	Test     testCommand     `cmd:"" help:"Run Rego tests with the embedded OPA."`
	Eval     evalCommand     `cmd:"" help:"Decide cases from standard input."`
	Records  recordsCommand  `cmd:"" help:"Read and write the record store."`
	Channels channelsCommand `cmd:"" help:"List and close the live channels of a running gateway."`
	Token    tokenCommand    `cmd:"" help:"Make API tokens."`
	Version  versionCommand  `cmd:"" help:"Show the version."`
}

// app is what a command has of the world.
type app struct {
	ctx    context.Context
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
}

// exitError is an error that knows its exit code. With a nil error everything
// has been said already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// errNo is the answer no, when it has been given already.
var errNo = &exitError{code: exitNo}

// wrongUsage is an error that exits with exitUsage.
func wrongUsage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// exitCode of an error; without a code of its own it is exitNo.
func exitCode(err error) int {
	if err == nil {
		return exitFine
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	if _, ok := errors.AsType[*ConfigError](err); ok {
		return exitUsage
	}
	return exitNo
}

// run is the whole process: it takes the arguments after the program's name
// and returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	err := dispatch(&app{ctx, stdin, stdout, stderr}, args)
	if e, ok := errors.AsType[*exitError](err); err != nil && (!ok || e.err != nil) {
		fmt.Fprintf(stderr, "gateway: %v\n", err)
	}
	return exitCode(err)
}

// helpShown ends the parsing when help was shown: because it was asked for, or
// because nothing was.
type helpShown struct{ asked bool }

func (h helpShown) code() error {
	if h.asked {
		return nil
	}
	return &exitError{code: exitUsage}
}

func dispatch(a *app, args []string) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case helpShown:
			err = p.code()
		default:
			panic(p)
		}
	}()
	var tree commands
	parser, err := kong.New(&tree,
		kong.Name("gateway"),
		kong.Description("Sluice lets a caller through to a sandbox worker when the lease's capability allows it, and only for as long as it does."),
		kong.Writers(a.stdout, a.stderr),
		kong.Exit(func(int) { panic(helpShown{asked: len(args) > 0}) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: 100}),
	)
	if err != nil {
		return fmt.Errorf("set up the command line: %w", err)
	}
	if len(args) == 0 {
		parser.Stdout = a.stderr
		_, err = parser.Parse([]string{"--help"})
		return err
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return wrongUsage("%w; see %s --help", err, commandPath(err))
	}
	return parsed.Run(a)
}

// commandPath is the command that a usage error is about.
func commandPath(err error) string {
	if e, ok := errors.AsType[*kong.ParseError](err); ok && e.Context != nil && e.Context.Selected() != nil {
		return e.Context.Selected().FullPath()
	}
	return "gateway"
}

// configFlags choose the configuration.
type configFlags struct {
	Config string   `short:"c" placeholder:"FILE" help:"Configuration file; without one the defaults hold."`
	Set    []string `placeholder:"KEY=VALUE" sep:"none" help:"Lay a value over the configuration, such as listen.address=:8080 (repeatable)."`
}

func (f configFlags) load() (*Config, error) { return Load(f.Config, f.Set) }

// given says whether a configuration was chosen at all.
func (f configFlags) given() bool { return f.Config != "" || len(f.Set) > 0 }

// outputFlags choose how a command answers.
type outputFlags struct {
	Output string `short:"o" enum:"text,json" default:"text" placeholder:"text|json" help:"How to answer: text or json."`
	JSON   bool   `help:"The same as --output json."`
}

func (f outputFlags) json() bool { return f.JSON || f.Output == "json" }

// writeJSON answers with one indented JSON document.
func (a *app) writeJSON(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}
