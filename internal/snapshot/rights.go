package snapshot

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// excess is what a gateway never does with its store, as it stands in the log
// and as Redis is asked about it. {key} is a record's, {other} is none.
var excess = []struct{ name, command string }{
	{"SET", "set {key} x"},
	{"DEL", "del {key}"},
	{"EVAL", "eval x 0"},
	{"PUBLISH", "publish x x"},
	{"KEYS", "keys x"},
	{"FLUSHALL", "flushall"},
	{"CONFIG", "config get x"},
	{"ACL SETUSER", "acl setuser x"},
	{"REPLICAOF", "replicaof x 1"},
	{"keys outside the prefix", "getrange {other} 0 0"},
}

// checkRights logs a warning when the user may do more in the store than it
// needs: whoever takes the gateway over could then grant, not only read. It
// reports whether that is settled; a server that did not answer is to be asked
// again.
//
// Redis is asked by ACL DRYRUN, which runs nothing. To try the commands
// themselves would put a refusal of each into the ACL LOG, where it is an alarm.
func (s *RedisStore) checkRights(ctx context.Context, address string) bool {
	may, err := s.excessRights(ctx, address)
	user := or(s.opt.Username, "default")
	switch {
	case err != nil && refusesCommand(err.Error()):
		s.opt.Log.Info("whether the record store's user may do more than it needs was not checked; Redis 7 tells it to a user with +acl|dryrun",
			"user", user, "answer", err.Error())
	case err != nil:
		return false
	case len(may) > 0:
		s.opt.Log.Warn("the record store's user may do more than the gateway needs; give it a user of its own with the rights that docs/records.md lists",
			"user", user, "may", strings.Join(may, ", "))
	}
	return true
}

// excessRights returns the names of excess that the user may do.
func (s *RedisStore) excessRights(ctx context.Context, address string) (may []string, err error) {
	opt := s.single(address)
	opt.PoolSize = 1
	client := redis.NewUniversalClient(opt)
	defer client.Close()
	places := strings.NewReplacer("{key}", s.name(ControlKey), "{other}", "x"+s.opt.KeyPrefix+"x")
	for _, e := range excess {
		if strings.Contains(e.command, "{other}") && s.opt.KeyPrefix == "" {
			continue
		}
		ask := []any{"ACL", "DRYRUN", or(s.opt.Username, "default")}
		for word := range strings.FieldsSeq(e.command) {
			ask = append(ask, places.Replace(word))
		}
		answer, err := client.Do(ctx, ask...).Text()
		if err != nil && strings.HasPrefix(err.Error(), "ERR Command") {
			continue // one that this server does not have, or calls otherwise
		}
		if err != nil {
			return nil, err
		}
		if answer == "OK" {
			may = append(may, e.name)
		}
	}
	return may, nil
}
