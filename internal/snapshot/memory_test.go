package snapshot

import (
	"context"
	"errors"
	"sync"
	"time"
)

// memoryStore is the simplest store: for what only the cache's timing is
// about, under synctest. Its confirmations and failures are the test's.
type memoryStore struct {
	mu     sync.Mutex
	values map[Key]Value
	reads  int   // records read
	calls  int   // calls of Read
	err    error // what Read answers
	delay  time.Duration
	before func(keys []Key) // called in Read, when the values are taken
	feed   Feed
	ready  chan struct{}
}

func newMemoryStore() *memoryStore {
	return &memoryStore{values: map[Key]Value{}, ready: make(chan struct{})}
}

func (m *memoryStore) Read(ctx context.Context, keys []Key) ([]Value, error) {
	m.mu.Lock()
	m.calls++
	m.reads += len(keys)
	delay, err, before := m.delay, m.err, m.before
	values := make([]Value, len(keys))
	for i, k := range keys {
		values[i] = m.values[k]
	}
	m.mu.Unlock()
	if before != nil {
		before(keys)
	}
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return values, err
}

func (m *memoryStore) Watch(ctx context.Context, feed Feed, _ time.Duration) error {
	m.feed = feed
	close(m.ready)
	<-ctx.Done()
	return nil
}

// set writes a record without telling anybody.
func (m *memoryStore) set(k Key, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if text == "" {
		delete(m.values, k)
	} else {
		m.values[k] = Value{Found: true, Text: []byte(text)}
	}
}

// put writes a record and tells.
func (m *memoryStore) put(k Key, text string) {
	m.set(k, text)
	m.feed.Changed(k)
}

func (m *memoryStore) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

func (m *memoryStore) counted() (calls, reads int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls, m.reads
}

var errBroken = errors.New("broken")
