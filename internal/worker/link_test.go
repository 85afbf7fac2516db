package worker

import (
	"context"
	"sluice/internal/authz"
	"testing"
	"time"
)

// aLink is a link that nobody asks, for the rules that are about time.
func aLink(t *testing.T) *link {
	t.Helper()
	d, err := NewDialer(DialerOptions{Allow: []string{"127.0.0.0/8"}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Mode: Watch, Dialer: d, Decode: func([]byte) (*authz.Live, error) { return nil, nil }})
	if err != nil {
		t.Fatal(err)
	}
	return newLink(s, s.worker("worker-1"), &authz.Record{ID: "worker-1", URL: "http://127.0.0.1"}, Target{})
}

func TestADocumentIsLiveForTenSecondsAfterALine(t *testing.T) {
	l, heard := aLink(t), time.Now()
	l.take(&authz.Live{ID: "worker-1"}, heard)
	l.up = true
	for after, want := range map[time.Duration][2]bool{
		0:                        {true, true},
		9999 * time.Millisecond:  {true, true},
		10 * time.Second:         {false, true},
		10699 * time.Millisecond: {false, true},
		10700 * time.Millisecond: {false, false},
	} {
		current, lasting := l.current(heard.Add(after)), l.lasting(heard.Add(after))
		if (current != nil) != want[0] || (lasting != nil) != want[1] {
			t.Errorf("after %v: for opens %v, for channels %v", after, current, lasting)
		}
	}
}

func TestTheSameDocumentStaysTheSameValueUnlessItsAddressMoved(t *testing.T) {
	l := aLink(t)
	first := &authz.Live{ID: "worker-1", Address: "127.0.0.1:1"}
	l.take(first, time.Now())
	if l.take(&authz.Live{ID: "worker-1", Address: "127.0.0.1:1"}, time.Now()) || l.doc != first {
		t.Error("the same document is another value")
	}
	if l.take(&authz.Live{ID: "worker-1", Address: "127.0.0.1:2"}, time.Now()) || l.doc.Address != "127.0.0.1:2" {
		t.Error("another address is a change, or was not noted")
	}
	if !l.take(&authz.Live{ID: "worker-1", Generation: "g2"}, time.Now()) {
		t.Error("another generation is no change")
	}
}

func TestAFailingWorkerRestsLongerWhenNobodyWaits(t *testing.T) {
	l := aLink(t)
	for failures, want := range map[int]time.Duration{0: 0, 1: firstPause, 2: 2 * firstPause, 50: unaskedRest} {
		l.failures = failures
		if got := l.pause(); got > want || got < want/2 {
			t.Errorf("after %d failures: %v", failures, got)
		}
	}
	l.failures, l.next = 50, newQuestion()
	if got := l.pause(); got > askedPause || got < askedPause/2 {
		t.Errorf("when a request waits: %v", got)
	}
}

func TestAMappedAddressIsTheIPv4AddressThatItMaps(t *testing.T) {
	d, err := NewDialer(DialerOptions{Allow: []string{"127.0.0.2/32"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.check(context.Background(), "[::ffff:127.0.0.2]:80"); err != nil {
		t.Error(err)
	}
	if err := d.check(context.Background(), "[::ffff:127.0.0.3]:80"); err == nil {
		t.Error("a forbidden address was taken in its mapped form")
	}
}
