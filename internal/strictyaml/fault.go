package strictyaml

import (
	"fmt"
	"strings"
)

// Position is a place in a document, both counted from 1; the zero Position is
// no place.
type Position struct {
	Line, Column int
}

// Positions tells where a value stood by its path ("routes[0].path").
type Positions map[string]Position

// Near returns the position of path or, when the document does not hold it, of
// the nearest value around it; the zero Position when there is none.
func (p Positions) Near(path string) Position {
	for path != "" {
		if at, ok := p[path]; ok {
			return at
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return Position{}
}

// Fault is one thing that is wrong with a document.
type Fault struct {
	Position
	Path    string // of the value; "" is the document itself
	Message string // what is wrong and what is wanted, in lower case
}

// String gives "line:column: path: message", without what is not known.
func (f Fault) String() string {
	var b strings.Builder
	if f.Line > 0 {
		fmt.Fprintf(&b, "%d:%d: ", f.Line, f.Column)
	}
	if f.Path != "" {
		b.WriteString(f.Path + ": ")
	}
	return b.String() + f.Message
}
