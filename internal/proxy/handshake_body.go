package proxy

import (
	"bufio"
	"errors"
	"io"
	"net/http/httputil"
)

// body returns the decoded body that follows the head of an answer to a
// request other than HEAD. It ends with io.EOF only where the head says so.
func (h *workerHead) body(br *bufio.Reader) io.Reader {
	switch {
	case h.Chunked:
		return &chunkedAnswer{chunks: httputil.NewChunkedReader(br), br: br}
	case h.ContentLength >= 0:
		return &answerBody{r: br, left: h.ContentLength}
	}
	return br
}

// answerBody reads left bytes and takes an earlier end for an error.
type answerBody struct {
	r    io.Reader
	left int64
}

func (e *answerBody) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n, err := e.r.Read(p[:min(int64(len(p)), e.left)])
	e.left -= int64(n)
	if errors.Is(err, io.EOF) && e.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// chunkedAnswer decodes a chunked body and reads it to the end of its
// trailers, which are dropped.
type chunkedAnswer struct {
	chunks io.Reader
	br     *bufio.Reader
	end    error
}

func (c *chunkedAnswer) Read(p []byte) (int, error) {
	if c.end != nil {
		return 0, c.end
	}
	n, err := c.chunks.Read(p)
	if errors.Is(err, io.EOF) {
		err = c.readTrailers()
	}
	c.end = err
	return n, err
}

// readTrailers returns io.EOF when the body is at its end.
func (c *chunkedAnswer) readTrailers() error {
	for budget := maxTrailers; ; {
		line, err := readHeadLine(c.br, &budget)
		if err != nil {
			return err
		}
		if len(line) == 0 {
			return io.EOF
		}
		if _, _, ok := splitField(line); !ok {
			return errors.New("malformed trailer field")
		}
	}
}
