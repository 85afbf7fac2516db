package proxy

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"
)

// tcpPair is two ends of one connection.
func tcpPair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.Close()
		b.Close()
	})
	return a, b
}

// What is read is what was sent, whatever buffer it was read into and whatever
// part of it is held back; and nothing is held at the end.
func TestALazyReaderReadsWhatWasSentInBuffersOfBothSizes(t *testing.T) {
	sender, receiver := tcpPair(t)
	random := rand.New(rand.NewPCG(1, 2))
	sent := make([]byte, 24<<20)
	for i := range sent {
		sent[i] = byte(random.Uint32())
	}
	go func() {
		for rest := sent; len(rest) > 0; {
			n := min(len(rest), 1+random.IntN(2*burstSize))
			if _, err := sender.Write(rest[:n]); err != nil {
				return
			}
			rest = rest[n:]
		}
		sender.Close()
	}()
	r := newLazyReader(receiver, nil)
	var got []byte
	grew, held := false, 0
	choice := rand.New(rand.NewPCG(3, 4))
	for {
		n, err := r.read(held)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		held += n
		grew = grew || len(*r.buf) == burstSize
		keep := min(held, choice.IntN(bufferSize)) // the part of a frame
		if choice.IntN(4) == 0 {
			keep = 0
		}
		got = append(got, (*r.buf)[:held-keep]...)
		copy(*r.buf, (*r.buf)[held-keep:held])
		if held = keep; held == 0 {
			r.release()
		}
	}
	if held > 0 {
		got = append(got, (*r.buf)[:held]...)
	}
	r.release()
	if !bytes.Equal(got, sent) {
		t.Error("what was read is not what was sent")
	}
	if !grew {
		t.Error("no burst")
	}
	if n := inBurst.Load(); n != 0 {
		t.Errorf("%d bursts are held", n)
	}
}

func TestBurstsAreBoundedAndAReaderThatWaitsHoldsNone(t *testing.T) {
	var readers []*lazyReader
	for range maxBursts + 4 {
		sender, receiver := tcpPair(t)
		go func() { _, _ = sender.Write(make([]byte, 4*burstSize)) }()
		readers = append(readers, newLazyReader(receiver, nil))
	}
	large := 0
	for _, r := range readers {
		for try := 0; !r.burst && try < 1000; try++ { // until there is more than fits
			r.release()
			if _, err := r.read(0); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		r.release()
		if _, err := r.read(0); err != nil {
			t.Fatal(err)
		}
		if len(*r.buf) == burstSize {
			large++
		}
	}
	if large != maxBursts || inBurst.Load() != maxBursts {
		t.Errorf("%d readers hold a burst, %d are counted; want %d", large, inBurst.Load(), maxBursts)
	}
	r := readers[0]
	deadline := time.Now().Add(200 * time.Millisecond)
	_ = r.conn.SetReadDeadline(deadline)
	for { // all that is there, a part of a frame held back
		if _, err := r.read(10); err != nil {
			break
		}
	}
	if r.buf == nil || len(*r.buf) != bufferSize {
		t.Error("it waits with a burst")
	}
	for _, r := range readers {
		r.release()
	}
	if n := inBurst.Load(); n != 0 {
		t.Errorf("%d bursts are held", n)
	}
}
