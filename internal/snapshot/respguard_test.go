package snapshot

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestAnswersInsideTheBoundsPassInAnyPieces(t *testing.T) {
	answers := strings.Join([]string{
		"+OK", ":-2", "$5", "hello", "$0", "", "$-1", "*-1", "*0", "*3", ":1", "$2", "\r\n", "*1", "+x", "_", "#t", ",1.5", "(123",
		"%2", "+a", ":1", "+b", "*2", "$1", "x", "$-1", "~1", ":1", ">2", "+invalidate", "*1", "$3", "a\nb", "=7", "txt:abc", "-ERR no " + strings.Repeat("x", 60_000),
		fmt.Sprintf("$%d", maxAnswerText), strings.Repeat("x", maxAnswerText), "+last", "",
	}, "\r\n")
	for _, step := range []int{1, 2, 3, 7, 1000, len(answers)} {
		var b respBounds
		for rest := answers; rest != ""; {
			n := min(step, len(rest))
			if err := b.follow([]byte(rest[:n])); err != nil {
				t.Fatalf("in steps of %d, before %.20q: %v", step, rest[n:], err)
			}
			rest = rest[n:]
		}
		if b.kind != 0 || b.text != 0 || len(b.open) != 0 || b.items != 0 {
			t.Errorf("in steps of %d: it waits for more: %+v", step, b)
		}
	}
}

func TestAnswersBeyondTheBoundsDoNotPass(t *testing.T) {
	for name, answer := range map[string]string{
		"a text":                fmt.Sprintf("$%d\r\n", maxAnswerText+1),
		"a huge text":           "$9223372036854775806\r\n",
		"a length of no number": "$1x\r\n",
		"a negative length":     "$-2\r\n",
		"a padded length":       "$" + strings.Repeat("0", maxLengthLine) + "900000000\r\n",
		"a padded count":        "*" + strings.Repeat("0", maxLengthLine) + "90000000\r\n",
		"a zero before it":      "$01\r\nx\r\n",
		"many large texts":      "*5\r\n" + strings.Repeat(fmt.Sprintf("$%d\r\n%s\r\n", maxAnswerText, strings.Repeat("x", maxAnswerText)), 5),
		"many long lines":       "*100\r\n" + strings.Repeat("+"+strings.Repeat("x", 60_000)+"\r\n", 100),
		"a length in pieces":    "$?\r\n",
		"an array":              fmt.Sprintf("*%d\r\n", maxAnswerItems+1),
		"arrays in an array":    strings.Repeat(fmt.Sprintf("*%d\r\n", maxAnswerItems/2), 3),
		"a map":                 fmt.Sprintf("%%%d\r\n", maxAnswerItems/2+1),
		"depth":                 strings.Repeat("*1\r\n", maxAnswerDepth+1),
		"an endless line":       "+" + strings.Repeat("x", maxAnswerLine+1),
		"an attribute":          "|1\r\n",
		"what is no answer":     "HTTP/1.1 400 Bad Request\r\n",
	} {
		var b respBounds
		if err := b.follow([]byte("+OK\r\n" + answer)); !errors.Is(err, errProtocol) {
			t.Errorf("%s passes: %v", name, err)
		}
		if cap(b.line) > 64 {
			t.Errorf("%s takes %d bytes", name, cap(b.line))
		}
	}
}
