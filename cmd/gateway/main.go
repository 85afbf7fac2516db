// Command gateway is Sluice: a reverse proxy in front of sandbox workers that
// decides, by policy over cached capability records, who gets a channel to
// which worker, and keeps deciding while the channel is open.
//
// main is nothing but run; each command is a file of its own, whose struct is
// its usage and whose Run is what it does. Every command exits 0 when all is
// well, 1 when the answer is no, and 2 for wrong usage or a configuration that
// it cannot run with.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
