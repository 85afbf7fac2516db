// Package xconnect turns on extended CONNECT (RFC 8441) in net/http's HTTP/2
// server, which offers it only under GODEBUG=http2xconnect=1 and reads that
// once, when it is initialised.
//
// It is a package of its own because it must be initialised before net/http:
// it imports nothing that net/http needs, so that importing it anywhere in a
// program is enough.
package xconnect

import "os"

// Setting is the switch as it stands in GODEBUG.
const Setting = "http2xconnect=1"

func init() {
	value := os.Getenv("GODEBUG")
	if value != "" {
		value += ","
	}
	_ = os.Setenv("GODEBUG", value+Setting)
}
