package proxy

import (
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// step is a part of what one side of a conversation does: it waits until it
// has read so many bytes in all, then writes, and then may send its FIN.
type step struct {
	read  int
	write []byte
	fin   bool
}

// side is what one side of a conversation does, and says at last.
type side []step

// all is a side that writes everything and then sends its FIN.
func all(parts ...[]byte) side { return side{{write: bytes.Join(parts, nil), fin: true}} }

// conversation is a WebSocket after its handshake, as the bytes that each side
// writes: RFC 6455 as a stranger may use it.
type conversation struct {
	caller, worker side
	deflate        bool // permessage-deflate is negotiated
}

// fragment is one frame as it is wanted, a masked one with key.
func fragment(first byte, key uint32, payload []byte) []byte {
	b := []byte{first}
	mask := byte(0)
	if key != 0 {
		mask = 0x80
	}
	switch n := len(payload); {
	case n < 126:
		b = append(b, mask|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, mask|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, mask|127), uint64(n))
	}
	return append(b, masked(key, payload)...)
}

func masked(key uint32, payload []byte) []byte {
	if key == 0 {
		return payload
	}
	k := binary.BigEndian.AppendUint32(nil, key)
	out := bytes.Clone(payload)
	for i := range out {
		out[i] ^= k[i%4]
	}
	return append(k, out...)
}

// A caller's frame is masked with a key that is not zero; a worker's is not.
func up(first byte, payload []byte) []byte   { return fragment(first, 0x1b2c3d4e, payload) }
func down(first byte, payload []byte) []byte { return fragment(first, 0, payload) }

const (
	final  = 0x80
	rsv1   = 0x40
	opText = 0x1
	opPing = 0x9
)

func letters(n int) []byte { return bytes.Repeat([]byte("s"), n) }

// longForm is a short frame with its length in more bytes than it needs.
func longForm(bytes int, payload []byte) []byte {
	if bytes == 2 {
		return append(append(binary.BigEndian.AppendUint16([]byte{final | opBinary, 0x80 | 126}, uint16(len(payload))), 1, 2, 3, 4), payload...)
	}
	return append(append(binary.BigEndian.AppendUint64([]byte{final | opBinary, 0x80 | 127}, uint64(len(payload))), 1, 2, 3, 4), payload...)
}

func deflated(text []byte) []byte {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, flate.BestCompression)
	_, _ = w.Write(text)
	_ = w.Flush()
	return bytes.TrimSuffix(b.Bytes(), []byte{0, 0, 0xff, 0xff})
}

func repeated(n int, frame []byte) []byte { return bytes.Repeat(frame, n) }

