package worker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// tokenFile names the file with the bearer token for workers; "" is none.
type tokenFile string

const maxTokenBytes = 16 << 10

// read returns the token. It reads the file each time, so a token that was
// replaced counts from the next question on.
func (f tokenFile) read() (string, error) {
	if f == "" {
		return "", nil
	}
	token, err := f.load()
	if err != nil {
		return "", fmt.Errorf("read the token for workers: %w", err)
	}
	return token, nil
}

func (f tokenFile) load() (string, error) {
	file, err := os.Open(string(f))
	if err != nil {
		return "", err
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, maxTokenBytes+1))
	if err != nil {
		return "", err
	}
	token := strings.TrimRight(string(raw), "\r\n")
	switch {
	case token == "":
		return "", errors.New("the file is empty")
	case len(token) > maxTokenBytes:
		return "", fmt.Errorf("the file is larger than %d bytes", maxTokenBytes)
	}
	for _, c := range []byte(token) {
		if c <= ' ' || c > '~' {
			return "", errors.New("a token is one line of visible characters")
		}
	}
	return token, nil
}
