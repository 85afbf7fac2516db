package main

import (
	"encoding/xml"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// h2spec runs the HTTP/2 conformance suite against an address and returns what
// failed.
func h2spec(t *testing.T, bin, address string, args ...string) (failed []string) {
	t.Helper()
	host, port, _ := net.SplitHostPort(address)
	report := filepath.Join(t.TempDir(), "report.xml")
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "h2spec"), append(args, "-h", host, "-p", port, "-o", "3", "-j", report)...)
	out, _ := cmd.CombinedOutput() // its exit code is 1 when a case failed
	text, err := os.ReadFile(report)
	if err != nil {
		t.Errorf("%v\n%s", err, out)
		return nil
	}
	var suites struct {
		Suites []struct {
			Cases []struct {
				Package string    `xml:"package,attr"`
				Class   string    `xml:"classname,attr"`
				Failure *struct{} `xml:"failure"`
				Error   *struct{} `xml:"error"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(text, &suites); err != nil {
		t.Error(err)
	}
	cases := 0
	for _, suite := range suites.Suites {
		for _, c := range suite.Cases {
			if cases++; c.Failure != nil || c.Error != nil {
				failed = append(failed, c.Package+": "+c.Class)
			}
		}
	}
	if all := len(args) == 0 || strings.HasPrefix(args[0], "-"); all && cases < 140 {
		t.Errorf("only %d cases were run\n%s", cases, out)
	}
	return failed
}

// plainServer is net/http's own server, which speaks HTTP/1.1 and h2c.
func plainServer(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Protocols: protocols, Handler: http.NotFoundHandler(), ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return listener.Addr().String()
}

// The suite is held against the gateway's listener and, in the same run,
// against net/http's own server, whose HTTP/2 it is: the gateway must add no
// failure to those. They are, with Go 1.27.3:
//
//   - an invalid preface: without TLS it is taken for HTTP/1.1 and refused as
//     that, for both versions share the port;
//   - a HEADERS frame over the largest frame size: the connection ends without
//     the error that the suite looks for;
//   - SETTINGS_INITIAL_WINDOW_SIZE twice in one frame: the suite waits for an
//     answer cut to the second value;
//   - a connection-specific header, and a TE that is not "trailers": answered
//     with 400 where the suite wants the stream reset (RFC 9113 section 8.1.1
//     allows either).
func TestTheHTTP2SuiteFailsNoMoreThanOnAPlainServer(t *testing.T) {
	t.Parallel()
	bin := installed(t, h2specTool)
	s := newScene(t)
	for name, text := range certificateFiles(t) {
		s.write(name, text)
	}
	s.start()
	secured := &scene{t: t, dir: s.dir}
	secured.start(`listen: {address: "127.0.0.1:0", tls: {cert_file: tls.crt, key_file: tls.key}}`)

	var baseline, overH2C, overTLS []string
	var all sync.WaitGroup
	all.Go(func() { baseline = h2spec(t, bin, plainServer(t)) })
	all.Go(func() { overH2C = h2spec(t, bin, s.address) })
	all.Go(func() { overTLS = h2spec(t, bin, secured.address, "-t", "-k") })
	all.Wait()
	t.Logf("net/http fails\n\t%s", strings.Join(baseline, "\n\t"))
	for _, run := range []struct {
		address string
		args    []string
		failed  []string
	}{{s.address, nil, overH2C}, {secured.address, []string{"-t", "-k"}, overTLS}} {
		t.Logf("the gateway, %v, fails\n\t%s", run.args, strings.Join(run.failed, "\n\t"))
		for _, c := range run.failed {
			if !slices.Contains(baseline, c) && failsAlways(t, bin, run.address, c, run.args) {
				t.Errorf("%v: fails on the gateway alone: %s", run.args, c)
			}
		}
	}
}

// failsAlways runs a case again: some of the suite's depend on whether the
// answer or the fault is first.
func failsAlways(t *testing.T, bin, address, name string, args []string) bool {
	section, _, _ := strings.Cut(name, ":")
	for range 10 {
		if !slices.Contains(h2spec(t, bin, address, append([]string{section}, args...)...), name) {
			return false
		}
	}
	return true
}
