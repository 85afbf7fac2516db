package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// frame is one frame as a peer would write it.
func frame(first byte, payload string, masked bool) []byte {
	b := []byte{first, 0}
	switch n := len(payload); {
	case n < 126:
		b[1] = byte(n)
	case n <= math.MaxUint16:
		b[1] = 126
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	default:
		b[1] = 127
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	if !masked {
		return append(b, payload...)
	}
	b[1] |= 0x80
	key := [4]byte{1, 2, 3, 4}
	b = append(b, key[:]...)
	for i := range len(payload) {
		b = append(b, payload[i]^key[i%4])
	}
	return b
}

func TestAFollowerKnowsItsPlaceAtEveryByte(t *testing.T) {
	var stream []byte
	var places []framePlace // behind each byte
	add := func(first byte, payload string, behind framePlace) {
		f := frame(first, payload, true)
		header := len(f) - len(payload)
		before := frameBoundary
		if len(places) > 0 {
			before = places[len(places)-1]
		}
		for i := range f {
			place := frameMidPayload
			switch {
			case i < header-1:
				place = before // a header that is not whole is not forwarded
			case i == len(f)-1:
				place = behind
			}
			places = append(places, place)
		}
		stream = append(stream, f...)
	}
	add(0x81, "hello", frameBoundary)
	add(0x01, "frag", frameMidMessage)
	add(0x89, "ping", frameMidMessage)
	add(0x00, strings.Repeat("x", 300), frameMidMessage)
	add(0x80, "", frameBoundary)
	add(0x82, strings.Repeat("y", 70_000), frameBoundary)
	add(0x88, "\x03\xe8", frameAfterClose)

	f := newFrameFollower(frameRules{Masked: true})
	var pending []byte
	forwarded := 0
	for i, c := range stream {
		pending = append(pending, c)
		n, err := f.advance(pending)
		if err != nil {
			t.Fatalf("byte %d: %v", i, err)
		}
		forwarded += n
		pending = pending[n:]
		if f.place() != places[i] {
			t.Fatalf("byte %d: place %d, want %d", i, f.place(), places[i])
		}
		if (f.remaining() > 0) != (places[i] == frameMidPayload) {
			t.Fatalf("byte %d: %d bytes remain at place %d", i, f.remaining(), places[i])
		}
		if len(pending) >= maxFrameHeader {
			t.Fatalf("byte %d: %d bytes are held back", i, len(pending))
		}
	}
	if forwarded != len(stream) || !f.sawClose() {
		t.Fatalf("%d of %d bytes forwarded, close seen: %v", forwarded, len(stream), f.sawClose())
	}
	if messages, payload := f.counts(); messages != 3 || payload != 5+304+70_000 {
		t.Fatalf("counted %d messages and %d bytes", messages, payload)
	}
}

func TestFramesThatCannotBeFollowedAreRefusedBeforeTheyAreForwarded(t *testing.T) {
	long := func(n uint64) []byte { return binary.BigEndian.AppendUint64([]byte{0x82, 127}, n) }
	good := frame(0x81, "ok", false)
	for _, tt := range []struct {
		name  string
		rules frameRules
		bad   []byte
		code  int
	}{
		{"a reserved data opcode", frameRules{}, frame(0x83, "", false), 1002},
		{"a reserved control opcode", frameRules{}, frame(0x8b, "", false), 1002},
		{"a reserved bit", frameRules{}, frame(0xc1, "x", false), 1002},
		{"the third reserved bit", frameRules{}, frame(0x91, "x", false), 1002},
		{"a masked frame of a server", frameRules{}, frame(0x81, "x", true), 1002},
		{"a long control frame", frameRules{}, frame(0x89, strings.Repeat("x", 126), false), 1002},
		{"a control frame with a long length form", frameRules{}, []byte{0x89, 127}, 1002},
		{"a fragmented control frame", frameRules{}, frame(0x09, "x", false), 1002},
		{"a continuation of nothing", frameRules{}, frame(0x80, "x", false), 1002},
		{"a length of 2^63", frameRules{}, long(1 << 63), 1002},
		{"the largest length that is none", frameRules{}, long(math.MaxUint64), 1002},
		{"a message over the limit", frameRules{MaxMessage: 10}, frame(0x82, strings.Repeat("x", 11), false), 1009},
		{"a huge message over the limit", frameRules{MaxMessage: 10}, long(math.MaxInt64), 1009},
	} {
		f := newFrameFollower(tt.rules)
		n, err := f.advance(append(bytes.Clone(good), tt.bad...))
		fault, ok := errors.AsType[*frameError](err)
		if !ok || fault.Code != tt.code || n != len(good) || f.place() != frameBoundary {
			t.Errorf("%s: %d bytes pass, error %v, place %d", tt.name, n, err, f.place())
		}
		if n, again := f.advance(good); n != 0 || again != err {
			t.Errorf("%s: the follower went on", tt.name)
		}
	}
	f := newFrameFollower(frameRules{Masked: true})
	if n, err := f.advance(good); n != 0 || err == nil {
		t.Errorf("a client's frame without a mask: %d bytes pass, error %v", n, err)
	}
}

func TestAMessageOverTheLimitEndsBetweenItsFragments(t *testing.T) {
	f := newFrameFollower(frameRules{MaxMessage: 10})
	first := append(frame(0x02, "12345", false), frame(0x89, "ping", false)...)
	n, err := f.advance(append(bytes.Clone(first), frame(0x80, "678901", false)...))
	if fault, ok := errors.AsType[*frameError](err); !ok || fault.Code != 1009 || n != len(first) || f.place() != frameMidMessage {
		t.Fatalf("%d bytes pass, error %v, place %d", n, err, f.place())
	}
	f = newFrameFollower(frameRules{MaxMessage: 10})
	for range 3 { // the limit is of one message, and 10 bytes are within it
		if _, err := f.advance(append(frame(0x02, "12345", false), frame(0x80, "67890", false)...)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestASecondMessageInsideAMessageIsRefused(t *testing.T) {
	f := newFrameFollower(frameRules{})
	first := frame(0x01, "a", false)
	n, err := f.advance(append(bytes.Clone(first), frame(0x81, "b", false)...))
	if err == nil || n != len(first) || f.place() != frameMidMessage {
		t.Fatalf("%d bytes pass, error %v", n, err)
	}
}

func TestReservedBitsPassWhenAnExtensionWasNegotiated(t *testing.T) {
	f := newFrameFollower(frameRules{Extensions: true})
	if _, err := f.advance(frame(0xc1, "deflated", false)); err != nil {
		t.Fatal(err)
	}
}

func TestNothingFollowsACloseFrame(t *testing.T) {
	f := newFrameFollower(frameRules{})
	end := frame(0x88, "", false)
	n, err := f.advance(append(bytes.Clone(end), frame(0x81, "late", false)...))
	if err == nil || n != len(end) || f.place() != frameAfterClose {
		t.Fatalf("%d bytes pass, error %v, place %d", n, err, f.place())
	}
}

func TestACloseFrameIsOneThatAPeerReads(t *testing.T) {
	long := strings.Repeat("é", 100)
	for _, tt := range []struct{ reason, want string }{
		{"", ""},
		{"SANDBOX_CAPABILITY_DENIED 01J", "SANDBOX_CAPABILITY_DENIED 01J"},
		{strings.Repeat("a", 123), strings.Repeat("a", 123)},
		{strings.Repeat("a", 124), strings.Repeat("a", 123)},
		{long, strings.Repeat("é", 61)},
		{"bad \xff byte", "bad ? byte"},
	} {
		for _, masked := range []bool{false, true} {
			b, err := closeFrame(1008, tt.reason, masked)
			if err != nil {
				t.Fatal(err)
			}
			f := newFrameFollower(frameRules{Masked: masked})
			if n, err := f.advance(b); n != len(b) || err != nil || !f.sawClose() {
				t.Fatalf("%q masked %v: %d of %d bytes, error %v", tt.reason, masked, n, len(b), err)
			}
			payload := b[2:]
			if masked {
				key := b[2:6]
				payload = bytes.Clone(b[6:])
				for i := range payload {
					payload[i] ^= key[i%4]
				}
			}
			if code := binary.BigEndian.Uint16(payload); code != 1008 || string(payload[2:]) != tt.want || !utf8.Valid(payload[2:]) {
				t.Errorf("%q masked %v: code %d, reason %q", tt.reason, masked, code, payload[2:])
			}
		}
	}
	if _, err := closeFrame(999, "", false); err == nil {
		t.Error("999 was taken for a close code")
	}
}

func TestFollowingFramesAllocatesNothing(t *testing.T) {
	f := newFrameFollower(frameRules{})
	stream := append(frame(0x01, strings.Repeat("x", 1000), false), frame(0x80, "y", false)...)
	if n := testing.AllocsPerRun(100, func() { _, _ = f.advance(stream) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkFollowFrames(b *testing.B) {
	stream := bytes.Repeat(frame(0x82, strings.Repeat("x", 4096), true), 15)
	f := newFrameFollower(frameRules{Masked: true})
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		_, _ = f.advance(stream)
	}
}

// slowFrames reads a whole stream frame by frame: how much of it passes, where
// that ends, what it counts, and the code of what stopped it.
type slowFrames struct {
	passed            int
	place             framePlace
	messages, payload int64
	code              int
}

func followSlowly(b []byte, rules frameRules) (s slowFrames) {
	fragments, message := false, uint64(0)
	for s.place != frameMidPayload {
		rest := b[s.passed:]
		if len(rest) < 2 {
			return s
		}
		op, fin, control := rest[0]&15, rest[0]&128 != 0, rest[0]&8 != 0
		masked, short := rest[1]&128 != 0, rest[1]&127
		known := bytes.IndexByte([]byte{0, 1, 2, 8, 9, 10}, op) >= 0
		badBits := rest[0]&0x70 != 0 && !rules.Extensions
		if s.place == frameAfterClose || !known || badBits || masked != rules.Masked ||
			control && (!fin || short > 125) || !control && (op == 0) != fragments {
			s.code = 1002
			return s
		}
		header, length := 2, uint64(short)
		if short == 126 {
			header = 4
		} else if short == 127 {
			header = 10
		}
		if len(rest) < header+4 {
			padded := append(bytes.Clone(rest), make([]byte, 16)...)
			if short > 125 && len(rest) < header {
				return s
			}
			length = slowLength(padded, short)
		} else {
			length = slowLength(rest, short)
		}
		if length > math.MaxInt64 {
			s.code = 1002
			return s
		}
		if op != 0 && !control {
			message = 0
		}
		if rules.MaxMessage > 0 && !control && message+length > uint64(rules.MaxMessage) ||
			!control && message+length > math.MaxInt64 {
			s.code = 1009
			return s
		}
		if masked {
			header += 4
		}
		if len(rest) < header {
			return s
		}
		if !control {
			message += length
			fragments = !fin
		}
		there := min(length, uint64(len(rest)-header))
		s.passed += header + int(there)
		if !control {
			s.payload += int64(there)
		}
		switch {
		case there < length:
			s.place = frameMidPayload
			return s
		case op == 8:
			s.place = frameAfterClose
		case fragments:
			s.place = frameMidMessage
		default:
			s.place = frameBoundary
		}
		if !control && fin {
			s.messages++
		}
	}
	return s
}

func slowLength(b []byte, short byte) uint64 {
	switch short {
	case 126:
		return uint64(b[2])<<8 | uint64(b[3])
	case 127:
		return binary.BigEndian.Uint64(b[2:])
	}
	return uint64(short)
}

// FuzzFrames holds the follower, fed in pieces, against the slow reader of the
// whole.
func FuzzFrames(f *testing.F) {
	f.Add(frame(0x81, "hello", true), true, false, int64(0), uint64(1))
	f.Add(append(frame(0x01, "a", false), frame(0x80, "b", false)...), false, false, int64(1), uint64(2))
	f.Add(append(frame(0x88, "\x03\xe8", false), 0x81), false, true, int64(0), uint64(3))
	f.Add([]byte{0x82, 127, 0x7f, 255, 255, 255, 255, 255, 255, 255, 1, 2}, false, false, int64(0), uint64(4))
	f.Add([]byte{0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0}, false, false, int64(0), uint64(5))
	f.Fuzz(func(t *testing.T, stream []byte, masked, extensions bool, limit int64, seed uint64) {
		rules := frameRules{Masked: masked, Extensions: extensions, MaxMessage: max(limit, 0)}
		want := followSlowly(stream, rules)

		follower := newFrameFollower(rules)
		random := rand.New(rand.NewPCG(seed, 0))
		var pending []byte
		var err error
		passed := 0
		for rest := stream; len(rest) > 0 && err == nil; {
			step := 1 + random.IntN(len(rest))
			pending, rest = append(pending, rest[:step]...), rest[step:]
			var n int
			n, err = follower.advance(pending)
			passed += n
			pending = pending[n:]
		}
		got := slowFrames{passed: passed, place: follower.place()}
		got.messages, got.payload = follower.counts()
		if fault, ok := errors.AsType[*frameError](err); ok {
			got.code = fault.Code
		}
		if got != want {
			t.Fatalf("%x with %+v:\n got %+v\nwant %+v", stream, rules, got, want)
		}
	})
}
