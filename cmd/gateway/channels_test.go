package main

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

func TestOperatorsListAndCloseChannels(t *testing.T) {
	t.Parallel()
	s := newScene(t).start()
	admin := []string{"--admin", "http://" + s.admin, "--token-file", filepath.Join(s.dir, "admin.token"), "-c", filepath.Join(s.dir, "gateway.yaml")}
	channels := func(args ...string) (string, int) {
		cmd := gatewayCommand(context.Background(), append(append([]string{"channels"}, args...), admin...)...)
		out, _ := cmd.Output()
		return string(out), cmd.ProcessState.ExitCode()
	}
	mine, neighbour := s.open("alice", "lease-1"), s.open("alice", "lease-2")
	out, code := channels("list", "--json")
	var list struct {
		Channels []struct{ ID, LeaseID, TenantID, Subject, WorkerID, State string }
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 || len(list.Channels) != 2 {
		t.Fatalf("listed %s, exit %d", out, code)
	}
	if c := list.Channels[0]; c.LeaseID != "lease-1" || c.TenantID != "acme" || c.Subject != "alice" || c.WorkerID != "wrk-a" || c.State != "open" {
		t.Errorf("listed %+v", c)
	}
	if out, code := channels("list"); code != 0 || !strings.Contains(out, "lease-2") || !strings.HasPrefix(out, "ID ") {
		t.Errorf("listed %s, exit %d", out, code)
	}
	if out, code := channels("close", "--lease", "lease-1"); code != 0 || out != "closed 1\n" {
		t.Errorf("closed %s, exit %d", out, code)
	}
	if e := closed(t, mine); e.Code != 1008 || !strings.HasPrefix(e.Reason, "CLOSED_BY_OPERATOR ") {
		t.Errorf("closed with %d %q", e.Code, e.Reason)
	}
	s.echo(neighbour, "still here")
	if ended := s.ended("lease-1").Custom.Sluice.Ended; ended.Why != "operator" {
		t.Errorf("recorded %+v", ended)
	}
	for name, row := range map[string]struct {
		args []string
		code int
	}{
		"none of that lease": {[]string{"close", "--lease", "lease-1"}, 1},
		"nothing chosen":     {[]string{"close"}, 2},
		"two ways to choose": {[]string{"close", "--id", "x", "--lease", "y"}, 2},
		"no such channel":    {[]string{"close", "--id", "x"}, 1},
		"by its id":          {[]string{"close", "--id", list.Channels[1].ID}, 0},
	} {
		if out, code := channels(row.args...); code != row.code {
			t.Errorf("%s: %s, exit %d", name, out, code)
		}
	}
	closed(t, neighbour)
	if status, _, body := s.operator("DELETE", "/v1/channels?leas=lease-1", ""); status != 400 {
		t.Errorf("a mistyped filter was answered %d %s", status, body)
	}
}
