package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// change is a row of the outbox: the state of one row of a table after a
// transaction, under the version that the same transaction gave it.
type change struct {
	Table   string          `json:"table"`
	ID      string          `json:"id"` // of the row; the control row has none
	Version int64           `json:"version"`
	Row     json.RawMessage `json:"row"` // null: the row was deleted
}

// outbox is the sample of a source: a file to which a change is one more line
// of JSON. In a database it is
//
//	SELECT table_name, id, version, row FROM outbox WHERE position > $1 ORDER BY position
//
// Rows may come twice, and an older version after a newer one: positions are
// given out before transactions commit. The publisher minds neither.
type outbox struct {
	path     string
	position int64 // of the first byte not read yet
}

// next returns the changes that came since the last call. A line that is still
// being written is left for the next one. What is no change at all is an
// error: nobody can tell whose right it would have taken away.
func (o *outbox) next() ([]change, error) {
	f, err := os.Open(o.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the changes: %w", err)
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err == nil && info.Size() < o.position {
		o.position = 0 // another file
	}
	text, err := io.ReadAll(io.NewSectionReader(f, o.position, 1<<62))
	if err != nil {
		return nil, fmt.Errorf("read the changes: %w", err)
	}
	var changes []change
	for {
		line, rest, whole := bytes.Cut(text, []byte("\n"))
		if !whole {
			return changes, nil
		}
		var c change
		if err := json.Unmarshal(line, &c); err != nil {
			return changes, fmt.Errorf("read the change at byte %d of %s: %w", o.position, o.path, err)
		}
		changes = append(changes, c)
		o.position += int64(len(line)) + 1
		text = rest
	}
}
