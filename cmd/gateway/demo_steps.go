package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/coder/websocket"
)

// play tells the story, step by step; a step that goes wrong is counted.
func (d *demo) play() {
	d.say("Sluice stands in front of sandbox workers and decides who gets a channel into which sandbox,")
	d.say("and for how long. Here are a gateway, two workers, and three callers: alice and carol of the")
	d.say("tenant acme, and bob of globex.")

	d.step("1", "alice opens a channel into her own lease, and it echoes", func(ctx context.Context) error {
		return d.grant(ctx, "alice", "lease-granted")
	})
	for _, s := range []struct {
		number, caller, lease, title string
		status                       int
		code                         string
	}{
		{"2", "alice", "lease-no-opt-in", "a lease that did not opt in to duplex channels", 403, "DUPLEX_CHANNEL_CAPABILITY_DENIED"},
		{"3", "alice", "lease-not-plugins", "a lease that no plugin provider made", 403, "DUPLEX_CHANNEL_UNSUPPORTED"},
		{"4", "bob", "lease-granted", "another tenant's lease (and nothing tells bob that it exists)", 403, "DUPLEX_CHANNEL_CAPABILITY_DENIED"},
		{"5", "carol", "lease-granted", "a credential that has expired", 401, "CREDENTIAL_EXPIRED"},
	} {
		d.step(s.number, "refused: "+s.title, func(ctx context.Context) error {
			return d.refusal(ctx, s.caller, s.lease, s.status, s.code)
		})
	}
	d.step("6", "alice's channel is live when her lease is revoked", func(ctx context.Context) error {
		return d.revocation(ctx, "alice", "lease-revoked")
	})
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

func (d *demo) step(number, title string, do func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	d.say("\n%s. %s", number, title)
	if err := do(ctx); err != nil {
		d.failed++
		d.say("   WRONG: %v", err)
	}
}

func (d *demo) command(caller, lease string) {
	d.say("   $ websocat -H 'Authorization: Bearer %s' %s", demoCallers[caller].token, d.url(lease))
}

func (d *demo) grant(ctx context.Context, caller, lease string) error {
	d.command(caller, lease)
	conn, _, err := d.connect(ctx, caller, lease)
	if err != nil {
		return err
	}
	defer conn.CloseNow()
	for _, word := range []string{"hello", "from inside the sandbox"} {
		if err := conn.Write(ctx, websocket.MessageText, []byte(word)); err != nil {
			return err
		}
		_, answer, err := conn.Read(ctx)
		if err != nil {
			return err
		}
		if string(answer) != word {
			return fmt.Errorf("sent %q, got %q", word, answer)
		}
		d.say("   sent %q, the worker echoed %q", word, answer)
	}
	return conn.Close(websocket.StatusNormalClosure, "")
}

func (d *demo) refusal(ctx context.Context, caller, lease string, status int, code string) error {
	d.command(caller, lease)
	before := d.acme.Counts().Requests
	conn, answer, err := d.connect(ctx, caller, lease)
	if err == nil {
		_ = conn.CloseNow()
		return errors.New("the channel opened")
	}
	if answer == nil {
		return err
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	var told struct{ Code, Title, Decision_ID string }
	if err := json.Unmarshal(body, &told); err != nil {
		return fmt.Errorf("answered %d %s", answer.StatusCode, body)
	}
	d.say("   %d %s: %s", answer.StatusCode, told.Code, told.Title)
	d.say("   the decision log says why, the caller is not told: %s", d.log.reason(told.Decision_ID))
	if answer.StatusCode != status || told.Code != code {
		return fmt.Errorf("it should be %d %s", status, code)
	}
	if after := d.acme.Counts().Requests; after != before {
		return errors.New("the worker was contacted")
	}
	return nil
}

func (d *demo) revocation(ctx context.Context, caller, lease string) error {
	d.command(caller, lease)
	conn, _, err := d.connect(ctx, caller, lease)
	if err != nil {
		return err
	}
	defer conn.CloseNow()
	if err := conn.Write(ctx, websocket.MessageText, []byte("still here")); err != nil {
		return err
	}
	if _, _, err := conn.Read(ctx); err != nil {
		return err
	}
	d.say("   the channel is open and echoes")
	text, err := json.Marshal(demoLease(lease, func(l map[string]any) { l["status"], l["revision"] = "revoked", 2 }))
	if err != nil {
		return err
	}
	revoked := time.Now()
	if err := d.writeFile("records/leases/"+lease+".json", string(text)); err != nil {
		return err
	}
	d.say("   the control plane writes the lease again: status revoked, revision 2")
	_, _, err = conn.Read(ctx)
	took := time.Since(revoked)
	var closed websocket.CloseError
	if !errors.As(err, &closed) {
		return fmt.Errorf("the channel ended without a close frame: %w", err)
	}
	d.say("   closed with %d %q, %.1f ms after the record was written", closed.Code, closed.Reason, float64(took.Microseconds())/1000)
	bound := d.gateway.config.Channels.RevocationBound
	switch {
	case closed.Code != websocket.StatusPolicyViolation:
		return errors.New("it should close with 1008")
	case took > bound:
		return fmt.Errorf("it should close within %v", bound)
	}
	return nil
}

// invite leaves the scene to whoever started it.
func (d *demo) invite() {
	d.say("\nThe gateway keeps running; Ctrl-C ends it. Try:")
	d.say("   a channel      %s", d.url("lease-granted"))
	for _, name := range []string{"alice", "bob", "carol"} {
		c := demoCallers[name]
		d.say("   %-8s token  %s (tenant %s)", name, c.token, c.tenant)
	}
	d.say("   what a lease can do:")
	d.say("     curl -s -H 'Authorization: Bearer %s' http://%s/v1/leases/lease-granted/capabilities", demoCallers["alice"].token, d.gateway.data.Addr())
	d.say("   records        %s/records (edit one, and watch)", d.dir)
	d.say("   readiness      http://%s/readyz?verbose", d.gateway.probes.Addr())
	d.say("   metrics        http://%s/metrics", d.gateway.probes.Addr())
}
