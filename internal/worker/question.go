package worker

import (
	"context"
	"sluice/internal/authz"
)

// question is one question to a worker that several requests wait for.
type question struct {
	answered chan struct{} // closed when live or err is set
	live     *authz.Live
	err      error
}

func newQuestion() *question { return &question{answered: make(chan struct{})} }

// answer is called once.
func (q *question) answer(live *authz.Live, err error) {
	q.live, q.err = live, err
	close(q.answered)
}

func (q *question) wait(ctx context.Context) (*authz.Live, error) {
	select {
	case <-q.answered:
		return q.live, q.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
