// Command dial opens a duplex channel through the gateway and speaks lines:
// each line of standard input is sent as a text message, each message that
// comes is printed, and at the end how the channel ended. A refusal is printed
// as the caller is told it. It waits for an answer to every line, as an echo
// gives one.
//
// It exits 0 when the channel opened, and 1 when it was refused.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/coder/websocket"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stdout, err)
		os.Exit(1) //nolint:gocritic // stop only restores signals
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("dial", flag.ContinueOnError)
	token := flags.String("token", "", "the caller's token")
	stay := flags.Bool("stay", false, "stay behind the last line until the channel is closed")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: dial [-token TOKEN] [-stay] URL\nURL is that of the channel, such as ws://127.0.0.1:8080/v1/leases/lease-1/duplex")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		flags.Usage()
		return errors.New("name one URL, behind the flags")
	}
	conn, err := open(ctx, flags.Arg(0), *token)
	if err != nil {
		return err
	}
	defer func() { _ = conn.CloseNow() }()
	fmt.Fprintln(out, "open")
	err = speak(ctx, conn, in, out, *stay)
	fmt.Fprintln(out, ended(err))
	return nil
}

// open dials; its error is the refusal, in the caller's words.
func open(ctx context.Context, url, token string) (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	headers := http.Header{}
	if token != "" {
		headers.Set("Authorization", "Bearer "+token)
	}
	conn, answer, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPHeader: headers})
	if err == nil {
		return conn, nil
	}
	if answer == nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	var problem struct {
		Code, Title string
		DecisionID  string `json:"decision_id"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&problem); err != nil || problem.Code == "" {
		return nil, fmt.Errorf("refused %s", answer.Status)
	}
	return nil, fmt.Errorf("refused %d %s: %s (decision %s)", answer.StatusCode, problem.Code, problem.Title, problem.DecisionID)
}

// speak returns why the channel ended, or nil when this side is through.
func speak(ctx context.Context, conn *websocket.Conn, in io.Reader, out io.Writer, stay bool) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if err := conn.Write(ctx, websocket.MessageText, lines.Bytes()); err != nil {
			_, _, err = conn.Read(ctx) // tells why
			return err
		}
		if err := printNext(ctx, conn, out); err != nil {
			return err
		}
	}
	for stay {
		if err := printNext(ctx, conn, out); err != nil {
			return err
		}
	}
	return conn.Close(websocket.StatusNormalClosure, "")
}

func printNext(ctx context.Context, conn *websocket.Conn, out io.Writer) error {
	_, message, err := conn.Read(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", message)
	return err
}

func ended(err error) string {
	var frame websocket.CloseError
	switch {
	case err == nil:
		return "closed 1000"
	case errors.As(err, &frame):
		return fmt.Sprintf("closed %d %s", frame.Code, frame.Reason)
	}
	return "ended without a close frame"
}
