package pdp_test

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// kind is what a JSON value is. The zero kind is a value that is not there.
type kind int

const (
	absent kind = iota
	null
	boolean
	number
	text
	list
	object
)

// node is one JSON value with the text it was read from. A nil node is absent.
type node struct {
	kind    kind
	raw     []byte // the value's text, without the space around it
	str     string // a text's characters
	items   []*node
	members []member
	levels  int    // nesting: 0 for a scalar, 1 for a flat object or list
	fault   string // what makes a record malformed that is still JSON, here or below
}

type member struct {
	key   string
	value *node
}

func (n *node) is(k kind) bool { return n != nil && n.kind == k }

// set says whether the value is there: absent and null mean the same.
func (n *node) set() bool { return n != nil && n.kind != absent && n.kind != null }

// text is the value's JSON text, "" when it is absent.
func (n *node) text() string {
	if n == nil {
		return ""
	}
	return string(n.raw)
}

func (n *node) isTrue() bool  { return n.is(boolean) && string(n.raw) == "true" }
func (n *node) isFalse() bool { return n.is(boolean) && string(n.raw) == "false" }

// says reports whether the value is the string s.
func (n *node) says(s string) bool { return n.is(text) && n.str == s }

// at follows keys through objects, and is absent where one is missing.
func (n *node) at(keys ...string) *node {
	for _, key := range keys {
		n = n.member(key)
	}
	return n
}

func (n *node) member(key string) *node {
	if !n.is(object) {
		return nil
	}
	for _, m := range n.members {
		if m.key == key {
			return m.value
		}
	}
	return nil
}

// scanner reads JSON by RFC 8259's grammar, byte by byte. What the grammar
// forbids is an error; what only decision.md forbids (a duplicate key, invalid
// UTF-8, a lone surrogate) is noted as a fault of every value around it.
type scanner struct {
	in  []byte
	pos int
}

// scan reads one JSON value and nothing after it.
func scan(in []byte) (*node, error) {
	s := &scanner{in: in}
	n, err := s.value()
	if err != nil {
		return nil, err
	}
	s.space()
	if s.pos != len(in) {
		return nil, s.errorf("something after the value")
	}
	return n, nil
}

func (s *scanner) errorf(format string, args ...any) error {
	return fmt.Errorf("reading JSON at byte %d: %s", s.pos, fmt.Sprintf(format, args...))
}

// peek is the next byte, or 0 at the end; a 0 byte is no JSON either.
func (s *scanner) peek() byte {
	if s.pos < len(s.in) {
		return s.in[s.pos]
	}
	return 0
}

func (s *scanner) take(c byte) bool {
	if s.pos < len(s.in) && s.in[s.pos] == c {
		s.pos++
		return true
	}
	return false
}

func (s *scanner) space() {
	for s.pos < len(s.in) && bytes.IndexByte([]byte(" \t\r\n"), s.in[s.pos]) >= 0 {
		s.pos++
	}
}

func (s *scanner) value() (n *node, err error) {
	s.space()
	start := s.pos
	switch c := s.peek(); {
	case c == '{':
		n, err = s.object()
	case c == '[':
		n, err = s.list()
	case c == '"':
		n, err = s.text()
	case c == '-' || isDigit(c):
		n, err = s.number()
	default:
		n, err = s.word()
	}
	if err != nil {
		return nil, err
	}
	n.raw = s.in[start:s.pos]
	return n, nil
}

func (s *scanner) word() (*node, error) {
	for word, k := range map[string]kind{"null": null, "true": boolean, "false": boolean} {
		if bytes.HasPrefix(s.in[s.pos:], []byte(word)) {
			s.pos += len(word)
			return &node{kind: k}, nil
		}
	}
	return nil, s.errorf("no value")
}

func (s *scanner) object() (*node, error) {
	n := &node{kind: object, levels: 1}
	s.take('{')
	s.space()
	if s.take('}') {
		return n, nil
	}
	for {
		if err := s.memberOf(n); err != nil {
			return nil, err
		}
		s.space()
		switch {
		case s.take('}'):
			return n, nil
		case !s.take(','):
			return nil, s.errorf("no comma after a member")
		}
	}
}

