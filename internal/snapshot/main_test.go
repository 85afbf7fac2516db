package snapshot

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// go-redis's own, which ends within a second after a server was away.
	goleak.VerifyTestMain(sharing{m}, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// sharing ends what the tests shared before leaks are looked for.
type sharing struct{ m *testing.M }

func (s sharing) Run() int {
	defer shared.end()
	return s.m.Run()
}
