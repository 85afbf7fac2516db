package proxy

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

const goodSwitch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"

func readAnswer(raw string) (*workerHead, *bufio.Reader, error) {
	br := bufio.NewReaderSize(strings.NewReader(raw), 64)
	h, err := readResponseHead(br)
	return h, br, err
}

func TestAWorkersSwitchIsHeldAgainstTheOffer(t *testing.T) {
	offer := handshake{
		Kind: websocketUpgrade, Token: "websocket", Key: sampleKey,
		Protocols: []string{"chat", "sluice.v1"}, Extensions: []string{"permessage-deflate"},
	}
	without := func(name string) string {
		var kept []string
		for line := range strings.SplitSeq(goodSwitch, "\r\n") {
			if !strings.HasPrefix(line, name+":") {
				kept = append(kept, line)
			}
		}
		return strings.Join(kept, "\r\n")
	}
	for _, tt := range []struct {
		name, head string
		good       bool
	}{
		{"a plain one", goodSwitch, true},
		{"an offered subprotocol", goodSwitch + "Sec-WebSocket-Protocol: chat\r\n", true},
		{"an offered extension", goodSwitch + "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover\r\n", true},
		{"other case", without("Upgrade") + "UPGRADE: WebSocket\r\n", true},
		{"a Connection list", without("Connection") + "Connection: keep-alive, upgrade\r\n", true},
		{"no Upgrade", without("Upgrade"), false},
		{"another Upgrade", without("Upgrade") + "Upgrade: h2c\r\n", false},
		{"two Upgrades", goodSwitch + "Upgrade: websocket\r\n", false},
		{"two tokens", without("Upgrade") + "Upgrade: websocket, h2c\r\n", false},
		{"no Connection", without("Connection"), false},
		{"another Connection", without("Connection") + "Connection: notupgrade\r\n", false},
		{"no accept", without("Sec-WebSocket-Accept"), false},
		{"a wrong accept", without("Sec-WebSocket-Accept") + "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOO=\r\n", false},
		{"two accepts", goodSwitch + "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n", false},
		{"a subprotocol that was not offered", goodSwitch + "Sec-WebSocket-Protocol: admin\r\n", false},
		{"the credential", goodSwitch + "Sec-WebSocket-Protocol: sluice.bearer.dG9rZW4\r\n", false},
		{"two subprotocols", goodSwitch + "Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Protocol: sluice.v1\r\n", false},
		{"two subprotocols in one", goodSwitch + "Sec-WebSocket-Protocol: chat, sluice.v1\r\n", false},
		{"an empty subprotocol", goodSwitch + "Sec-WebSocket-Protocol:\r\n", false},
		{"an extension that was not offered", goodSwitch + "Sec-WebSocket-Extensions: x\r\n", false},
		{"an extension twice", goodSwitch + "Sec-WebSocket-Extensions: permessage-deflate, permessage-deflate\r\n", false},
		{"a malformed extension", goodSwitch + "Sec-WebSocket-Extensions: ;\r\n", false},
	} {
		a, _, err := readAnswer(tt.head + "\r\n")
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if err := checkSwitch(&offer, a); (err == nil) != tt.good {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestASwitchToAnotherProtocolMustBeToTheOneAskedFor(t *testing.T) {
	for token, good := range map[string]bool{"tcp": true, "TCP": true, "h2c": false, "websocket": false} {
		a, _, err := readAnswer("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: " + token + "\r\n\r\n")
		if err != nil {
			t.Fatal(err)
		}
		if err := checkSwitch(&handshake{Kind: otherUpgrade, Token: "tcp"}, a); (err == nil) != good {
			t.Errorf("%s: %v", token, err)
		}
	}
}

func TestAnAnswerIsReadToItsHeadAndNoFurther(t *testing.T) {
	early := "\x81\x02hi"
	raw := "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + goodSwitch + "X-Long: " + strings.Repeat("x", 5000) + "\r\n\r\n" + early
	a, br, err := readAnswer(raw)
	if err != nil || a.Status != 101 || len(a.Header.Get("X-Long")) != 5000 || a.Header.Get("Link") != "" {
		t.Fatalf("%+v, %v", a, err)
	}
	if rest, _ := io.ReadAll(br); string(rest) != early {
		t.Fatalf("%q is left", rest)
	}
}

func TestAnotherAnswerComesWithItsBody(t *testing.T) {
	for _, tt := range []struct {
		name, raw string
		status    int
		length    int64
		body      string
		cut       bool
	}{
		{"a length", "HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nabcdef", 403, 3, "abc", false},
		{"no reason", "HTTP/1.1 500 \r\nContent-Length: 0\r\n\r\nabc", 500, 0, "", false},
		{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 200, -1, "abc", false},
		{"until the end", "HTTP/1.0 200 OK\r\n\r\nabc", 200, -1, "abc", false},
		{"no body", "HTTP/1.1 204 No Content\r\n\r\nabc", 204, 0, "", false},
		{"a length without a body", "HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\nabc", 304, 0, "", false},
		{"a length cut short", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", 200, 5, "abc", true},
		{"chunks and trailers", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n", 200, -1, "abc", false},
		{"a malformed trailer", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum : 1\r\n\r\n", 200, -1, "abc", true},
		{"no end of the trailers", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n", 200, -1, "abc", true},
		{"chunks cut short", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", 200, -1, "abc", true},
	} {
		a, br, err := readAnswer(tt.raw)
		if err != nil || a.Status != tt.status || a.ContentLength != tt.length {
			t.Errorf("%s: %+v, %v", tt.name, a, err)
			continue
		}
		body, err := io.ReadAll(a.body(br))
		if string(body) != tt.body || (err != nil) != tt.cut {
			t.Errorf("%s: body %q, %v", tt.name, body, err)
		}
	}
}

var badAnswers = []string{
	"", "HTTP/1.1 101", "HTTP/1.1 101 X\r\n", "HTTP/1.1 101 X\r\nA: b\r\n",
	"HTTP/1.1 101 X\n\n", "HTTP/1.1 101 X\r\nA: b\n\r\n", "HTTP/1.1 101\r\n\r\n",
	"HTTP/1.2 101 X\r\n\r\n", "HTTP/2.0 101 X\r\n\r\n", "http/1.1 101 X\r\n\r\n", "HTTP/1.1  101 X\r\n\r\n", "HTTP/1.1 1a1 X\r\n\r\n",
	"HTTP/1.1 +10 X\r\n\r\n", "HTTP/1.1 099 X\r\n\r\n", "HTTP/1.1 600 X\r\n\r\n", "HTTP/1.1 1011 X\r\n\r\n", "\r\nHTTP/1.1 101 X\r\n\r\n",
	"HTTP/1.1 101 \x00\r\n\r\n", "HTTP/1.0 101 X\r\n\r\n",
	"HTTP/1.1 200 OK\r\nA : b\r\n\r\n", "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", "HTTP/1.1 200 OK\r\n: b\r\n\r\n",
	"HTTP/1.1 200 OK\r\nA\r\n\r\n", "HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n", "HTTP/1.1 200 OK\r\nA: b\x00\r\n\r\n", "HTTP/1.1 200 OK\r\nA\xff: b\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na", "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\na",
	"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na", "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\na", "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775808\r\n\r\na",
	"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
	"HTTP/1.1 101 X\r\nContent-Length: 5\r\n\r\n", "HTTP/1.1 101 X\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 100 X\r\nContent-Length: 0\r\n\r\n" + goodSwitch + "\r\n",
	strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 20) + goodSwitch + "\r\n",
	"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", maxAnswerHead) + "\r\n\r\n",
	"HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", 300) + "\r\n",
}

func TestAnAnswerThatIsMalformedIsAnError(t *testing.T) {
	for _, raw := range badAnswers {
		if a, _, err := readAnswer(raw); err == nil {
			t.Errorf("%.80q was read as %+v", raw, a)
		}
	}
}

// FuzzWorkerHead holds what passes against net/http's own reading.
func FuzzWorkerHead(f *testing.F) {
	for _, raw := range badAnswers {
		if len(raw) < 1000 { // minimising a long one takes all the time there is
			f.Add([]byte(raw))
		}
	}
	f.Add([]byte(goodSwitch + "\r\nearly"))
	f.Add([]byte("HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nabcdef"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, br, err := readAnswer(string(raw))
		if err != nil {
			return
		}
		other := bufio.NewReader(bytes.NewReader(raw))
		var answer *http.Response
		for answer == nil || answer.StatusCode < 200 && answer.StatusCode != 101 {
			if answer, err = http.ReadResponse(other, nil); err != nil {
				t.Fatalf("%q passed, and net/http refuses it: %v", raw, err)
			}
		}
		if answer.StatusCode != a.Status || len(answer.Header) != len(a.Header) && a.Status >= 200 && answer.Header.Get("Trailer") == a.Header.Get("Trailer") {
			t.Fatalf("%q is read as %d %v, and by net/http as %d %v", raw, a.Status, a.Header, answer.StatusCode, answer.Header)
		}
		if a.Status == http.StatusSwitchingProtocols {
			return
		}
		body, err := io.ReadAll(a.body(br))
		want, wantErr := io.ReadAll(answer.Body)
		if !bytes.Equal(body, want) || err == nil && wantErr != nil {
			t.Fatalf("%q has the body %q, %v, and for net/http %q, %v", raw, body, err, want, wantErr)
		}
	})
}