// conversations are what a direct connection passes.
func conversations() map[string]conversation {
	closing := func(first []byte) conversation { // one side closes, the other answers and ends
		return conversation{
			caller: side{{write: up(final|opClose, first)}, {read: 2 + len(first), fin: true}},
			worker: side{{read: 6 + len(first), write: down(final|opClose, first), fin: true}},
		}
	}
	rows := map[string]conversation{
		"nothing at all": {caller: all(), worker: all()},
		"fragments with control frames between them": {
			caller: all(up(opText, []byte("one ")), up(final|opPing, letters(125)), up(0, []byte("two ")), up(final|opPong, nil), up(0, nil), up(final, []byte("three"))),
			worker: all(down(opBinary, letters(70000)), down(final|opPing, nil), down(0, letters(126)), down(final|opPong, letters(1)), down(final, nil)),
		},
		"pings that nobody answers, pongs that nobody asked for": {
			caller: all(repeated(100, up(final|opPing, []byte("are you there"))), repeated(100, up(final|opPong, nil))),
			worker: all(repeated(100, down(final|opPong, letters(125))), repeated(100, down(final|opPing, nil))),
		},
		"a close without a code":                   closing(nil),
		"a close with a code":                      closing([]byte{0x03, 0xe8}),
		"a close with a code and the longest word": closing(append([]byte{0x0f, 0xa0}, letters(123)...)),
		"a close that the worker begins": {
			caller: side{{read: 4, write: up(final|opClose, []byte{0x03, 0xe9})}, {fin: true}},
			worker: side{{write: down(final|opClose, []byte{0x03, 0xe9})}, {read: 8, fin: true}},
		},
		"a close while fragments are missing": {
			caller: all(up(opText, []byte("never finished")), up(final|opClose, []byte{0x03, 0xe9})),
			worker: side{{read: 6 + 14 + 8, write: down(final|opClose, []byte{0x03, 0xe9}), fin: true}},
		},
		"a close of one side, and much from the other": {
			caller: all(up(final|opClose, []byte{0x03, 0xe8})),
			worker: side{{read: 8, write: bytes.Join([][]byte{repeated(50, down(final|opBinary, letters(70000))), down(final|opClose, nil)}, nil), fin: true}},
		},
		"a FIN of one side, and much from the other": {
			caller: all(up(final|opText, []byte("that is all"))),
			worker: side{{read: 6 + 11, write: repeated(50, down(final|opBinary, letters(70000))), fin: true}},
		},
		"a hundred thousand empty continuations": {
			caller: all(up(opText, nil), repeated(100000, up(0, nil)), up(final, []byte("at last"))),
			worker: all(down(opText, nil), repeated(100000, down(0, nil)), down(final, nil)),
		},
		"many small frames at once": {
			caller: all(repeated(20000, up(final|opBinary, []byte{1}))),
			worker: all(repeated(20000, down(final|opText, []byte("x")))),
		},
		"lengths in more bytes than they need": {
			caller: all(longForm(2, letters(5)), longForm(8, letters(5)), longForm(8, nil), longForm(8, letters(300))),
			worker: all(down(final|opBinary, nil)),
		},
		"text that is no UTF-8": {
			caller: all(up(final|opText, []byte{0xff, 0xfe, 0xc0, 0x80, 0xed, 0xa0, 0x80})),
			worker: all(down(final|opText, []byte{0xf8, 0x88, 0x80, 0x80, 0x80})),
		},
		"a close with a code of nobody's and a word that is no UTF-8": closing([]byte{0x0b, 0xb8, 0xff, 0xff}),
		"compressed messages": {
			deflate: true,
			caller:  all(up(final|rsv1|opText, deflated(letters(5000))), up(final|opText, []byte("plain")), up(rsv1|opBinary, deflated(letters(10))[:3]), up(final|opPing, nil), up(final, deflated(letters(10))[3:])),
			worker:  all(down(final|rsv1|opBinary, deflated(letters(1<<20))), down(final|rsv1|opText, []byte{0x00})),
		},
		"everything that a generator makes up": {caller: all(made(up, 1, 4<<20)), worker: all(made(down, 2, 4<<20))},
	}
	for _, n := range []int{0, 1, 125, 126, 127, 128, 65534, 65535, 65536, 65537, 1 << 20} {
		rows[fmt.Sprintf("messages of %d bytes", n)] = conversation{
			caller: all(up(final|opText, letters(n)), up(final|opBinary, letters(n)), up(opText, letters(n)), up(final, letters(n))),
			worker: all(down(final|opText, letters(n)), down(final|opBinary, letters(n)), down(opBinary, letters(n)), down(final, letters(n))),
		}
	}
	return rows
}

// made are about so many bytes of frames in every order that the protocol has.
func made(frame func(byte, []byte) []byte, seed uint64, size int) (b []byte) {
	random := rand.New(rand.NewPCG(seed, 6455))
	sizes := []int{0, 1, 2, 100, 125, 126, 127, 1000, 65535, 65536, 70000}
	for open := false; len(b) < size || open; {
		payload := make([]byte, sizes[random.IntN(len(sizes))])
		for i := range payload {
			payload[i] = byte(random.Uint32())
		}
		fin := byte(0)
		if random.IntN(2) == 0 {
			fin = final
		}
		switch {
		case random.IntN(4) == 0:
			b = append(b, frame(final|opPing+byte(random.IntN(2)), payload[:min(len(payload), 125)])...)
			continue
		case open:
			b = append(b, frame(fin, payload)...)
		default:
			b = append(b, frame(fin|opText+byte(random.IntN(2)), payload)...)
		}
		open = fin == 0
	}
	return b
}

