package proxy

import (
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

var scriptOptions = headOptions{MaxBytes: 4 << 10, Timeout: 10 * time.Second, PriorKnowledge: true}

func TestRequestsAreServedWhereverTheirBytesAreCut(t *testing.T) {
	for cut := 1; cut < len(script); cut++ {
		served, _, answers := serveScript(scriptOptions, []byte(script[:cut]), []byte(script[cut:]))
		if !reflect.DeepEqual(served, scriptServed) {
			t.Fatalf("cut at %d (%q): served %v", cut, script[max(0, cut-10):cut], served)
		}
		if strings.Contains(answers, " 400 ") {
			t.Fatalf("cut at %d: %s", cut, answers)
		}
	}
}

func TestRequestsAreServedWhenTheyComeByteByByte(t *testing.T) {
	var segments [][]byte
	for i := range len(script) {
		segments = append(segments, []byte{script[i]})
	}
	if served, _, _ := serveScript(scriptOptions, segments...); !reflect.DeepEqual(served, scriptServed) {
		t.Fatalf("served %v", served)
	}
	if served, _, _ := serveScript(scriptOptions, []byte(script)); !reflect.DeepEqual(served, scriptServed) {
		t.Fatalf("in one piece: served %v", served)
	}
}

func TestAnUpgradeIsTakenWhereverItsBytesAreCut(t *testing.T) {
	upgrade := "GET /up HTTP/1.1\r\nHost: gw\r\nConnection: upgrade\r\nUpgrade: tcp\r\n\r\n"
	raw := "GET /1 HTTP/1.1\r\nHost: gw\r\n\r\n" + upgrade + "GET /early HTTP/1.1\r\n"
	for cut := 1; cut < len(raw); cut++ {
		served, early, answers := serveScript(scriptOptions, []byte(raw[:cut]), []byte(raw[cut:]))
		const echo = "GET /early HTTP/1.1\r\n"
		if !reflect.DeepEqual(served, scriptServed[:1]) || len(early) != 1 || !strings.HasPrefix(echo, early[0]) || !strings.HasSuffix(answers, echo) {
			t.Fatalf("cut at %d: served %v, early %q", cut, served, early)
		}
	}
}

func TestABadHeadIsRefusedWhereverItsBytesAreCut(t *testing.T) {
	raw := "GET /1 HTTP/1.1\r\nHost: gw\r\n\r\nGET /2 HTTP/1.1\r\nHost: gw\r\nX: a\r\n folded\r\n\r\nGET /3 HTTP/1.1\r\nHost: gw\r\n\r\n"
	var all sync.WaitGroup
	for cut := 1; cut < len(raw); cut++ { // at once: the server lingers behind each
		all.Go(func() {
			served, _, answers := serveScript(scriptOptions, []byte(raw[:cut]), []byte(raw[cut:]))
			if !reflect.DeepEqual(served, scriptServed[:1]) || !reflect.DeepEqual(statuses(answers), []string{"200", "400"}) {
				t.Errorf("cut at %d: served %v\n%s", cut, served, answers)
			}
		})
	}
	all.Wait()
}
