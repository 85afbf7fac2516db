package proxy

import (
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

const chunkedHead = "POST /x HTTP/1.1\r\nHost: gw\r\nTransfer-Encoding: chunked\r\n\r\n"

// badChunks are chunked bodies that must not be read to an end. stock is true
// where plain net/http reads them to one.
var badChunks = []struct {
	name, body string
	stock      bool
}{
	{"a chunk longer than its size", "3\r\nabcd\r\n0\r\n\r\n", false},
	{"a chunk shorter than its size", "3\r\nab\r\n0\r\n\r\n", false},
	{"no line end behind a chunk", "3\r\nabc0\r\n\r\n", false},
	{"a bare line feed behind a size", "3\nabc\r\n0\r\n\r\n", false},
	{"a bare line feed behind a chunk", "3\r\nabc\n0\r\n\r\n", false},
	{"a bare line feed at the end", "3\r\nabc\r\n0\r\n\n", false},
	{"a bare carriage return in a size", "3\rx\r\nabc\r\n0\r\n\r\n", false},
	{"an empty size", "\r\nabc\r\n0\r\n\r\n", false},
	{"a size that is not hexadecimal", "g\r\nabc\r\n0\r\n\r\n", false},
	{"a size with a prefix", "0x3\r\nabc\r\n0\r\n\r\n", false},
	{"a size with a sign", "+3\r\nabc\r\n0\r\n\r\n", false},
	{"a negative size", "-3\r\nabc\r\n0\r\n\r\n", false},
	{"a size with an underscore", "0_3\r\nabc\r\n0\r\n\r\n", false},
	{"a space before a size", " 3\r\nabc\r\n0\r\n\r\n", false},
	{"a space behind a size", "3 \r\nabc\r\n0\r\n\r\n", true},
	{"a space before an extension", "3 ;a\r\nabc\r\n0\r\n\r\n", false},
	{"a size of 16 digits", "0000000000000003\r\nabc\r\n0\r\n\r\n", true},
	{"a size of 17 digits", "00000000000000003\r\nabc\r\n0\r\n\r\n", false},
	{"a long extension", "3;" + strings.Repeat("x", maxChunkExtension+1) + "\r\nabc\r\n0\r\n\r\n", true},
	{"many extensions", strings.Repeat("1;"+strings.Repeat("x", maxChunkExtension)+"\r\nx\r\n", 9) + "0\r\n\r\n", true},
	{"an extension with a space", "3;a b\r\nabc\r\n0\r\n\r\n", true},
	{"an extension with a control byte", "3;a\x00\r\nabc\r\n0\r\n\r\n", true},
	{"an extension with a high byte", "3;a\xff\r\nabc\r\n0\r\n\r\n", true},
	{"a trailer that frames", "3\r\nabc\r\n0\r\nContent-Length: 5\r\n\r\n", true},
	{"a trailer that chunks", "3\r\nabc\r\n0\r\ntransfer-encoding: chunked\r\n\r\n", true},
	{"a trailer that routes", "3\r\nabc\r\n0\r\nHost: other\r\n\r\n", true},
	{"a trailer that authenticates", "3\r\nabc\r\n0\r\nAuthorization: x\r\n\r\n", true},
	{"a trailer of the gateway's", "3\r\nabc\r\n0\r\nSluice-Subject: root\r\n\r\n", true},
	{"an alias of one", "3\r\nabc\r\n0\r\nSluice_Subject: root\r\n\r\n", true},
	{"a trailer that forwards", "3\r\nabc\r\n0\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n", true},
	{"a trailer with a space before its colon", "3\r\nabc\r\n0\r\nX-A : 1\r\n\r\n", true},
	{"a folded trailer", "3\r\nabc\r\n0\r\nX-A: 1\r\n 2\r\n\r\n", true},
	{"a trailer without a name", "3\r\nabc\r\n0\r\n: 1\r\n\r\n", false},
	{"a trailer without a colon", "3\r\nabc\r\n0\r\nX-A\r\n\r\n", false},
	{"a trailer with a bare line feed", "3\r\nabc\r\n0\r\nX-A: 1\n\r\n", false},
	{"a trailer with a control byte", "3\r\nabc\r\n0\r\nX-A: \x01\r\n\r\n", false},
	{"a trailer with a long name", "3\r\nabc\r\n0\r\n" + strings.Repeat("X", maxTrailerName+1) + ": 1\r\n\r\n", true},
	{"trailers that are too long", "3\r\nabc\r\n0\r\nX-A: " + strings.Repeat("x", maxTrailers) + "\r\n\r\n", true},
	{"too many trailers", "3\r\nabc\r\n0\r\n" + strings.Repeat("X-A: 1\r\n", maxTrailerFields+1) + "\r\n", true},
}

func TestABodyThatIsMalformedHasNoEndAndNothingBehindIt(t *testing.T) {
	s := startGuarded(t, headOptions{})
	for _, tt := range badChunks {
		answer := s.exchange(t, chunkedHead+tt.body+"GET /behind HTTP/1.1\r\nHost: gw\r\n\r\n")
		if got := statuses(answer); len(got) != 1 {
			t.Errorf("%s: answered %v", tt.name, got)
		}
	}
	for _, r := range s.seen() {
		if r.line != "POST /x" || !r.cut {
			t.Errorf("served %v", r)
		}
	}
}

func TestTheHandlerLearnsThatABodyIsMalformed(t *testing.T) {
	conn := guardConn(&scriptConn{segments: [][]byte{[]byte("a\r\nabcdefghijk")}}, &headOptions{}).(*headConn)
	conn.expectBody(headFacts{chunked: true})
	got, err := io.ReadAll(conn)
	if status, detail := wireStatus(err); string(got) != "a\r\nabcdefghij" || err != errBody || status != 400 || detail == "" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestAChunkedBodyMayHaveWhatItMayHave(t *testing.T) {
	for body, want := range map[string]string{
		"0\r\n\r\n":                 "",
		"00000\r\nX-Sum: 1\r\n\r\n": "",

		"3;a=b;c=\"d\"\r\nabc\r\n00A\r\n0123456789\r\n0;last\r\n\r\n": "abc0123456789",

		"000000000000003\r\nabc\r\n0\r\n\r\n": "abc",

		"2\r\n\r\n\r\n0\r\nX-A:\r\nX-B: \xff\tx \r\n\r\n": "\r\n",

		"1;" + strings.Repeat("x", maxChunkExtension) + "\r\nx\r\n0\r\n" + strings.Repeat("X-A: 1\r\n", maxTrailerFields) + "\r\n": "x",

		"0\r\n" + strings.Repeat("X", maxTrailerName) + ": " + strings.Repeat("x", maxTrailers-maxTrailerName-6) + "\r\n\r\n": "",
	} {
		raw := chunkedHead + body + "GET /behind HTTP/1.1\r\nHost: gw\r\n\r\n"
		served, _, _ := serveScript(scriptOptions, []byte(raw))
		if !reflect.DeepEqual(served, []servedRequest{{"POST /x", want, false}, {"GET /behind", "", false}}) {
			t.Errorf("%.80q: served %v", body, served)
		}
	}
}

func TestABodyThatEndsEarlyIsCut(t *testing.T) {
	for _, raw := range []string{
		"POST /x HTTP/1.1\r\nHost: gw\r\nContent-Length: 5\r\n\r\nabc", chunkedHead + "3\r\nabc\r\n", chunkedHead + "3\r\nab", chunkedHead + "3\r\nabc\r\n0\r\nX-A: 1\r\n",
	} {
		if served, _, _ := serveScript(scriptOptions, []byte(raw)); len(served) != 1 || !served[0].cut {
			t.Errorf("%q: served %v", raw, served)
		}
	}
}

func TestABodyPassesWithoutBeingHeld(t *testing.T) {
	const size = 8 << 20
	s := startGuarded(t, headOptions{}, func(s *http.Server) {
		s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			fmt.Fprintf(w, "%d %v", n, err)
		})
	})
	for _, raw := range []io.Reader{
		io.MultiReader(strings.NewReader(fmt.Sprintf("POST / HTTP/1.1\r\nHost: gw\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", size)), strings.NewReader(strings.Repeat("x", size))),
		strings.NewReader(strings.Replace(chunkedHead, "Host", "Connection: close\r\nHost", 1) + strings.Repeat("10000\r\n"+strings.Repeat("x", 64<<10)+"\r\n", size>>16) + "0\r\n\r\n"),
	} {
		c := s.dial(t)
		if _, err := io.Copy(c, raw); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(c)
		if err != nil || !strings.HasSuffix(string(answer), fmt.Sprintf("%d <nil>", size)) {
			t.Errorf("%q, %v", answer, err)
		}
	}
}
