package snapshot

import (
	"fmt"
	"strings"
	"testing"
)

func TestTheMastersOfAClusterAreThoseThatMayHoldKeys(t *testing.T) {
	text := strings.Join([]string{
		"aaa 10.0.0.1:6379@16379,one.example myself,master - 0 0 1 connected 0-100 200 [300->-bbb]",
		"bbb 10.0.0.2:6379@16379,two.example master - 0 1 2 connected 101-199 201-16383",
		"ccc 10.0.0.3:6379@16379 slave aaa 0 1 2 connected",
		"ddd 10.0.0.4:6379@16379 master,fail - 0 1 2 disconnected",     // its replica took over
		"eee 10.0.0.5:6379@16379 master,fail - 0 1 2 disconnected 300", // nobody took over
		"fff 10.0.0.6:6379@16379 master - 0 1 2 connected",             // to be given slots
		"ggg :0@0 master,noaddr - 0 1 2 disconnected",
		"hhh 10.0.0.7:6379@16379 handshake - 0 0 0 disconnected",
	}, "\n") + "\n"
	got, err := parseTopology(text, "10.0.0.1:6379", false)
	if err != nil || fmt.Sprint(got.addresses()) != "[10.0.0.1:6379 10.0.0.2:6379 10.0.0.5:6379 10.0.0.6:6379]" {
		t.Fatalf("got %+v, %v", got, err)
	}
	if !got.rules() || fmt.Sprint(got.masters[0].slots) != "[{0 100} {200 200}]" || len(got.routes()) != 5 {
		t.Errorf("got %+v", got)
	}
	named, err := parseTopology(text, "10.0.0.1:6379", true)
	if err != nil || named.addresses()[2] != "one.example:6379" {
		t.Errorf("got %v, %v", named, err)
	}
	moved, err := parseTopology(strings.Replace(text, "master - 0 1 2 connected 101-199 ", "master - 0 9 9 connected ", 1), "", false)
	if err != nil || got.differs(moved) != nil || got.sameRoutes(moved) {
		t.Errorf("slots that moved: %v, %v", moved, err)
	}
	for _, change := range []struct{ from, to string }{
		{"10.0.0.6", "10.0.0.8"},
		{"fff", "zzz"},
		{"ccc 10.0.0.3:6379@16379 slave aaa", "ccc 10.0.0.3:6379@16379 master -"},
		{"master,fail - 0 1 2 disconnected 300", "master,fail - 0 1 2 disconnected"},
	} {
		other, err := parseTopology(strings.Replace(text, change.from, change.to, 1), "", false)
		if err != nil || got.differs(other) == nil {
			t.Errorf("%s to %s: not seen, %v", change.from, change.to, err)
		}
	}
	replica, err := parseTopology(strings.NewReplacer("myself,master", "master", "slave", "myself,slave").Replace(text), "", false)
	if err != nil || replica.rules() {
		t.Errorf("a replica rules: %+v, %v", replica, err)
	}
	if own, err := parseTopology("aaa :6379@16379 myself,master - 0 0 1 connected 0-16383\n", "10.9.9.9:6379", false); err != nil || own.addresses()[0] != "10.9.9.9:6379" {
		t.Errorf("got %v, %v", own, err)
	}
	for _, bad := range []string{
		"", "x", "aaa 10.0.0.1:6379@1 slave x 0 0 1 connected\n", "aaa 10.0.0.1@1 master - 0 0 1 connected 1\n", "aaa 10.0.0.1:0@1 master - 0 0 1 connected 1\n",
		"aaa 10.0.0.1:1@1 master - 0 0 1 connected 5-4\n", "aaa 10.0.0.1:1@1 master - 0 0 1 connected 16384\n", "aaa :1@1 master - 0 0 1 connected 1\n",
		"aaa 10.0.0.1:1@1 master - 0 0 1 connected x\n",
	} {
		if got, err := parseTopology(bad, "", false); err == nil {
			t.Errorf("%q: got %+v", bad, got)
		}
	}
}
