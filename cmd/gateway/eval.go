package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sluice/internal/authz"
	"sluice/internal/pdp"
	"time"
)

type evalCommand struct {
	configFlags
	Policies   string `placeholder:"DIR" help:"The team's own rules, in place of the configuration's policies.path."`
	PrintInput bool   `help:"Write the policy input of each case instead, for opa eval -i."`
	Teardown   bool   `help:"Ask the teardown decision."`
}

// Help is shown by eval --help.
func (*evalCommand) Help() string {
	return `Each line of standard input is one case as JSON; each line of the answer is its decision, in the same order. ` +
		`A case holds "request", and as far as it needs them "records", "live", "now", "phase", "stale", "workersEnabled" and "openedGeneration". ` +
		`Beside its decision, "malformed" says what makes a record of it malformed, and "ignored" names the keys that nobody reads. ` +
		`A line that is no case gets {"error": ...}, and the exit code is 1.`
}

// offlineTimeout is the least deadline of an evaluation where nobody waits for
// a channel: a busy machine must not change an answer.
const offlineTimeout = time.Second

// maxCase bounds a line: five records and a live document at their limits.
const maxCase = 4 << 20

// Run decides the cases.
func (c *evalCommand) Run(a *app) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	if c.Policies != "" {
		cfg.Policies.Path = c.Policies
	}
	cfg.Evaluation.Timeout = max(cfg.Evaluation.Timeout, offlineTimeout)
	engine, stop, err := startEngine(a.ctx, cfg)
	if err != nil {
		return wrongUsage("%w", err)
	}
	defer stop()

	out := bufio.NewWriter(a.stdout)
	defer out.Flush()
	in := bufio.NewReader(a.stdin)
	noCase := false
	for {
		line, err := readCase(in)
		if errors.Is(err, io.EOF) {
			break
		}
		var answer any = map[string]string{"error": fmt.Sprint(err)}
		ok := false
		switch {
		case err == nil:
			answer, ok = c.answer(a.ctx, engine, line, cfg.Policies.ExtraFields)
		case !errors.Is(err, errLongCase):
			return fmt.Errorf("read the cases: %w", err)
		}
		noCase = noCase || !ok
		if err := writeLine(out, answer); err != nil {
			return err
		}
	}
	if noCase {
		return errNo
	}
	return nil
}

var errLongCase = fmt.Errorf("a case has at most %d bytes", maxCase)

// readCase reads one line, and passes over one that is too long.
func readCase(in *bufio.Reader) (line []byte, err error) {
	for size := 0; ; {
		part, err := in.ReadSlice('\n')
		if size += len(part); size <= maxCase {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (size == 0 || !errors.Is(err, io.EOF)):
			return nil, err
		case size > maxCase:
			return nil, errLongCase
		}
		return line, nil
	}
}

func (c *evalCommand) answer(ctx context.Context, engine *pdp.Engine, line []byte, extraFields []string) (any, bool) {
	q, notes, err := pdp.ReadCaseNoting(line, extraFields)
	if err != nil {
		return map[string]string{"error": err.Error()}, false
	}
	switch {
	case c.PrintInput:
		input, err := pdp.PrintInput(q)
		if err != nil {
			return map[string]string{"error": err.Error()}, false
		}
		return json.RawMessage(input), true
	case c.Teardown:
		ready, reason := engine.Teardown(ctx, q)
		return map[string]any{"ready": ready, "reason": reason}, true
	}
	return evaluated{pdp.Written(authz.Answer(ctx, engine, q)), notes}, true
}

// evaluated is a line of the answer.
type evaluated struct {
	pdp.ExplainedDecision
	*pdp.CaseNotes
}

func writeLine(out io.Writer, answer any) error {
	line, err := json.Marshal(answer)
	if err == nil {
		_, err = out.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write an answer: %w", err)
	}
	return nil
}

// startEngine loads the policies of cfg and runs an engine on them.
func startEngine(ctx context.Context, cfg *Config) (*pdp.Engine, func(), error) {
	engine, err := pdp.New(policyOptions(cfg))
	if err != nil {
		return nil, nil, err
	}
	if err := engine.Reload(ctx); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = engine.Run(ctx)
	}()
	return engine, func() { cancel(); <-done }, nil
}

// policyOptions are what the configuration says of policies.
func policyOptions(cfg *Config) pdp.Options {
	return pdp.Options{
		Path: cfg.Policies.Path, Replace: cfg.Policies.Replace, Required: cfg.Policies.Required,
		RunTests: cfg.Policies.RunTests, Timeout: cfg.Evaluation.Timeout,
	}
}
