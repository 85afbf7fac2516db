package worker

import (
	"cmp"
	"slices"
	"time"
)

// State is what is known of a link; it is the label of sluice_worker_links.
type State string

// The states of a link. Their set is closed.
const (
	StateUp      State = "up"      // the stream is up and the document live
	StateProbed  State = "probed"  // no stream; the last probe was answered
	StateAsking  State = "asking"  // no answer yet
	StateLost    State = "lost"    // out of reach; channels rest on its last document
	StateDown    State = "down"    // the last question failed
	StateStatic  State = "static"  // the operator's word
	StateUnasked State = "unasked" // nothing was asked yet
)

// AllStates lists every state, for a metric that shows zeroes.
var AllStates = []State{StateUp, StateProbed, StateAsking, StateLost, StateDown, StateStatic, StateUnasked}

// Status describes one link for operators.
type Status struct {
	Worker     string    `json:"worker"`
	URL        string    `json:"url"`
	State      State     `json:"state"`
	Status     string    `json:"status,omitempty"`     // the worker's own
	Generation string    `json:"generation,omitempty"` // of the last document
	Heard      time.Time `json:"heard,omitzero"`       // when it came
	Channels   int       `json:"channels"`             // that rest on the worker
	Error      string    `json:"error,omitempty"`      // the last failure, since the last document
}

// Status lists the links, sorted by worker and URL.
func (s *Links) Status() []Status {
	list := []Status{}
	for _, w := range s.static {
		list = append(list, Status{
			Worker: w.record.ID, URL: w.record.URL, State: StateStatic,
			Status: w.live.Status, Generation: w.live.Generation,
		})
	}
	s.mu.Lock()
	for _, w := range s.workers {
		for _, l := range w.links {
			list = append(list, l.status())
		}
	}
	s.mu.Unlock()
	slices.SortFunc(list, func(a, b Status) int {
		return cmp.Or(cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.URL, b.URL))
	})
	return list
}

// States counts the links by state; a state without a link is 0.
func (s *Links) States() map[State]int {
	count := make(map[State]int, len(AllStates))
	for _, state := range AllStates {
		count[state] = 0
	}
	count[StateStatic] = len(s.static)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.workers {
		for _, l := range w.links {
			count[l.state()]++
		}
	}
	return count
}

func (l *link) status() Status {
	st := Status{Worker: l.id, URL: l.url, State: l.state(), Channels: l.owner.held, Heard: l.heard}
	if l.doc != nil {
		st.Status, st.Generation = l.doc.Status, l.doc.Generation
	}
	if l.err != nil {
		st.Error = l.err.Error()
	}
	return st
}

func (l *link) state() State {
	switch {
	case l.up:
		return StateUp
	case l.doc != nil && !l.lost.IsZero():
		return StateLost
	case l.doc != nil:
		return StateProbed
	case l.attempt != nil || l.opening != nil || l.next != nil || l.probers > 0:
		return StateAsking
	case l.err != nil:
		return StateDown
	default:
		return StateUnasked
	}
}
