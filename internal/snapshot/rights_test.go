package snapshot

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"regexp"
	"sluice/internal/snapshot/redistest"
	"strings"
	"sync"
	"testing"
	"time"
)

// leastRights are those that docs/records.md asks for.
func leastRights(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/records.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^ACL SETUSER gateway on >PASSWORD (.*)$`).FindSubmatch(text)
	if line == nil {
		t.Fatal("docs/records.md names no rights")
	}
	return string(line[1])
}

// redisUser makes a user and empties the ACL LOG.
func redisUser(t *testing.T, server *redistest.Server, name, rights string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", name, "reset", "on", ">secret"}
	for right := range strings.FieldsSeq(rights) {
		args = append(args, right)
	}
	for _, command := range [][]any{args, {"ACL", "LOG", "RESET"}} {
		if err := server.Client.Do(t.Context(), command...).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// refused is how often a command was refused, by the ACL LOG.
func refused(t *testing.T, server *redistest.Server) int {
	t.Helper()
	log, err := server.Client.Do(t.Context(), "ACL", "LOG").Slice()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, entry := range log {
		fields, ok := entry.(map[any]any)
		count, isNumber := fields["count"].(int64)
		if !ok || !isNumber {
			t.Fatalf("got %#v", entry)
		}
		n += int(count)
	}
	return n
}

// rightsLine is a line of the log.
type rightsLine struct{ Level, Msg, User, May string }

// rightsLines are the lines that a log has of the user's rights.
func rightsLines(log []byte) (found []rightsLine) {
	for line := range bytes.Lines(log) {
		var l rightsLine
		if json.Unmarshal(line, &l) == nil && strings.Contains(l.Msg, "user may do more") {
			found = append(found, l)
		}
	}
	return found
}

func logTo(w io.Writer) *slog.Logger { return slog.New(slog.NewJSONHandler(w, nil)) }

func TestAUserThatMayDoMoreThanTheGatewayNeedsIsWarnedOf(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	least := leastRights(t)
	for _, c := range []struct{ more, may string }{
		{"", ""},
		{"+exists +scan", ""}, // less than needed is not what this is about
		{"~sluice:* +set", "SET"},
		{"~sluice:* +del", "DEL"},
		{"~sluice:* +set +del +watch +multi +exec", "SET, DEL"},
		{"+eval", "EVAL"},
		{"+publish &x", "PUBLISH"},
		{"+keys", "KEYS"},
		{"+flushall", "FLUSHALL"},
		{"+config|get", "CONFIG"},
		{"+acl", "ACL SETUSER"},
		{"+replicaof", "REPLICAOF"},
		{"%R~*", "keys outside the prefix"},
		{"allkeys +@all &*", "SET, DEL, EVAL, PUBLISH, KEYS, FLUSHALL, CONFIG, ACL SETUSER, REPLICAOF, keys outside the prefix"},
	} {
		redisUser(t, server, "gateway", least+" "+c.more)
		var log bytes.Buffer
		store, err := NewRedisStore(RedisOptions{
			Addresses: []string{server.Addr}, KeyPrefix: "sluice:", Username: "gateway", Password: "secret", Log: logTo(&log),
		})
		if err != nil {
			t.Fatal(err)
		}
		if settled := store.checkRights(t.Context(), server.Addr); !settled {
			t.Errorf("%s: it is not settled", c.more)
		}
		store.Close()
		got := rightsLines(log.Bytes())
		switch {
		case c.may == "" && len(got) > 0:
			t.Errorf("%s: got %v", c.more, got)
		case c.may != "" && (len(got) != 1 || got[0].Level != "WARN" || got[0].User != "gateway" || got[0].May != c.may):
			t.Errorf("%s: got %v, want %s", c.more, got, c.may)
		}
		if n := refused(t, server); n > 0 {
			t.Errorf("%s: %d refusals in the ACL LOG", c.more, n)
		}
	}
}

func TestTheUserOfARedisWithoutUsersIsWarnedOf(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var log bytes.Buffer
	// Without a prefix every key is a record's, and none is another's.
	store, err := NewRedisStore(RedisOptions{Addresses: []string{server.Addr}, Log: logTo(&log)})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	store.checkRights(t.Context(), server.Addr)
	got := rightsLines(log.Bytes())
	if len(got) != 1 || got[0].User != "default" || !strings.HasPrefix(got[0].May, "SET, ") || strings.Contains(got[0].May, "prefix") {
		t.Errorf("got %v", got)
	}
	if exists := server.Client.DBSize(t.Context()).Val(); exists != 0 {
		t.Errorf("it wrote %d keys", exists)
	}
}

// What a server does not have, its user may not do; the rest is asked all the
// same.
func TestACommandThatAServerCallsOtherwiseIsNoAnswerForTheRest(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--rename-command", "CONFIG", "", "--rename-command", "FLUSHALL", "wipe")
	var log bytes.Buffer
	store, err := NewRedisStore(RedisOptions{Addresses: []string{server.Addr}, KeyPrefix: "sluice:", Log: logTo(&log)})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	settled := store.checkRights(t.Context(), server.Addr)
	got := rightsLines(log.Bytes())
	if !settled || len(got) != 1 || !strings.HasPrefix(got[0].May, "SET, ") || strings.Contains(got[0].May, "CONFIG") || !strings.Contains(got[0].May, "prefix") {
		t.Errorf("settled %v: %v", settled, got)
	}
}

// A user that may not ask is not asked again, however often the connection is
// lost; a server that does not answer is.
func TestRightsAreAskedForUntilThereIsAnAnswer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	redisUser(t, server, "gateway", strings.Replace(leastRights(t), "+acl|dryrun", "", 1))
	var log lockedBuffer
	b := redisBackendOf(t, RedisOptions{
		Addresses: []string{server.Addr}, KeyPrefix: "sluice:", Username: "gateway", Password: "secret", Log: logTo(&log),
	}, server.Client)
	if b.Store.(*RedisStore).checkRights(t.Context(), "127.0.0.1:1") {
		t.Error("it is settled by a server that is not there")
	}
	s := newScene(t, b, Options{})
	s.eventually("it says so", func() bool { return len(rightsLines(log.bytes())) == 1 })
	for range 3 {
		connected := strings.Count(string(log.bytes()), "connected to the record store")
		if err := server.Client.Do(t.Context(), "CLIENT", "KILL", "USER", "gateway").Err(); err != nil {
			t.Fatal(err)
		}
		s.eventually("it is connected again", func() bool {
			return strings.Count(string(log.bytes()), "connected to the record store") > connected
		})
	}
	time.Sleep(100 * time.Millisecond) // what would be wrong has no event of its own
	if got := rightsLines(log.bytes()); len(got) != 1 || got[0].Level != "INFO" || got[0].User != "gateway" {
		t.Errorf("got %v", got)
	}
	if n := refused(t, server); n != 1 {
		t.Errorf("%d refusals in the ACL LOG, want the one question", n)
	}
}

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.b.Bytes())
}