func (s side) written() (b []byte) {
	for _, st := range s {
		b = append(b, st.write...)
	}
	return b
}

// heard is what came of a conversation.
type heard struct {
	byCaller, byWorker       []byte
	callerEnded, workerEnded error // nil: by a FIN
}

// play is one side on its connection. Pieces is how it writes: so many bytes
// at once, 0 being all.
func (s side) play(c net.Conn, r io.Reader, pieces int) (got []byte, ended error) {
	reads := make(chan int, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(reads)
		buf := make([]byte, 64<<10)
		for {
			n, err := r.Read(buf)
			if got = append(got, buf[:n]...); err != nil {
				if err != io.EOF {
					ended = err
				}
				return
			}
			select { // the newest count is the one that counts
			case <-reads:
			default:
			}
			reads <- len(got)
		}
	})
	have := 0
	for _, st := range s {
		for have < st.read {
			n, ok := <-reads
			if !ok {
				break
			}
			have = n
		}
		write(c, st.write, pieces)
		if st.fin {
			closeWrite(c)
		}
	}
	wg.Wait()
	return got, ended
}

func write(c net.Conn, b []byte, pieces int) {
	for len(b) > 0 {
		n := len(b)
		if pieces > 0 {
			n = min(n, pieces)
		}
		if _, err := c.Write(b[:n]); err != nil {
			return // the other side, or the comparison, tells
		}
		b = b[n:]
	}
}

// asWorker answers the handshake, then plays the worker's side.
func (v conversation) asWorker(c net.Conn, pieces int) ([]byte, error) {
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	br := bufio.NewReader(c)
	r, err := http.ReadRequest(br)
	if err != nil {
		return nil, err
	}
	answer := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " + websocketAccept(r.Header.Get("Sec-WebSocket-Key")) + "\r\n"
	if v.deflate {
		answer += "Sec-WebSocket-Extensions: permessage-deflate\r\n"
	}
	if _, err := io.WriteString(c, answer+"\r\n"); err != nil {
		return nil, err
	}
	return v.worker.play(c, br, pieces)
}

// talkedOver has a conversation through what opens a way to its worker.
func (v conversation) talkedOver(t *testing.T, way func(t *testing.T, worker string) string, pieces int) (h heard) {
	t.Helper()
	done := make(chan struct{})
	worker := listen(t, func(c net.Conn) {
		h.byWorker, h.workerEnded = v.asWorker(c, pieces)
		close(done)
	})
	head := websocketHead
	if v.deflate {
		head = strings.Replace(head, "\r\n\r\n", "\r\nSec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n", 1)
	}
	c, br := open(t, way(t, worker), head)
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	h.byCaller, h.callerEnded = v.caller.play(c, br, pieces)
	<-done
	return h
}

func directly(_ *testing.T, worker string) string { return worker }

func through(t *testing.T, worker string) string { return startGateway(t, worker).address }

