package proxy

import (
	"encoding/binary"
	"testing"
)

// FuzzWhole holds what a pump forwards of its buffer against what it promises:
// all of it, or up to the beginning of a frame that is not there yet and would
// fit; and a frame is never cut that could have been held.
func FuzzWhole(f *testing.F) {
	huge := []byte{0x82, 0xff, 0x7f, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0}
	f.Add(huge, uint16(100))
	f.Add(append(frame(0x81, "hello", true), huge...), uint16(20))
	f.Add(append(frame(0x81, "hello", true), frame(0x89, "", true)[:3]...), uint16(20))
	f.Add(binary.BigEndian.AppendUint64([]byte{0x82, 0xff}, 1<<63-1-14), uint16(14))
	f.Fuzz(func(t *testing.T, stream []byte, limit uint16) {
		size := int(limit)%4096 + maxFrameHeader
		stream = stream[:min(len(stream), size)]
		follower := newFrameFollower(frameRules{Masked: true})
		n, err := follower.whole(stream, size)
		if n < 0 || n > len(stream) {
			t.Fatalf("%d of %d bytes pass", n, len(stream))
		}
		if err != nil || n == len(stream) && follower.remaining() > 0 {
			return // ended, or inside a frame that cannot be held
		}
		if follower.remaining() > 0 {
			t.Fatalf("%d of %d bytes pass, and %d of a frame are missing", n, len(stream), follower.remaining())
		}
		if h, head := parseFrameHeader(stream[n:]); head > 0 && h.length <= int64(len(stream)-n-head) {
			t.Fatalf("a whole frame is held back at %d of %d", n, len(stream))
		}
	})
}
