package snapshot

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// What a server calls the length of a record's text is its word only.
func TestALengthThatAServerNamesTakesNoRoom(t *testing.T) {
	for _, answer := range []string{"$2147483647", "$9223372036854775806", "*2000000", "%1000000"} {
		for _, command := range []string{"GETRANGE", "PTTL", "HELLO"} {
			t.Run(answer+" to "+command, func(t *testing.T) {
				end := run(t, "TestReadingWhatNamesItsLength", "SLUICE_ANSWER="+answer, "SLUICE_COMMAND="+command)
				if end != "" {
					t.Error(end)
				}
			})
		}
	}
}

// run runs one test in a process of its own, which may not survive it, and
// returns how it ended when it did not pass.
func run(t *testing.T, test string, env ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run", "^"+test+"$", "-test.timeout", "50s")
	child.Env = append(os.Environ(), env...)
	out, err := child.CombinedOutput()
	if err == nil {
		return ""
	}
	return fmt.Sprintf("%v: %.600s", err, out)
}

// TestReadingWhatNamesItsLength is a part of the test above, and does nothing
// by itself.
func TestReadingWhatNamesItsLength(t *testing.T) {
	answer, to := os.Getenv("SLUICE_ANSWER"), os.Getenv("SLUICE_COMMAND")
	if answer == "" {
		return
	}
	server := script(t)
	store, err := NewRedisStore(RedisOptions{Addresses: []string{server.address}, KeyPrefix: "sluice:"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	server.misbehave(func(command []string) string {
		if command[0] == to {
			return answer + "\r\n"
		}
		return ""
	})
	took := room(func() {
		values, err := store.Read(t.Context(), []Key{leaseKey})
		if err == nil && values[0].Err == nil {
			t.Errorf("read %+v", values[0])
		}
	})
	if took > 8<<20 {
		t.Errorf("it took %d MB", took>>20)
	}
}
