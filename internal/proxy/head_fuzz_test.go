package proxy

import (
	"bufio"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// slowRequest is a request as the oracle, or net/http, reads it.
type slowRequest struct {
	line, body string
	whole      bool // the body came to its end
}

// slowRead is everything a connection's bytes amount to.
type slowRead struct {
	requests []slowRequest
	refused  int    // the status of the refusal that ends it, or 0
	tail     string // behind an upgrade or the HTTP/2 preface: not looked at
}

// readSlowly reads a connection's bytes as a whole, by regular expressions
// written from the RFCs: the oracle for the guard.
func readSlowly(in string, limit int) (out slowRead) {
	if strings.HasPrefix(in, preface) {
		out.tail = in
		return out
	}
	if strings.HasPrefix(preface, in) {
		return out
	}
	for in != "" {
		size, status := slowHead(in, limit)
		if status != 0 || size == 0 {
			out.refused = status
			return out
		}
		lines := strings.Split(strings.TrimSuffix(in[:size], "\r\n\r\n"), "\r\n")
		fields, status := slowFields(lines)
		if status != 0 {
			out.refused = status
			return out
		}
		in = in[size:]
		r := slowRequest{line: strings.TrimSuffix(lines[0], " "+lines[0][len(lines[0])-8:])}
		r.body, in, r.whole = slowBody(in, fields)
		out.requests = append(out.requests, r)
		if !r.whole {
			return out
		}
		if slowUpgrade.MatchString(strings.Join(fields["connection"], ",")) && len(fields["upgrade"]) > 0 && strings.HasSuffix(lines[0], "1.1") {
			out.tail = in
			return out
		}
	}
	return out
}

var (
	slowUpgrade   = regexp.MustCompile(`(?i)(^|,)[ \t]*upgrade[ \t]*(,|$)`)
	slowWrongByte = regexp.MustCompile("^[^A-Z]|[^\r]\n|\r[^\n]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
	slowLine      = regexp.MustCompile(`^([A-Z]{1,32}) ([^ ]*) HTTP/([0-9]\.[0-9])$`)
	slowPath      = regexp.MustCompile(`^/([A-Za-z0-9._~!$&'()*+,=:@-]+(/[A-Za-z0-9._~!$&'()*+,=:@-]+)*/?)?$`)
	slowDots      = regexp.MustCompile(`(^|/)\.\.?(/|$)`)
	slowQuery     = regexp.MustCompile(`^([!"$&-:<-~]|%[0-9A-Fa-f]{2})*$`)
	slowField     = regexp.MustCompile("^([A-Za-z0-9!#$%&'*+.^_`|~-]+):[ \t]*((?s:.*?))[ \t]*$")
	slowTokens    = regexp.MustCompile("^[ \t]*[A-Za-z0-9!#$%&'*+.^_`|~-]+[ \t]*(,[ \t]*[A-Za-z0-9!#$%&'*+.^_`|~-]+[ \t]*)*$")
	slowHost      = regexp.MustCompile(`^([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?|\[[0-9A-Fa-f:.]+\])(:[1-9][0-9]{0,4})?$`)
	slowChunk     = regexp.MustCompile("^([0-9A-Fa-f]{1,15})(;[A-Za-z0-9!#$%&'*+.^_`|~;=\"-]*)?\r\n")
)

// slowHead returns the size of the head that in begins with, 0 when it has no
// end yet, or the status that refuses it.
func slowHead(in string, limit int) (size, status int) {
	seen := in[:min(len(in), limit)]
	if end := strings.Index(seen, "\r\n\r\n"); end >= 0 {
		seen = seen[:end+4]
	}
	switch {
	case slowWrongByte.MatchString(seen):
		return 0, 400
	case strings.HasSuffix(seen, "\r\n\r\n"):
		return len(seen), 0
	case len(in) < limit:
		return 0, 0
	case strings.Contains(seen, "\n"):
		return 0, 431
	}
	return 0, 414
}

func slowFields(lines []string) (map[string][]string, int) {
	line := slowLine.FindStringSubmatch(lines[0])
	if line == nil {
		return nil, 400
	}
	if line[3] != "1.1" && line[3] != "1.0" {
		return nil, 505
	}
	if line[1] == "CONNECT" || line[1] == "OPTIONS" && line[2] == "*" {
		return nil, 405
	}
	path, query, _ := strings.Cut(line[2], "?")
	if !slowPath.MatchString(path) || slowDots.MatchString(path) || !slowQuery.MatchString(query) {
		return nil, 400
	}
	fields := map[string][]string{}
	for _, l := range lines[1:] {
		f := slowField.FindStringSubmatch(l)
		if f == nil {
			return nil, 400
		}
		name := strings.ToLower(f[1])
		if status := slowValue(name, f[2], line[3], fields); status != 0 {
			return nil, status
		}
		fields[name] = append(fields[name], f[2])
	}
	if line[3] == "1.1" && fields["host"] == nil || fields["content-length"] != nil && fields["transfer-encoding"] != nil {
		return nil, 400
	}
	return fields, 0
}

func slowValue(name, value, version string, before map[string][]string) int {
	bad := false
	switch name {
	case "host":
		bad = !slowHost.MatchString(value)
		if host, port, found := strings.Cut(value, "]"); !bad && strings.HasPrefix(value, "[") && found {
			ip := net.ParseIP(host[1:])
			bad = ip == nil || !strings.Contains(host, ":")
			value = port
		}
		if i := strings.LastIndexByte(value, ':'); !bad && i >= 0 {
			n, _ := strconv.Atoi(value[i+1:])
			bad = n > 65535
		}
	case "content-length":
		_, err := strconv.ParseInt(value, 10, 64)
		bad = err != nil || len(value) > 19 || strings.Trim(value, "0123456789") != ""
	case "transfer-encoding":
		if version == "1.0" {
			return 400
		}
		if !strings.EqualFold(value, "chunked") {
			if slowTokens.MatchString(value) && !strings.Contains(value, ",") {
				return 501
			}
			return 400
		}
	case "expect":
		if !strings.EqualFold(value, "100-continue") {
			return 417
		}
	case "content-type", "origin":
	case "connection", "trailer":
		if !slowTokens.MatchString(value) {
			return 400
		}
		if name == "trailer" {
			for part := range strings.SplitSeq(value, ",") {
				bad = bad || !mayTrail(strings.Trim(part, " \t"))
			}
			bad = bad || strings.Count(value, ",") >= maxTrailerFields
		}
		if bad {
			return 400
		}
		return 0
	case "sluice-head-refused":
		return 400
	default:
		return 0
	}
	if bad || before[name] != nil {
		return 400
	}
	return 0
}

// slowBody returns the body, what follows it, and whether it came to its end.
func slowBody(in string, fields map[string][]string) (body, rest string, whole bool) {
	if fields["transfer-encoding"] == nil {
		size := 0
		if fields["content-length"] != nil {
			size, _ = strconv.Atoi(fields["content-length"][0])
		}
		if len(in) < size {
			return in, "", false
		}
		return in[:size], in[size:], true
	}
	extensions := 0
	for {
		m := slowChunk.FindStringSubmatch(in)
		if m == nil || len(m[2]) > maxChunkExtension+1 {
			return body, "", false
		}
		extensions += max(len(m[2])-1, 0)
		if extensions > maxExtensions {
			return body, "", false
		}
		size, _ := strconv.ParseInt(m[1], 16, 64)
		in = in[len(m[0]):]
		if size == 0 {
			rest, whole = slowTrailers(in)
			return body, rest, whole
		}
		if int64(len(in)) < size+2 || in[size:size+2] != "\r\n" {
			return body + in[:min(size, int64(len(in)))], "", false
		}
		body, in = body+in[:size], in[size+2:]
	}
}

func slowTrailers(in string) (rest string, whole bool) {
	size := 0
	for fields := 0; ; fields++ {
		line, after, found := strings.Cut(in, "\r\n")
		size += len(line) + 2
		if !found || size > maxTrailers {
			return "", false
		}
		in = after
		if line == "" {
			return in, true
		}
		m := slowField.FindStringSubmatch(line)
		if m == nil || fields == maxTrailerFields || len(m[1]) > maxTrailerName || !mayTrail(m[1]) || slowWrongByte.MatchString("A"+line) {
			return "", false
		}
	}
}

// readGuarded reads the same bytes through the guard with net/http's parser.
func readGuarded(t *testing.T, guarded net.Conn, conn *scriptConn) (out slowRead) {
	t.Helper()
	br := bufio.NewReaderSize(guarded, 4<<10)
	for {
		r, err := http.ReadRequest(br)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Fatalf("what passed is no request for net/http: %v", err)
			}
			return out
		}
		if status, _, ok := refusalOf(r); ok {
			out.refused = status
			if n, err := guarded.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
				t.Fatalf("behind a refusal: %d, %v", n, err)
			}
			return out
		}
		if r.Method == "PRI" && r.Proto == "HTTP/2.0" {
			rest, _ := io.ReadAll(br)
			out.tail = "PRI * HTTP/2.0\r\n\r\n" + string(rest)
			return out
		}
		body, err := io.ReadAll(r.Body)
		out.requests = append(out.requests, slowRequest{r.Method + " " + r.RequestURI, string(body), err == nil})
		if err != nil {
			return out
		}
		if guarded.(*headConn).upgrade {
			_, early := takeConn(guarded, br)
			out.tail = string(early) + conn.rest()
			return out
		}
	}
}

