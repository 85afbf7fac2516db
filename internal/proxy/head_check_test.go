package proxy

import (
	"reflect"
	"strings"
	"testing"
)

// badHead is a head that must be refused. stock is true where plain net/http
// takes it, repaired, for a request.
type badHead struct {
	name, head string
	status     int
	stock      bool
}

const (
	lineAndHost = "GET /x HTTP/1.1\r\nHost: gw\r\n"
	postAndHost = "POST /x HTTP/1.1\r\nHost: gw\r\n"
)

var badHeads = []badHead{
	{"a length and a coding", postAndHost + "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG", 400, true},
	{"a coding and a length", postAndHost + "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\nG", 400, true},
	{"two lengths", postAndHost + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400, false},
	{"the same length twice", postAndHost + "Content-Length: 1\r\nContent-Length: 1\r\n\r\na", 400, true},
	{"a list of lengths", postAndHost + "Content-Length: 1, 1\r\n\r\na", 400, false},
	{"a length with a sign", postAndHost + "Content-Length: +1\r\n\r\na", 400, false},
	{"a negative length", postAndHost + "Content-Length: -1\r\n\r\na", 400, false},
	{"an empty length", postAndHost + "Content-Length:\r\n\r\na", 400, false},
	{"a hexadecimal length", postAndHost + "Content-Length: 0x1\r\n\r\na", 400, false},
	{"a length and more", postAndHost + "Content-Length: 1 x\r\n\r\na", 400, false},
	{"a length of 2^63", postAndHost + "Content-Length: 9223372036854775808\r\n\r\n", 400, false},
	{"a length of many digits", postAndHost + "Content-Length: 00000000000000000001\r\n\r\na", 400, true},

	{"an unknown coding", postAndHost + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501, false},
	{"the identity coding", postAndHost + "Transfer-Encoding: identity\r\n\r\n", 501, false},
	{"a list of codings", postAndHost + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 400, false},
	{"a coding before chunked", postAndHost + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400, false},
	{"the coding twice", postAndHost + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, false},
	{"an empty coding", postAndHost + "Transfer-Encoding:\r\n\r\n", 400, false},
	{"a control byte before the coding", postAndHost + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400, false},
	{"a space before the colon", postAndHost + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400, false},
	{"a coding in HTTP/1.0", "POST /x HTTP/1.0\r\nHost: gw\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, true},

	{"a folded line", lineAndHost + "X-A: 1\r\n  Sluice-Subject: root\r\n\r\n", 400, true},
	{"a line folded by a tab", lineAndHost + "X-A: 1\r\n\tSluice-Subject: root\r\n\r\n", 400, true},
	{"a folded first field", "GET /x HTTP/1.1\r\n Host: gw\r\n\r\n", 400, false},
	{"bare line feeds", "GET /x HTTP/1.1\nHost: gw\n\n", 400, true},
	{"one bare line feed", "GET /x HTTP/1.1\r\nHost: gw\nX-A: 1\r\n\r\n", 400, true},
	{"a bare line feed at the end", lineAndHost + "\n", 400, true},
	{"a bare carriage return in a value", lineAndHost + "X-A: 1\rSluice-Subject: root\r\n\r\n", 400, false},
	{"a bare carriage return in the request line", "GET /x\r HTTP/1.1\r\nHost: gw\r\n\r\n", 400, false},
	{"two carriage returns", "GET /x HTTP/1.1\r\r\nHost: gw\r\n\r\n", 400, false},
	{"a NUL in a value", lineAndHost + "X-A: 1\x002\r\n\r\n", 400, false},
	{"a delete in a value", lineAndHost + "X-A: 1\x7f2\r\n\r\n", 400, false},
	{"a high byte in a name", lineAndHost + "X-\xc3\xa4: 1\r\n\r\n", 400, false},
	{"an empty name", lineAndHost + ": 1\r\n\r\n", 400, false},
	{"a space in a name", lineAndHost + "X A: 1\r\n\r\n", 400, false},
	{"no colon", lineAndHost + "X-A\r\n\r\n", 400, false},
	{"the gateway's own field", lineAndHost + "Sluice-Head-Refused: x 400 y\r\n\r\n", 400, true},
	{"too many fields", lineAndHost + strings.Repeat("X-A: 1\r\n", maxFields) + "\r\n", 431, true},

	{"no host", "GET /x HTTP/1.1\r\nX-A: 1\r\n\r\n", 400, false},
	{"no field at all", "GET /x HTTP/1.1\r\n\r\n", 400, false},
	{"two hosts", lineAndHost + "Host: other\r\n\r\n", 400, false},
	{"the same host twice", lineAndHost + "Host: gw\r\n\r\n", 400, false},
	{"an empty host", "GET /x HTTP/1.1\r\nHost:\r\n\r\n", 400, true},
	{"a host with a path", "GET /x HTTP/1.1\r\nHost: a/b@c\r\n\r\n", 400, false},
	{"a host with user information", "GET /x HTTP/1.1\r\nHost: a@gw\r\n\r\n", 400, false},
	{"a host with a tab", "GET /x HTTP/1.1\r\nHost: gw\tx\r\n\r\n", 400, false},
	{"a host with a bad port", "GET /x HTTP/1.1\r\nHost: gw:99999\r\n\r\n", 400, true},
	{"a list of hosts", "GET /x HTTP/1.1\r\nHost: gw, other\r\n\r\n", 400, false},

	{"an absolute target", "GET http://evil.test/x HTTP/1.1\r\nHost: gw\r\n\r\n", 400, true},
	{"an asterisk", "OPTIONS * HTTP/1.1\r\nHost: gw\r\n\r\n", 405, true},
	{"an asterisk with another method", "GET * HTTP/1.1\r\nHost: gw\r\n\r\n", 400, true},
	{"CONNECT to an authority", "CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: gw\r\n\r\n", 405, true},
	{"CONNECT to a path", "CONNECT /v1/leases/l1/../../admin/x HTTP/1.1\r\nHost: gw\r\n\r\n", 405, true},
	{"CONNECT with a body", "CONNECT gw:80 HTTP/1.1\r\nHost: gw\r\nContent-Length: 5\r\n\r\nhello", 405, true},
	{"dot segments", "GET /x/../v1/leases/l1/duplex HTTP/1.1\r\nHost: gw\r\n\r\n", 400, true},
	{"a double slash", "GET //v1/leases/l1/duplex HTTP/1.1\r\nHost: gw\r\n\r\n", 400, true},
	{"an encoded slash", "GET /v1/leases/l1%2f..%2fl2/duplex HTTP/1.1\r\nHost: gw\r\n\r\n", 400, true},
	{"a bad escape", "GET /%zz HTTP/1.1\r\nHost: gw\r\n\r\n", 400, false},
	{"a fragment", "GET /x#y HTTP/1.1\r\nHost: gw\r\n\r\n", 400, true},
	{"a backslash", "GET /x\\y HTTP/1.1\r\nHost: gw\r\n\r\n", 400, true},
	{"a raw byte in the target", "GET /\xff HTTP/1.1\r\nHost: gw\r\n\r\n", 400, true},
	{"a long target", "GET /" + strings.Repeat("a", maxTarget) + " HTTP/1.1\r\nHost: gw\r\n\r\n", 414, true},

	{"a version to come", "GET /x HTTP/1.2\r\nHost: gw\r\n\r\n", 505, true},
	{"HTTP/2.0 in text", "GET /x HTTP/2.0\r\nHost: gw\r\n\r\n", 505, false},
	{"HTTP/0.9 in text", "GET /x HTTP/0.9\r\nHost: gw\r\n\r\n", 505, false},
	{"the preface of HTTP/2", preface, 505, true},
	{"a version in lower case", "GET /x http/1.1\r\nHost: gw\r\n\r\n", 400, false},
	{"a version of two digits", "GET /x HTTP/1.10\r\nHost: gw\r\n\r\n", 400, false},
	{"no version", "GET /x\r\nHost: gw\r\n\r\n", 400, false},
	{"a method in lower case", "get /x HTTP/1.1\r\nHost: gw\r\n\r\n", 400, true},
	{"a method in mixed case", "Get /x HTTP/1.1\r\nHost: gw\r\n\r\n", 400, true},
	{"a method with a digit", "GET2 /x HTTP/1.1\r\nHost: gw\r\n\r\n", 400, true},
	{"a long method", strings.Repeat("G", 300) + " /x HTTP/1.1\r\nHost: gw\r\n\r\n", 400, true},
	{"a control byte in the method", "GET\x0b /x HTTP/1.1\r\nHost: gw\r\n\r\n", 400, false},
	{"two spaces", "GET  /x HTTP/1.1\r\nHost: gw\r\n\r\n", 400, false},
	{"two spaces before the version", "GET /x  HTTP/1.1\r\nHost: gw\r\n\r\n", 400, false},
	{"a tab", "GET\t/x HTTP/1.1\r\nHost: gw\r\n\r\n", 400, false},
	{"a space at the end", "GET /x HTTP/1.1 \r\nHost: gw\r\n\r\n", 400, false},
	{"a space at the start", " GET /x HTTP/1.1\r\nHost: gw\r\n\r\n", 400, false},
	{"an empty line at the start", "\r\nGET /x HTTP/1.1\r\nHost: gw\r\n\r\n", 400, false},
	{"a TLS hello", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, false},

	{"two content types", postAndHost + "Content-Type: a/b\r\nContent-Type: c/d\r\nContent-Length: 0\r\n\r\n", 400, true},
	{"two origins", lineAndHost + "Origin: https://a\r\nOrigin: https://b\r\n\r\n", 400, true},
	{"two expectations", postAndHost + "Expect: 100-continue\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n", 400, true},
	{"another expectation", postAndHost + "Expect: x\r\nContent-Length: 0\r\n\r\n", 417, false},
	{"a malformed Connection", lineAndHost + "Connection: close;x\r\n\r\n", 400, true},
	{"an empty element in Connection", lineAndHost + "Connection: close,,x\r\n\r\n", 400, true},
	{"a trailer that frames", postAndHost + "Transfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n0\r\n\r\n", 400, false},
	{"a trailer that vouches", postAndHost + "Transfer-Encoding: chunked\r\nTrailer: X-Forwarded-For\r\n\r\n0\r\n\r\n", 400, true},
}

func judgeHead(raw string) (headFacts, *wireError) {
	b := []byte(raw)
	end, fault := scanHead(b, 0, 64<<10)
	if fault != nil || end == 0 {
		return headFacts{}, fault
	}
	return checkHead(b[:end])
}

func TestABadHeadIsRefusedWithItsStatus(t *testing.T) {
	for _, tt := range badHeads {
		facts, fault := judgeHead(tt.head)
		if fault == nil || fault.Status != tt.status {
			t.Errorf("%s: %+v, %v; want %d", tt.name, facts, fault, tt.status)
		}
	}
}

func TestAGoodHeadSaysWhatFollowsIt(t *testing.T) {
	for _, tt := range []struct {
		head string
		want headFacts
	}{
		{lineAndHost + "\r\n", headFacts{}},
		{"GET /x HTTP/1.0\r\n\r\n", headFacts{}},
		{"GET /x HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", headFacts{}},
		{"PROPFIND /x HTTP/1.1\r\nHost: gw\r\n\r\n", headFacts{}},
		{postAndHost + "Content-Length: 0\r\n\r\n", headFacts{}},
		{postAndHost + "content-length:007\r\n\r\n", headFacts{length: 7}},
		{postAndHost + "Content-Length: \t9223372036854775807 \r\n\r\n", headFacts{length: 9223372036854775807}},
		{postAndHost + "TRANSFER-ENCODING: CHUNKED\r\nTrailer: X-Sum, Server-Timing\r\n\r\n", headFacts{chunked: true}},
		{postAndHost + "Expect: 100-Continue\r\nContent-Length: 1\r\n\r\n", headFacts{length: 1}},
		{lineAndHost + "Authorization: a\r\nAuthorization: b\r\n\r\n", headFacts{}}, // identity refuses it
		{lineAndHost + "Connection: notupgrade\r\nUpgrade: websocket\r\n\r\n", headFacts{}},
		{lineAndHost + "Connection: upgrade\r\n\r\n", headFacts{}},
		{lineAndHost + "Upgrade: websocket\r\n\r\n", headFacts{}},
		{lineAndHost + "Connection: keep-alive\r\nconnection: x ,\tUpGrade\r\nUpgrade: a\r\nUpgrade: b\r\n\r\n", headFacts{upgrade: true}},
		{lineAndHost + strings.Repeat("X-A: 1\r\n", maxFields-1) + "\r\n", headFacts{}},
		{lineAndHost + "X-A: \x80\xff \t \"quoted\"\r\nX-B:\r\n_X.y!#$%&'*+-^`|~: 1\r\n\r\n", headFacts{}},
	} {
		if facts, fault := judgeHead(tt.head); fault != nil || !reflect.DeepEqual(facts, tt.want) {
			t.Errorf("%.80q: %+v, %v; want %+v", tt.head, facts, fault, tt.want)
		}
	}
}

func TestCheckingAHeadAllocatesLittle(t *testing.T) {
	head := []byte("GET /v1/leases/lease-0123456789/duplex?x=1 HTTP/1.1\r\nHost: gateway.example.com:8443\r\nConnection: keep-alive, Upgrade\r\n" +
		"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nUser-Agent: x\r\nAuthorization: Bearer abc\r\n\r\n")
	if n := testing.AllocsPerRun(100, func() { _, _ = checkHead(head) }); n > 2 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCheckHead(b *testing.B) {
	head := []byte(lineAndHost + "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nUser-Agent: x\r\nAuthorization: Bearer abc\r\n\r\n")
	b.ReportAllocs()
	for b.Loop() {
		if end, _ := scanHead(head, 0, 64<<10); end != len(head) {
			b.Fatal("not whole")
		}
		if _, fault := checkHead(head); fault != nil {
			b.Fatal(fault)
		}
	}
}
