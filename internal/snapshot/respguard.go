package snapshot

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// Bounds of one answer of a server's. The largest that the gateway asks for are
// a record, and what a server says of its commands or of its cluster.
const (
	maxAnswerText  = maxAnswer // bytes of one text
	maxAnswerItems = 1 << 17   // in all
	maxAnswerBytes = 4 << 20   // in all
	maxAnswerDepth = 32
	maxAnswerLine  = 64 << 10
)

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// dialer connects to servers whose answers are held to the bounds: go-redis
// makes room for whatever length a server names, before a byte of it is there.
func (s *RedisStore) dialer(secure *tls.Config) dialer {
	dial := dialerWithoutBounds(secure)
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		bounded := &boundedConn{Conn: conn}
		if socket, ok := conn.(syscall.Conn); ok { // by which go-redis finds out that it was closed
			return &boundedSocket{bounded, socket}, nil
		}
		return bounded, nil
	}
}

func dialerWithoutBounds(secure *tls.Config) dialer {
	return redis.NewDialer(&redis.Options{DialTimeout: redisDial, TLSConfig: secure})
}

// boundedConn hands on what it reads for as long as that keeps to the bounds.
type boundedConn struct {
	net.Conn
	answers respBounds
}

type boundedSocket struct {
	*boundedConn
	syscall.Conn
}

func (c *boundedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if fault := c.answers.follow(p[:n]); fault != nil {
		return 0, fault
	}
	return n, err
}

// respBounds follows a server's answers, RESP2 or RESP3, in whatever pieces they
// come. The zero value is ready.
type respBounds struct {
	kind  byte   // of the line that is being read; 0: a line begins
	line  []byte // behind it, as far as a length may go
	size  int    // of the line so far
	text  int    // bytes of a text that are yet to come, its end with them
	open  []int  // items yet to come, of each aggregate that is being read
	items int    // of this answer
	bytes int    // of its texts
}

// follow takes more bytes; it is not called again after an error.
func (b *respBounds) follow(p []byte) error {
	for len(p) > 0 {
		if b.text > 0 {
			n := min(b.text, len(p))
			b.text, p = b.text-n, p[n:]
			if b.text == 0 {
				b.itemRead()
			}
			continue
		}
		if b.kind == 0 {
			b.kind, p = p[0], p[1:]
			b.line, b.size = b.line[:0], 0
			continue
		}
		end := bytes.IndexByte(p, '\n')
		part := p
		if end >= 0 {
			part = p[:end]
		}
		if b.size += len(part); b.size > maxAnswerLine {
			return fmt.Errorf("%w: an endless line", errProtocol)
		}
		b.line = append(b.line, part[:min(len(part), maxLengthLine-len(b.line))]...)
		if end < 0 {
			return nil
		}
		p = p[end+1:]
		if err := b.lineRead(); err != nil {
			return err
		}
		b.kind = 0
	}
	return nil
}

// maxLengthLine is how many bytes a line with a length may have.
const maxLengthLine = 24

func (b *respBounds) lineRead() error {
	switch b.kind {
	case '+', '-', ':', '_', '#', ',', '(':
		if b.bytes += b.size; b.bytes > maxAnswerBytes {
			return errRoom
		}
		b.itemRead()
		return nil
	case '$', '!', '=':
		n, err := b.length(maxAnswerText)
		if err != nil {
			return err
		}
		if n < 0 { // null
			b.itemRead()
			return nil
		}
		b.text = n + len("\r\n")
		if b.bytes += n; b.bytes > maxAnswerBytes {
			return errRoom
		}
		return nil
	case '*', '~', '>', '%':
		n, err := b.length(maxAnswerItems)
		if err != nil {
			return err
		}
		return b.aggregate(n)
	}
	return fmt.Errorf("%w: a value of kind %q", errProtocol, b.kind)
}

func (b *respBounds) aggregate(n int) error {
	if b.kind == '%' {
		n *= 2
	}
	if n <= 0 {
		b.itemRead()
		return nil
	}
	b.items += n
	b.open = append(b.open, n)
	if b.items > maxAnswerItems || len(b.open) > maxAnswerDepth {
		return errRoom
	}
	return nil
}

// length reads a length of at most limit, or -1 for null.
func (b *respBounds) length(limit int) (int, error) {
	line := bytes.TrimSuffix(b.line, []byte("\r"))
	if string(line) == "-1" {
		return -1, nil
	}
	n, err := strconv.ParseUint(string(line), 10, 63)
	if err != nil || b.size > maxLengthLine || len(line) > 1 && line[0] == '0' {
		return 0, fmt.Errorf("%w: a length of %.20q", errProtocol, line)
	}
	if n > uint64(limit) {
		return 0, errRoom
	}
	return int(n), nil
}

// itemRead ends an item, and every aggregate whose last one it is.
func (b *respBounds) itemRead() {
	for len(b.open) > 0 {
		last := len(b.open) - 1
		if b.open[last]--; b.open[last] > 0 {
			return
		}
		b.open = b.open[:last]
	}
	b.items, b.bytes = 0, 0
}
