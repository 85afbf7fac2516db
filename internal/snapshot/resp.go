package snapshot

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// respReader reads what a Redis server sends on a tracking connection, RESP3
// (https://redis.io/docs/reference/protocol-spec), in bounded room: of a text
// only so much is kept as a record's key can be long, of an answer that
// nobody needs nothing. It is written out here because the connection is all
// about the pushes between the answers: go-redis hands them out only with its
// next answer, and its Pub/Sub, which needs the older redirection of tracking
// to itself and a right to a channel, drops the null push of a FLUSHALL.
type respReader struct {
	r      *bufio.Reader
	longer int // texts longer than this are skipped
	keep   int // answers are kept whole up to this size; 0: they are skipped
}

// respMessage is one message of the server's.
type respMessage struct {
	kind byte   // '+', '-', '>' for an invalidation, '?' for another push, else RESP3's own
	text string // of '+' and '-'
	all  bool   // of '>': any key may have changed
	// value is an answer that is neither '+', '-' nor a push, when answers are
	// kept.
	value respValue
}

// respValue is an answer as a tree; a map's names and values are its items.
type respValue struct {
	kind  byte
	text  string // of what is no aggregate
	items []respValue
}

const (
	respDepth = 8
	respBatch = 1024 // keys kept before they are handed on
)

var errProtocol = errors.New("redis: protocol error")

// next reads a message. The keys of an invalidation are handed to keys in
// batches, so that a large one takes no more room.
func (p *respReader) next(keys func([]string)) (respMessage, error) {
	kind, line, err := p.header()
	if err != nil {
		return respMessage{}, err
	}
	switch kind {
	case '+', '-':
		return respMessage{kind: kind, text: string(line)}, nil
	case '>':
		return p.push(line, keys)
	}
	if p.keep == 0 {
		return respMessage{kind: kind}, p.skipRest(kind, line, respDepth)
	}
	room := p.keep
	value, err := p.value(kind, line, respDepth, &room)
	return respMessage{kind: kind, value: value}, err
}

var errRoom = fmt.Errorf("%w: an answer that is too large", errProtocol)

// value reads what follows the header of an answer, into the room that is left.
func (p *respReader) value(kind byte, line []byte, depth int, room *int) (respValue, error) {
	v := respValue{kind: kind}
	if *room -= len(line) + 16; *room < 0 || depth == 0 {
		return v, errRoom
	}
	each := 1
	switch kind {
	case '+', '-', ':', '_', '#', ',', '(':
		v.text = string(line)
		return v, nil
	case '$', '!', '=':
		return v, p.bulk(&v, line, room)
	case '%':
		each = 2
	case '*', '~':
	default:
		return v, fmt.Errorf("%w: a value of kind %q", errProtocol, kind)
	}
	n, err := count(line)
	if string(line) == "-1" {
		n, err = 0, nil
	}
	if err != nil {
		return v, err
	}
	for range n * each {
		kind, line, err := p.header()
		if err != nil {
			return v, err
		}
		item, err := p.value(kind, line, depth-1, room)
		if err != nil {
			return v, err
		}
		v.items = append(v.items, item)
	}
	return v, nil
}

func (p *respReader) bulk(v *respValue, line []byte, room *int) error {
	if string(line) == "-1" {
		return nil
	}
	n, err := count(line)
	if err != nil {
		return err
	}
	if *room -= n; *room < 0 {
		return errRoom
	}
	buf := make([]byte, n)
	if _, err := io.ReadFull(p.r, buf); err != nil {
		return err
	}
	v.text = string(buf)
	return p.discard(0)
}

// header reads one line: its first byte and what follows. A line longer than
// the buffer is an error.
func (p *respReader) header() (byte, []byte, error) {
	line, err := p.r.ReadSlice('\n')
	if err != nil {
		if errors.Is(err, bufio.ErrBufferFull) {
			err = fmt.Errorf("%w: an endless line", errProtocol)
		}
		return 0, nil, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return 0, nil, fmt.Errorf("%w: a line without an end", errProtocol)
	}
	return line[0], line[1 : len(line)-2], nil
}

