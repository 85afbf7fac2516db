package proxy

import (
	"sluice/internal/channel"
	"testing"
)

func TestMessagesOfACallAreCountedHoweverTheyArrive(t *testing.T) {
	var stream []byte
	for _, size := range []int{0, 1, 300, 0, 70_000, 5} {
		stream = append(stream, 0, 0, byte(size>>16), byte(size>>8), byte(size))
		stream = append(stream, make([]byte, size)...)
	}
	for _, step := range []int{1, 2, 5, 7, 64, 1 << 20} {
		m, flow := grpcMessages{follows: true}, channel.Flow{}
		for rest := stream; len(rest) > 0; {
			n := min(step, len(rest))
			ended, _ := m.follow(rest[:n])
			flow.Add(n, ended)
			rest = rest[n:]
		}
		if flow.Messages.Load() != 6 || flow.Bytes.Load() != int64(len(stream)) {
			t.Errorf("in steps of %d: %d messages, %d bytes", step, flow.Messages.Load(), flow.Bytes.Load())
		}
	}
	if ended, ok := (&grpcMessages{limit: 10}).follow(stream); ended != 0 || !ok {
		t.Errorf("of no call: %d messages, %v", ended, ok)
	}
	for limit, want := range map[int64]bool{70_000: true, 69_999: false, 1: false, 0: true} {
		if _, ok := (&grpcMessages{follows: true, limit: limit}).follow(stream); ok != want {
			t.Errorf("with a limit of %d they pass: %v", limit, ok)
		}
	}
}
