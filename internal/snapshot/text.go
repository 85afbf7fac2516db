package snapshot

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"
)

const (
	// MaxText is the size limit of a record and of a live document, in bytes.
	MaxText = 256 << 10
	// MaxSigned is the size limit of a signed record: of such a text, its
	// header and its signature in base64url, with two dots between them and a
	// line's end.
	MaxSigned = (MaxText*4+2)/3 + (maxHeader*4+2)/3 + (signatureSize*4+2)/3 + 3
	// maxDepth counts objects and arrays; the outermost is 1.
	maxDepth = 32
)

// What a signed record adds to its text, in bytes before base64url.
const (
	maxHeader     = 1 << 10
	signatureSize = 64 // of EdDSA (Ed25519) and of ES256
)

// Fault is what is wrong with a record's text, and where.
type Fault struct {
	Field  string // such as "environmentDrivers[0].kind"; "" for the text as a whole
	Offset int    // in bytes, from 0
	Line   int    // from 1
	Column int    // from 1, in characters
	What   string
}

// Error implements error: "line 3, column 7: expiresAt: is no time".
func (f *Fault) Error() string {
	where := fmt.Sprintf("line %d, column %d: ", f.Line, f.Column)
	if f.Field != "" {
		where += f.Field + ": "
	}
	return where + f.What
}

// place fills in line and column from the offset.
func (f *Fault) place(text []byte) *Fault {
	f.Offset = min(max(f.Offset, 0), len(text))
	before := text[:f.Offset]
	f.Line = 1 + bytes.Count(before, []byte{'\n'})
	f.Column = 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
	return f
}

// node is one JSON value of a text, with its place in it.
type node struct {
	kind       jsontext.Kind // n f t " 0 { [
	start, end int           // the value is text[start:end]
	str        string        // a string's unescaped value, a number's literal text
	members    []member      // of an object, in their order
	items      []node        // of an array
}

type member struct {
	name  string // unescaped
	value node
}

// parse reads text as exactly one JSON value by RFC 7493: valid UTF-8, no
// lone surrogates, no duplicate names, nothing behind it; and within the size
// and depth limits. Numbers keep their literal text.
func parse(text []byte) (*node, *Fault) {
	if len(text) > MaxText {
		return nil, (&Fault{Offset: MaxText, What: fmt.Sprintf("is larger than %d bytes", MaxText)}).place(text)
	}
	p := parser{text: text, dec: jsontext.NewDecoder(bytes.NewReader(text),
		jsontext.AllowDuplicateNames(false), jsontext.AllowInvalidUTF8(false))}
	n, err := p.value()
	if err == nil {
		err = p.end()
	}
	if err != nil {
		return nil, p.fault(err)
	}
	return &n, nil
}

type parser struct {
	text []byte
	dec  *jsontext.Decoder
}

var (
	errTooDeep  = fmt.Errorf("is nested deeper than %d", maxDepth)
	errTrailing = errors.New("something follows the JSON value")
)

func (p *parser) value() (node, error) {
	before := int(p.dec.InputOffset())
	tok, err := p.dec.ReadToken()
	if err != nil {
		return node{}, err
	}
	n := node{kind: tok.Kind(), start: p.skip(before), end: int(p.dec.InputOffset())}
	switch n.kind {
	case jsontext.KindString, jsontext.KindNumber:
		n.str = tok.String()
	case jsontext.KindBeginObject, jsontext.KindBeginArray:
		if p.dec.StackDepth() > maxDepth {
			return node{}, errTooDeep
		}
		err = p.inside(&n)
		n.end = int(p.dec.InputOffset())
	}
	return n, err
}

// inside reads the members or items of n, and its closing delimiter.
func (p *parser) inside(n *node) error {
	for {
		switch p.dec.PeekKind() {
		case jsontext.KindEndObject, jsontext.KindEndArray:
			_, err := p.dec.ReadToken()
			return err
		}
		var m member
		if n.kind == jsontext.KindBeginObject {
			name, err := p.dec.ReadToken()
			if err != nil {
				return err
			}
			m.name = name.String()
		}
		v, err := p.value()
		if err != nil {
			return err
		}
		if n.kind == jsontext.KindBeginObject {
			m.value = v
			n.members = append(n.members, m)
		} else {
			if len(n.items) == cap(n.items) { // twice as much at a time: append copies long lists more often
				n.items = slices.Grow(n.items, max(4, len(n.items)))
			}
			n.items = append(n.items, v)
		}
	}
}

// skip returns where the token behind offset i begins.
func (p *parser) skip(i int) int {
	for i < len(p.text) && bytes.IndexByte([]byte(" \t\r\n,:"), p.text[i]) >= 0 {
		i++
	}
	return i
}

func (p *parser) end() error {
	switch _, err := p.dec.ReadToken(); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	default:
		return errTrailing
	}
}

func (p *parser) fault(err error) *Fault {
	f := &Fault{Offset: int(p.dec.InputOffset()), What: err.Error()}
	var syntax *jsontext.SyntacticError
	switch {
	case errors.As(err, &syntax):
		f.Offset = int(syntax.ByteOffset)
		f.What = "is not JSON: " + syntax.Err.Error()
		if errors.Is(syntax.Err, jsontext.ErrDuplicateName) {
			f.What = "has a duplicate name"
		}
		if p := syntax.JSONPointer; p != "" {
			f.Field = string(p)[1:]
		}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		f.What = "is empty or ends too early"
	}
	return f.place(p.text)
}

// get returns the member called name, or nil when it is absent or null.
func (n *node) get(name string) *node {
	for i := range n.members {
		if n.members[i].name == name {
			if n.members[i].value.kind == jsontext.KindNull {
				return nil
			}
			return &n.members[i].value
		}
	}
	return nil
}

// text returns the member called name when it is a string, else "".
func (n *node) text(name string) string {
	if v := n.get(name); v != nil && v.kind == jsontext.KindString {
		return v.str
	}
	return ""
}
