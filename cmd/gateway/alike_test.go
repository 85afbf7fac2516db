package main

import (
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
)

// Whoever may not know whether a lease exists learns nothing from how an open
// is refused: not from status, headers or body, on no route.
func TestAMissingAMalformedAndAForeignLeaseLookTheSame(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.lease("lease-foreign", fields{"tenantId": "globex"})
	s.put("lease", "lease-malformed", `{"id": "lease-malformed", "id": "lease-malformed"}`)
	s.start()
	for _, route := range []string{"duplex", "runner", "execute", "output", "sync/in", "capabilities"} {
		method, header := "GET", []string(nil)
		switch route {
		case "duplex", "runner":
			header = handshakeHeaders
		case "execute", "sync/in":
			method = "POST"
		}
		var seen []string
		for _, lease := range []string{"lease-missing", "lease-malformed", "lease-foreign"} {
			answer := s.do(method, "alice", "/v1/leases/"+lease+"/"+route, "", header...)
			body, err := io.ReadAll(answer.Body)
			if err != nil {
				t.Fatal(err)
			}
			_, id, _ := strings.Cut(string(body), `"decision_id":"`)
			id, _, _ = strings.Cut(id, `"`)
			if answer.StatusCode != 403 || len(id) != 26 {
				t.Errorf("%s of %s: answered %d %s", route, lease, answer.StatusCode, body)
				continue
			}
			all := answer.Status + "\n"
			for _, name := range slices.Sorted(maps.Keys(answer.Header)) {
				if name != "Date" {
					all += name + ": " + strings.Join(answer.Header[name], ", ") + "\n"
				}
			}
			seen = append(seen, all+strings.ReplaceAll(string(body), id, ""))
		}
		if len(slices.Compact(seen)) != 1 {
			t.Errorf("%s: the answers differ:\n%s", route, strings.Join(seen, "\n---\n"))
		}
	}
	if after := s.worker.Counts(); after.Connections != 0 {
		t.Errorf("the worker was contacted: %+v", after)
	}
}