func (p *respReader) push(line []byte, keys func([]string)) (respMessage, error) {
	n, err := count(line)
	if err != nil {
		return respMessage{}, err
	}
	if n == 0 {
		return respMessage{kind: '?'}, nil
	}
	name, _, err := p.text()
	if err != nil {
		return respMessage{}, err
	}
	if name != "invalidate" || n != 2 {
		return respMessage{kind: '?'}, p.skipAll(n-1, respDepth)
	}
	kind, line, err := p.header()
	if err != nil {
		return respMessage{}, err
	}
	if kind == '_' || (kind == '*' || kind == '$') && string(line) == "-1" {
		return respMessage{kind: '>', all: true}, nil
	}
	if kind != '*' {
		return respMessage{}, fmt.Errorf("%w: an invalidation of %q", errProtocol, kind)
	}
	return respMessage{kind: '>'}, p.keys(line, keys)
}

func (p *respReader) keys(line []byte, keys func([]string)) error {
	n, err := count(line)
	if err != nil {
		return err
	}
	batch := make([]string, 0, min(n, respBatch))
	for range n {
		key, kept, err := p.text()
		if err != nil {
			return err
		}
		if kept {
			batch = append(batch, key)
		}
		if len(batch) == respBatch {
			keys(batch)
			batch = batch[:0]
		}
	}
	if len(batch) > 0 {
		keys(batch)
	}
	return nil
}

// text reads a bulk or simple string; one that is too long is skipped.
func (p *respReader) text() (s string, kept bool, err error) {
	kind, line, err := p.header()
	if err != nil {
		return "", false, err
	}
	if kind == '+' {
		return string(line), true, nil
	}
	if kind != '$' {
		return "", false, fmt.Errorf("%w: %q where a text belongs", errProtocol, kind)
	}
	n, err := count(line)
	if err != nil {
		return "", false, err
	}
	if n > p.longer {
		return "", false, p.discard(n)
	}
	buf := make([]byte, n)
	if _, err := io.ReadFull(p.r, buf); err != nil {
		return "", false, err
	}
	return string(buf), true, p.discard(0)
}

// discard skips n bytes and the line's end behind them.
func (p *respReader) discard(n int) error {
	if _, err := p.r.Discard(n); err != nil {
		return err
	}
	var end [2]byte
	if _, err := io.ReadFull(p.r, end[:]); err != nil {
		return err
	}
	if string(end[:]) != "\r\n" {
		return fmt.Errorf("%w: a text without an end", errProtocol)
	}
	return nil
}

// skipRest skips what follows the header of a value.
func (p *respReader) skipRest(kind byte, line []byte, depth int) error {
	switch kind {
	case '+', '-', ':', '_', '#', ',', '(':
		return nil
	case '$', '!', '=':
		if string(line) == "-1" {
			return nil
		}
		n, err := count(line)
		if err != nil {
			return err
		}
		return p.discard(n)
	case '*', '~', '>':
		return p.skipItems(line, 1, depth)
	case '%', '|':
		return p.skipItems(line, 2, depth)
	}
	return fmt.Errorf("%w: a value of kind %q", errProtocol, kind)
}

func (p *respReader) skipItems(line []byte, each, depth int) error {
	if string(line) == "-1" {
		return nil
	}
	n, err := count(line)
	if err != nil {
		return err
	}
	return p.skipAll(n*each, depth)
}

func (p *respReader) skipAll(n, depth int) error {
	if depth == 0 {
		return fmt.Errorf("%w: nested too deep", errProtocol)
	}
	for range n {
		kind, line, err := p.header()
		if err != nil {
			return err
		}
		if err := p.skipRest(kind, line, depth-1); err != nil {
			return err
		}
	}
	return nil
}

// count reads a length, up to what Redis allows a text.
func count(line []byte) (int, error) {
	n, err := strconv.ParseUint(string(line), 10, 30)
	if err != nil {
		return 0, fmt.Errorf("%w: a length of %.20q", errProtocol, line)
	}
	return int(n), nil
}