func (s *scanner) memberOf(n *node) error {
	s.space()
	if s.peek() != '"' {
		return s.errorf("no key")
	}
	key, err := s.text()
	if err != nil {
		return err
	}
	s.space()
	if !s.take(':') {
		return s.errorf("no colon after a key")
	}
	value, err := s.value()
	if err != nil {
		return err
	}
	if n.member(key.str) != nil {
		n.blame("a duplicate key")
	}
	n.blame(key.fault)
	n.contain(value)
	n.members = append(n.members, member{key.str, value})
	return nil
}

func (s *scanner) list() (*node, error) {
	n := &node{kind: list, levels: 1}
	s.take('[')
	s.space()
	if s.take(']') {
		return n, nil
	}
	for {
		value, err := s.value()
		if err != nil {
			return nil, err
		}
		n.contain(value)
		n.items = append(n.items, value)
		s.space()
		switch {
		case s.take(']'):
			return n, nil
		case !s.take(','):
			return nil, s.errorf("no comma after an item")
		}
	}
}

func (n *node) contain(value *node) {
	n.levels = max(n.levels, value.levels+1)
	n.blame(value.fault)
}

// blame notes a fault, unless there is one already.
func (n *node) blame(fault string) {
	if n.fault == "" {
		n.fault = fault
	}
}

func (s *scanner) text() (*node, error) {
	n := &node{kind: text}
	var out []byte
	s.take('"')
	for !s.take('"') {
		c := s.peek()
		switch {
		case c < 0x20:
			return nil, s.errorf("a string that does not end, or holds a control character")
		case c == '\\':
			r, err := s.escape(n)
			if err != nil {
				return nil, err
			}
			out = utf8.AppendRune(out, r)
		default:
			r, size := utf8.DecodeRune(s.in[s.pos:])
			if r == utf8.RuneError && size == 1 {
				n.blame("invalid UTF-8")
			}
			out = append(out, s.in[s.pos:s.pos+size]...)
			s.pos += size
		}
	}
	n.str = string(out)
	return n, nil
}

// escape reads one escape, or two that are a surrogate pair.
func (s *scanner) escape(n *node) (rune, error) {
	s.pos++
	c := s.peek()
	s.pos++
	if c != 'u' {
		plain := map[byte]rune{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}
		r, ok := plain[c]
		if !ok {
			return 0, s.errorf("no such escape")
		}
		return r, nil
	}
	unit, ok := s.hex(s.pos)
	if !ok {
		return 0, s.errorf("no four hexadecimal digits")
	}
	s.pos += 4
	switch {
	case unit < 0xD800 || unit > 0xDFFF:
		return unit, nil
	case unit < 0xDC00 && bytes.HasPrefix(s.in[s.pos:], []byte(`\u`)):
		if low, ok := s.hex(s.pos + 2); ok && low >= 0xDC00 && low <= 0xDFFF {
			s.pos += 6
			return 0x10000 + (unit-0xD800)<<10 + (low - 0xDC00), nil
		}
	}
	n.blame("a lone surrogate escape")
	return utf8.RuneError, nil
}

func (s *scanner) hex(at int) (rune, bool) {
	if at+4 > len(s.in) {
		return 0, false
	}
	for _, c := range s.in[at : at+4] {
		if !isDigit(c) && (c|0x20 < 'a' || c|0x20 > 'f') {
			return 0, false
		}
	}
	v, err := strconv.ParseUint(string(s.in[at:at+4]), 16, 16)
	return rune(v), err == nil
}

func (s *scanner) number() (*node, error) {
	s.take('-')
	if !s.take('0') && s.digits() == 0 {
		return nil, s.errorf("a number without digits")
	}
	if s.take('.') && s.digits() == 0 {
		return nil, s.errorf("a fraction without digits")
	}
	if s.take('e') || s.take('E') {
		if !s.take('+') {
			s.take('-')
		}
		if s.digits() == 0 {
			return nil, s.errorf("an exponent without digits")
		}
	}
	return &node{kind: number}, nil
}

func (s *scanner) digits() int {
	start := s.pos
	for isDigit(s.peek()) {
		s.pos++
	}
	return s.pos - start
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
