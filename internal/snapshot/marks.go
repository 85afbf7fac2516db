package snapshot

import (
	"crypto/sha256"
)

// mark is the newest well-formed revision of a record that was seen, and its
// content. The zero mark is none.
type mark struct {
	revision int64
	content  digest
}

// verdict compares a well-formed record with the mark: "" when it may be
// accepted, else why it is malformed. An attacker, or a database restored
// from a backup, must not bring a revoked lease back to life.
func (m mark) verdict(revision int64, content digest) string {
	switch {
	case m == mark{} || revision > m.revision:
		return ""
	case revision < m.revision:
		return "is of an older revision than one already seen"
	case content != m.content:
		return "has the revision of one already seen, and other content"
	}
	return ""
}

// marks keeps the marks of records that are no longer held, 56 bytes and a
// map's overhead each, two generations of them: when the younger is full, the
// older is forgotten. What is looked up or put is young again. It is not safe
// for concurrent use.
type marks struct {
	limit      int // of a generation
	young, old map[digest]mark
}

func newMarks(limit int) *marks {
	return &marks{limit: limit, young: map[digest]mark{}}
}

// take returns and removes the mark of a key; the caller keeps it from now on.
func (m *marks) take(k Key) mark {
	name := nameOf(k)
	found, ok := m.young[name]
	if !ok {
		found = m.old[name]
	}
	delete(m.young, name)
	delete(m.old, name)
	return found
}

func (m *marks) put(k Key, v mark) {
	if (v == mark{}) {
		return
	}
	m.keep(nameOf(k), v)
}

func (m *marks) keep(name digest, v mark) {
	if len(m.young) >= m.limit {
		m.old, m.young = m.young, make(map[digest]mark)
	}
	m.young[name] = v
}

// nameOf stands for a key in half the room of its longest id, and cannot be
// met by another key on purpose.
func nameOf(k Key) digest {
	h := sha256.Sum256([]byte(k.String()))
	return digest(h[:len(digest{})])
}