// What a direct connection passes the gateway passes, bit by bit: whatever the
// frames, and however they are cut into segments.
func TestWhatADirectConnectionPassesTheGatewayPasses(t *testing.T) {
	for name, v := range conversations() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := v.talkedOver(t, directly, 0)
			if !bytes.Equal(want.byWorker, v.caller.written()) || !bytes.Equal(want.byCaller, v.worker.written()) {
				t.Fatal("a direct connection does not pass it")
			}
			for _, pieces := range []int{0, 1, 7, 1461} {
				if pieces == 1 && len(want.byCaller)+len(want.byWorker) > 200<<10 || pieces == 7 && len(want.byCaller)+len(want.byWorker) > 2<<20 {
					continue // too many segments to be worth their time
				}
				got := v.talkedOver(t, through, pieces)
				switch {
				case !bytes.Equal(got.byWorker, want.byWorker):
					t.Errorf("in pieces of %d: the worker got %d bytes, directly %d", pieces, len(got.byWorker), len(want.byWorker))
				case !bytes.Equal(got.byCaller, want.byCaller):
					t.Errorf("in pieces of %d: the caller got %d bytes, directly %d", pieces, len(got.byCaller), len(want.byCaller))
				case got.callerEnded != nil || got.workerEnded != nil || want.callerEnded != nil || want.workerEnded != nil:
					t.Errorf("in pieces of %d: ended with %v and %v, directly %v and %v", pieces, got.callerEnded, got.workerEnded, want.callerEnded, want.workerEnded)
				}
			}
		})
	}
}

// Over HTTP/2 there is no connection to compare with: what each side gets is
// what the other one wrote.
func TestAWebSocketOverHTTP2PassesTheSame(t *testing.T) {
	for name, v := range conversations() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var h heard
			done := make(chan struct{})
			worker := listen(t, func(c net.Conn) {
				h.byWorker, h.workerEnded = v.asWorker(c, 0)
				close(done)
			})
			c := openHTTP2(t, startGateway(t, worker).address, v.deflate)
			h.byCaller, h.callerEnded = v.caller.play(c, c, 0)
			<-done
			if !bytes.Equal(h.byWorker, v.caller.written()) || !bytes.Equal(h.byCaller, v.worker.written()) || h.callerEnded != nil || h.workerEnded != nil {
				t.Errorf("the worker got %d bytes of %d, then %v; the caller %d of %d, then %v", len(h.byWorker), len(v.caller.written()), h.workerEnded,
					len(h.byCaller), len(v.worker.written()), h.callerEnded)
			}
		})
	}
}

// What no end of a WebSocket may let pass ends both sides with 1002: behind it
// nobody knows where a frame begins, so that no close could be put between
// two. What came before it has passed.
func TestFramesThatBreakTheProtocolEndTheChannelWith1002(t *testing.T) {
	hello := up(final|opText, []byte("hello"))
	for name, row := range map[string][]byte{
		"a reserved opcode":                   up(final|0x3, nil),
		"a reserved control opcode":           up(final|0xb, nil),
		"a frame that is not masked":          down(final|opText, []byte("x")),
		"a reserved bit without an extension": up(final|rsv1|opText, nil),
		"a fragmented ping":                   up(opPing, nil),
		"a ping that is too long":             up(final|opPing, letters(126)),
		"a continuation of nothing":           up(final, nil),
		"a message inside another one":        append(up(opText, nil), up(final|opText, nil)...),
		"a length that is negative":           {final | opBinary, 0x80 | 127, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := make(chan []byte, 1)
			worker := listen(t, func(c net.Conn) {
				r, br := switches(t, c)
				if r == nil {
					return
				}
				first := make([]byte, len(hello))
				if _, err := io.ReadFull(br, first); err != nil || !bytes.Equal(first, hello) {
					t.Errorf("the worker got %q first, %v", first, err)
				}
				for {
					opcode, payload, err := readFrame(br)
					if err != nil || opcode == opClose {
						got <- payload
						return
					}
				}
			})
			g := startGateway(t, worker)
			c, br := open(t, g.address, websocketHead+string(hello))
			if _, err := c.Write(row); err != nil {
				t.Fatal(err)
			}
			if code, reason := readClose(t, br); code != 1002 || !strings.HasPrefix(reason, "PROTOCOL_ERROR ") {
				t.Errorf("the caller was told %d %q", code, reason)
			}
			if payload := <-got; len(payload) < 2 || binary.BigEndian.Uint16(payload) != 1002 {
				t.Errorf("the worker was told %q", payload)
			}
			if s := g.summary(t); s.Ending.Why != "protocol_error" {
				t.Errorf("recorded %+v", s.Ending)
			}
		})
	}
}
