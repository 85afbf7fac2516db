package proxy

import (
	"bufio"
	"bytes"
	"crypto/sha1" //nolint:gosec // RFC 6455 section 4.2.2 asks for it; it guards nothing here
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
)

const (
	maxAnswerHead   = 64 << 10 // of one head of a worker, in bytes
	maxAnswerFields = 256
	maxInformations = 8 // 1xx answers before the one that counts
)

// workerHead is the head of a worker's answer to an upgrade request, read
// strictly.
type workerHead struct {
	Status int
	Header http.Header // canonical names; Transfer-Encoding is taken out
	// ContentLength is the body's length: -1 when the body is chunked, or
	// ends with the connection.
	ContentLength int64
	Chunked       bool
}

// readResponseHead reads the answer to an upgrade request from br, and nothing
// behind its head. Informational answers but 101 are swallowed. What is not
// strictly well-formed is an error, and so is an end of input: the connection
// is then of no further use.
func readResponseHead(br *bufio.Reader) (*workerHead, error) {
	for range maxInformations + 1 {
		h, err := readOneHead(br)
		if err != nil {
			return nil, fmt.Errorf("reading the worker's answer: %w", err)
		}
		if h.Status >= 200 || h.Status == http.StatusSwitchingProtocols {
			return h, nil
		}
	}
	return nil, errors.New("reading the worker's answer: too many informational answers")
}

func readOneHead(br *bufio.Reader) (*workerHead, error) {
	budget := maxAnswerHead
	line, err := readHeadLine(br, &budget)
	if err != nil {
		return nil, err
	}
	status, minor, ok := parseStatusLine(line)
	if !ok {
		return nil, errors.New("malformed status line")
	}
	h := &workerHead{Status: status, Header: http.Header{}}
	for range maxAnswerFields + 1 {
		line, err := readHeadLine(br, &budget)
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			return h, h.readFraming(minor)
		}
		name, value, ok := splitField(line)
		if !ok {
			return nil, errors.New("malformed header field")
		}
		key := textproto.CanonicalMIMEHeaderKey(string(name))
		h.Header[key] = append(h.Header[key], string(value))
	}
	return nil, errors.New("too many header fields")
}

// readHeadLine reads one line that ends with CRLF and returns it without.
func readHeadLine(br *bufio.Reader, budget *int) ([]byte, error) {
	var line []byte
	for {
		part, err := br.ReadSlice('\n')
		if *budget -= len(part); *budget < 0 {
			return nil, errors.New("head too large")
		}
		line = append(line, part...)
		if err == nil {
			break
		}
		if errors.Is(err, io.EOF) {
			return nil, io.ErrUnexpectedEOF
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
	text, ok := bytes.CutSuffix(line, []byte("\r\n"))
	if !ok {
		return nil, errors.New("line without CRLF")
	}
	return text, nil
}

// parseStatusLine takes "HTTP/1.1 200 OK", or HTTP/1.0; the reason may be
// empty.
func parseStatusLine(line []byte) (status, minor int, ok bool) {
	if len(line) < len("HTTP/1.1 200 ") || string(line[:7]) != "HTTP/1." || !isText(line) {
		return 0, 0, false
	}
	if line[7] != '0' && line[7] != '1' || line[8] != ' ' || line[12] != ' ' {
		return 0, 0, false
	}
	status, ok = parseDigits(line[9:12])
	return status, int(line[7] - '0'), ok && status >= 100 && status <= 599
}

func parseDigits[T string | []byte](s T) (int, bool) {
	n, err := strconv.ParseUint(string(s), 10, 31)
	return int(n), err == nil
}

// readFraming decides how the body ends (RFC 9112 section 6.3) and refuses
// what could be read in two ways.
func (h *workerHead) readFraming(minor int) error {
	lengths, codings := h.Header["Content-Length"], h.Header["Transfer-Encoding"]
	delete(h.Header, "Transfer-Encoding")
	framed := len(lengths) > 0 || len(codings) > 0
	switch {
	case h.Status < 200 && (framed || minor == 0):
		return errors.New("an informational answer with a body, or of HTTP/1.0")
	case len(lengths) > 1 || len(codings) > 1 || len(lengths) == 1 && len(codings) == 1:
		return errors.New("ambiguous body framing")
	case len(codings) == 1 && (minor == 0 || !strings.EqualFold(codings[0], "chunked")):
		return errors.New("unknown transfer coding")
	}
	h.ContentLength = -1
	if len(lengths) == 1 {
		n, ok := parseLength(lengths[0])
		if !ok {
			return errors.New("malformed Content-Length")
		}
		h.ContentLength = n
	}
	h.Chunked = len(codings) == 1
	if h.Status < 200 || h.Status == http.StatusNoContent || h.Status == http.StatusNotModified {
		h.ContentLength, h.Chunked = 0, false
	}
	return nil
}

// parseLength reads a Content-Length: digits alone, below 2^63.
func parseLength[T string | []byte](s T) (int64, bool) {
	if len(s) == 0 || len(s) > 19 {
		return 0, false
	}
	var n int64
	for i := 0; i < len(s); i++ {
		d := int64(s[i]) - '0'
		if d < 0 || d > 9 || n > (math.MaxInt64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

// checkSwitch holds a 101 against the handshake that it answers (RFC 6455
// section 4.1, RFC 9110 section 7.8). An error means that the worker broke
// the protocol and that no tunnel may be opened.
func checkSwitch(h *handshake, a *workerHead) error {
	if a.Status != http.StatusSwitchingProtocols {
		return errors.New("the answer is no 101")
	}
	hops, ok := listOfTokens(a.Header["Connection"])
	if !ok || !containsFold(hops, "upgrade") {
		return errors.New("the 101 has no Connection: Upgrade")
	}
	if up := a.Header["Upgrade"]; len(up) != 1 || !strings.EqualFold(up[0], h.Token) {
		return errors.New("the 101 switches to another protocol")
	}
	if h.Kind != websocketUpgrade {
		return nil
	}
	if v := a.Header["Sec-Websocket-Accept"]; len(v) != 1 || v[0] != websocketAccept(h.Key) {
		return errors.New("the 101 has a wrong Sec-WebSocket-Accept")
	}
	return h.checkSelection(a.Header)
}

func (h *handshake) checkSelection(header http.Header) error {
	if p := header["Sec-Websocket-Protocol"]; len(p) > 1 || len(p) == 1 && !slices.Contains(h.Protocols, p[0]) {
		return errors.New("the 101 selects a subprotocol that was not offered")
	}
	names, ok := extensionNames(header["Sec-Websocket-Extensions"])
	if !ok || hasDuplicates(names) {
		return errors.New("the 101 has malformed extensions")
	}
	for _, name := range names {
		if !slices.Contains(h.Extensions, name) {
			return errors.New("the 101 selects an extension that was not offered")
		}
	}
	return nil
}

// websocketAccept is the answer to a Sec-WebSocket-Key.
func websocketAccept(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // see the import
	return base64.StdEncoding.EncodeToString(sum[:])
}
