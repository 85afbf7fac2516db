package snapshot

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// topology is a cluster's masters as one of its nodes sees them: whoever may
// hold keys now, or be given some at any time.
type topology struct {
	masters []clusterMaster // sorted by id
	self    string          // id of the node that was asked
}

// clusterMaster is a master and the slots that it serves.
type clusterMaster struct {
	id, address string
	slots       []slotRange
}

type slotRange struct{ first, last int }

const clusterSlots = 16384

// parseTopology reads the answer to CLUSTER NODES
// (https://redis.io/docs/latest/commands/cluster-nodes). A master with slots
// counts whatever its state; one without counts when it is well, for it may be
// importing. asked is the address that was asked, for a node that does not
// know its own. With names, announced host names are preferred.
func parseTopology(text, asked string, names bool) (*topology, error) {
	t := &topology{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 8 {
			return nil, fmt.Errorf("%w: a cluster node of %d fields", errProtocol, len(fields))
		}
		flags := strings.Split(fields[2], ",")
		has := func(flag string) bool { return slices.Contains(flags, flag) }
		if has("myself") {
			t.self = fields[0]
		}
		if !has("master") {
			continue
		}
		m := clusterMaster{id: fields[0]}
		var err error
		if m.slots, err = parseSlots(fields[8:]); err != nil {
			return nil, err
		}
		if len(m.slots) == 0 && (has("fail") || has("noaddr") || has("handshake")) {
			continue
		}
		if m.address, err = nodeAddress(fields[1], asked, has("myself"), names); err != nil {
			return nil, err
		}
		t.masters = append(t.masters, m)
	}
	slices.SortFunc(t.masters, func(a, b clusterMaster) int { return strings.Compare(a.id, b.id) })
	if len(t.masters) == 0 {
		return nil, errors.New("the cluster names no master")
	}
	return t, nil
}

// parseSlots reads "5461-10922" and "7"; slots that move stand in brackets and
// are served by whoever has them without.
func parseSlots(fields []string) ([]slotRange, error) {
	var out []slotRange
	for _, f := range fields {
		if strings.HasPrefix(f, "[") {
			continue
		}
		first, last, isRange := strings.Cut(f, "-")
		if !isRange {
			last = first
		}
		a, err1 := strconv.Atoi(first)
		b, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || a < 0 || b < a || b >= clusterSlots {
			return nil, fmt.Errorf("%w: slots %.40q", errProtocol, f)
		}
		out = append(out, slotRange{a, b})
	}
	return out, nil
}

// nodeAddress reads "ip:port@cport,hostname".
func nodeAddress(field, asked string, self, names bool) (string, error) {
	endpoint, rest, _ := strings.Cut(field, "@")
	i := strings.LastIndexByte(endpoint, ':')
	if i < 0 {
		return "", fmt.Errorf("%w: a cluster node at %.80q", errProtocol, field)
	}
	host, port := endpoint[:i], endpoint[i+1:]
	if _, name, ok := strings.Cut(rest, ","); ok && names {
		name, _, _ = strings.Cut(name, ",")
		if name != "" {
			host = name
		}
	}
	if host == "" && self {
		host, _, _ = net.SplitHostPort(asked)
	}
	if n, err := strconv.Atoi(port); host == "" || err != nil || n < 1 || n > 65535 {
		return "", fmt.Errorf("a cluster node has no address, %.80q", field)
	}
	return net.JoinHostPort(host, port), nil
}

// addresses are the masters', sorted.
func (t *topology) addresses() []string {
	var out []string
	for _, m := range t.masters {
		out = append(out, m.address)
	}
	slices.Sort(out)
	return out
}

// differs says what of other is not as in t: nothing while both name the same
// masters. Which of them serves a slot makes no difference, for all of them
// tell of their changes.
func (t *topology) differs(other *topology) error {
	same := slices.EqualFunc(t.masters, other.masters, func(a, b clusterMaster) bool {
		return a.id == b.id && a.address == b.address
	})
	if !same {
		return fmt.Errorf("the masters of the cluster have changed, from %s to %s",
			strings.Join(t.addresses(), " "), strings.Join(other.addresses(), " "))
	}
	return nil
}

// rules reports whether the node that answered t is a master itself.
func (t *topology) rules() bool {
	return slices.ContainsFunc(t.masters, func(m clusterMaster) bool { return m.id == t.self })
}

// routes is who serves which slots, as go-redis takes it.
func (t *topology) routes() []redis.ClusterSlot {
	var out []redis.ClusterSlot
	for _, m := range t.masters {
		for _, s := range m.slots {
			out = append(out, redis.ClusterSlot{
				Start: s.first, End: s.last, Nodes: []redis.ClusterNode{{ID: m.id, Addr: m.address}},
			})
		}
	}
	return out
}

// sameRoutes reports that both serve every slot from the same master.
func (t *topology) sameRoutes(other *topology) bool {
	return slices.EqualFunc(t.masters, other.masters, func(a, b clusterMaster) bool {
		return a.id == b.id && slices.Equal(a.slots, b.slots)
	})
}
