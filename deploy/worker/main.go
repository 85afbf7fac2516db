// Command worker stands in for a sandbox worker where one is needed to try the
// gateway: the sample worker of internal/worker/sample, which serves its live
// document and everything that the default routes lead to.
//
// SIGUSR1 takes the method duplexChannelWrite out of the live document, and
// brings it back the next time: what a runtime that broke would tell.
//
// With -plain it is a WebSocket server that echoes and knows nothing of the
// gateway: no live document, no header of the gateway's is looked at.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sluice/internal/worker/sample"
	"syscall"
	"time"

	"github.com/coder/websocket"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "worker: %v\n", err)
		os.Exit(1) //nolint:gocritic // stop only restores signals
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("worker", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:9000", "address to listen on")
	id := flags.String("id", "worker-1", "id of the worker, as its record has it")
	plugin := flags.String("plugin", "plugin-1", "id of the plugin that it belongs to")
	plain := flags.Bool("plain", false, "echo, and know nothing of the gateway")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: worker [-listen ADDRESS] [-id ID] [-plugin ID] [-plain]")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *plain {
		return servePlain(ctx, *listen)
	}
	w := sample.New(sample.Document{
		ID: *id, PluginID: *plugin, Status: "running",
		Generation:       rand.Text(), // another one at every start of the process
		SupportedMethods: sample.AllMethods,
	})
	server, err := sample.Listen(*listen, w)
	if err != nil {
		return err
	}
	go breakOnSignal(ctx, w)
	return server.Run(ctx)
}

// breakOnSignal takes a method away and brings it back.
func breakOnSignal(ctx context.Context, w *sample.Worker) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	defer signal.Stop(signals)
	for broken := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-signals:
			broken = !broken
			w.Update(func(d *sample.Document) {
				d.SupportedMethods = slices.DeleteFunc(slices.Clone(sample.AllMethods), func(method string) bool {
					return broken && method == "duplexChannelWrite"
				})
			})
		}
	}
}

// servePlain echoes on every path until ctx is done.
func servePlain(ctx context.Context, address string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{
		ReadHeaderTimeout: 5 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		Handler:           http.HandlerFunc(echo),
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); ctx.Err() == nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

func echo(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // it has been answered
	}
	defer func() { _ = conn.CloseNow() }()
	for {
		kind, message, err := conn.Read(r.Context())
		if err != nil {
			return
		}
		if err := conn.Write(r.Context(), kind, message); err != nil {
			return
		}
	}
}
