package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// maxFilledIn bounds what one ${file:...} may bring in.
const maxFilledIn = 64 << 10

// expander fills ${VAR} and ${file:/path} into texts of the configuration
// after it was parsed, so that what is filled in cannot become YAML. "$${" is
// a "${" that stays.
type expander struct {
	dir    string // what relative paths are relative to
	lookup func(string) (string, bool)
}

func (e expander) expand(text string) (string, bool, error) {
	var out strings.Builder
	replaced := false
	for {
		before, rest, found := strings.Cut(text, "${")
		if !found {
			out.WriteString(text)
			return out.String(), replaced, nil
		}
		if plain, escaped := strings.CutSuffix(before, "$"); escaped {
			out.WriteString(plain + "${")
			text = rest
			continue
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed {
			return "", false, errors.New(`"${" without "}"; write "$${" for the characters themselves`)
		}
		value, err := e.value(name)
		if err != nil {
			return "", false, err
		}
		out.WriteString(before + value)
		text, replaced = after, true
	}
}

func (e expander) value(name string) (string, error) {
	if path, isFile := strings.CutPrefix(name, "file:"); isFile {
		return e.file(path)
	}
	if !isVariable(name) {
		return "", fmt.Errorf("${%s} is neither ${VARIABLE} nor ${file:/path}", name)
	}
	value, ok := e.lookup(name)
	if !ok {
		return "", fmt.Errorf("the environment variable %s is not set", name)
	}
	return checkFilledIn("the environment variable "+name, value)
}

// file returns a file's text without the line end that editors put last.
func (e expander) file(path string) (string, error) {
	if path == "" {
		return "", errors.New("${file:} names no file")
	}
	f, err := os.Open(absolute(e.dir, path))
	if err != nil {
		return "", fmt.Errorf("read a value: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFilledIn+1))
	if err != nil {
		return "", fmt.Errorf("read a value: %w", err)
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	return checkFilledIn(path, value)
}

func checkFilledIn(name, value string) (string, error) {
	switch {
	case len(value) > maxFilledIn:
		return "", fmt.Errorf("%s is larger than %d bytes", name, maxFilledIn)
	case !utf8.ValidString(value) || strings.ContainsRune(value, 0):
		return "", fmt.Errorf("%s is not UTF-8 text", name)
	}
	return value, nil
}

func isVariable(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// absolute is path, taken from dir unless it is absolute itself.
func absolute(dir, path string) string {
	if path == "" || dir == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