// FuzzHeads holds the guard, fed in pieces, against the oracle: the same
// requests with the same bodies, the same end.
func FuzzHeads(f *testing.F) {
	for i, tt := range badHeads {
		if len(tt.head) < 1000 {
			f.Add([]byte(tt.head), uint64(i))
		}
	}
	for i, tt := range badChunks {
		if len(tt.body) < 1000 {
			f.Add([]byte(chunkedHead+tt.body), uint64(i))
		}
	}
	f.Add([]byte(script), uint64(1))
	f.Add([]byte(preface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00"), uint64(2))
	f.Add([]byte("PRI * HTTP/2.0\r\n\r\n0"), uint64(79)) // found by fuzzing
	f.Add([]byte("GET / HTTP/1.1\r\nHost: gw\r\nConnection: upgrade\r\nUpgrade: x\r\nContent-Length: 2\r\n\r\nabGET / HTTP/1.1\r\n"), uint64(3))
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		o := headOptions{MaxBytes: 512, Timeout: time.Minute, PriorKnowledge: true}
		want := readSlowly(string(in), o.MaxBytes)

		random := rand.New(rand.NewPCG(seed, 0))
		conn := &scriptConn{}
		for rest := in; len(rest) > 0; {
			step := 1 + random.IntN(min(len(rest), 1+random.IntN(600)))
			conn.segments = append(conn.segments, rest[:step])
			rest = rest[step:]
		}
		got := readGuarded(t, guardConn(conn, &o), conn)
		if len(want.requests) > 0 {
			// A body that broke off passes as far as the piece it broke off in
			// lets it, so only its being broken is compared.
			last := len(want.requests) - 1
			if len(got.requests) == len(want.requests) && !want.requests[last].whole && !got.requests[last].whole {
				want.requests[last].body = got.requests[last].body
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q:\n got %+v\nwant %+v", in, got, want)
		}
	})
}
