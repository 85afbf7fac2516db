package strictyaml

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type size int64

func (s *size) UnmarshalText(text []byte) error {
	if string(text) != "1KiB" {
		return errors.New("no such size")
	}
	*s = 1024
	return nil
}

func (*size) Wanted() string { return "a size" }

type document struct {
	Name  string         `yaml:"name"`
	Count int            `yaml:"count"`
	On    bool           `yaml:"on"`
	Wait  time.Duration  `yaml:"wait"`
	Size  size           `yaml:"size"`
	Words []string       `yaml:"words"`
	Free  map[string]any `yaml:"free"`
	Inner struct {
		Deep string `yaml:"deep"`
	} `yaml:"inner"`
	List []struct {
		ID string `yaml:"id"`
	} `yaml:"list"`
	hidden string
}

func expand(text string) (string, bool, error) {
	switch text {
	case "${SEVEN}":
		return "7", true, nil
	case "${SECRET}":
		return "hunter2: [", true, nil
	case "${NONE}":
		return "", true, errors.New("NONE is not set")
	}
	return text, false, nil
}

func TestADocumentIsReadOverWhatIsThere(t *testing.T) {
	got := document{Name: "default", Count: 3, Words: []string{"a", "b"}}
	at, faults := Decode([]byte(`
count: 4
wait: 250ms
size: 1KiB
on: true
words: [c]
inner:
  deep: |
    two
    lines
list:
  - {id: x}
  - id: "y"
free: {a: [1, {b: null}], c: yes}
name:
`), &got, Options{})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	want := document{Name: "default", Count: 4, On: true, Wait: 250 * time.Millisecond, Size: 1024, Words: []string{"c"}}
	want.Inner.Deep = "two\nlines\n"
	want.List = append(want.List, struct {
		ID string `yaml:"id"`
	}{"x"}, struct {
		ID string `yaml:"id"`
	}{"y"})
	want.Free = map[string]any{"a": []any{uint64(1), map[string]any{"b": nil}}, "c": "yes"}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(document{})); diff != "" {
		t.Error(diff)
	}
	if at["list[1].id"] != (Position{13, 9}) {
		t.Errorf("list[1].id stands at %v", at["list[1].id"])
	}
	if at.Near("inner.missing[3].x") != (Position{8, 3}) {
		t.Errorf("nearest to a missing value of inner is %v", at.Near("inner.missing[3].x"))
	}
}

func TestEveryFaultIsNamedWithItsPlace(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"unknown key", "nam: x", `1:1: unknown key "nam"; known are name, count, on, wait, size, words, free, inner, list`},
		{"unknown inner key", "inner:\n  x: 1", `2:3: inner: unknown key "x"; known are deep`},
		{"key of other case", "Name: x", `1:1: unknown key "Name"; known are name, count, on, wait, size, words, free, inner, list`},
		{"unexported field", "hidden: x", `1:1: unknown key "hidden"; known are name, count, on, wait, size, words, free, inner, list`},
		{"duplicate key", "name: a\nname: b", "2:1: name: duplicate key; the first is on line 1"},
		{"duplicate key after unescaping", "\"n\\u0061me\": a\nname: b", "2:1: name: duplicate key; the first is on line 1"},
		{"duplicate key in a free part", "free: {a: 1, a: 2}", "1:14: free.a: duplicate key; the first is on line 1"},
		{"number for text", "name: 1", "1:7: name: a number, where a text (write it in quotes) is wanted"},
		{"boolean for text", "name: true", "1:7: name: a boolean, where a text (write it in quotes) is wanted"},
		{"text for number", `count: "1"`, "1:8: count: a text, where a whole number is wanted"},
		{"float for number", "count: 1.5", "1:8: count: a number, where a whole number is wanted"},
		{"octal", "count: 010", `1:8: count: "010" is not a whole number`},
		{"hexadecimal", "count: 0x10", `1:8: count: "0x10" is not a whole number`},
		{"underscore", "count: 1_000", `1:8: count: "1_000" is not a whole number`},
		{"too large", "count: 9999999999999999999", `1:8: count: "9999999999999999999" is not a whole number`},
		{"text for boolean", "on: yes", "1:5: on: a text, where true or false is wanted"},
		{"number for boolean", "on: 1", "1:5: on: a number, where true or false is wanted"},
		{"duration without unit", "wait: 5", `1:7: wait: "5" is not a duration such as 250ms or 5s`},
		{"no duration", "wait: soon", `1:7: wait: "soon" is not a duration such as 250ms or 5s`},
		{"text unmarshaler", "size: 2KiB", "1:7: size: no such size"},
		{"list for text unmarshaler", "size: [1]", "1:7: size: a list, where a size is wanted"},
		{"text for list", "words: a", "1:8: words: a text, where a list is wanted"},
		{"mapping for list", "words: {a: b}", "1:8: words: a mapping, where a list is wanted"},
		{"empty entry", "words: [a, ~]", "1:12: words[1]: nothing, where an entry of a list is wanted"},
		{"list for mapping", "inner: [1]", "1:8: inner: a list, where a mapping (key: value) is wanted"},
		{"list for a free mapping", "free: [1]", "1:7: free: a list, where a mapping (key: value) is wanted"},
		{"list at the top", "- a", "1:1: a list, where a mapping (key: value) is wanted"},
		{"text at the top", "hello", "1:1: a text, where a mapping (key: value) is wanted"},
		{"anchor", "name: &a x", "1:7: name: anchors, aliases and tags are not allowed"},
		{"tag", "name: !!str 1", "1:7: name: anchors, aliases and tags are not allowed"},
		{"merge key", "inner:\n  <<: {deep: x}", "2:3: inner: a key must be plain text"},
		{"number as key", "1: x", "1:1: a key must be plain text"},
		{"two documents", "name: a\n---\nname: b", "3:1: a second document; one is wanted"},
		{"syntax", "name: a: b", "1:7: mapping value is not allowed in this context"},
		{"unclosed bracket", "words: [a", "1:8: sequence end token ']' not found"},
		{"invalid UTF-8", "name: a\nwords: ['ü\xff']", "2:11: not UTF-8"},
		{"brackets without end", strings.Repeat("[", 1000), "1:33: nested deeper than 32"},
		{"markers without end", strings.Repeat("- ", 1000), "1:65: nested deeper than 32"},
		{"too large a file", "name: " + strings.Repeat("a", 256<<10), "larger than 262144 bytes"},
		{"expansion that fails", "name: ${NONE}", "1:7: name: NONE is not set"},
		{"secret where a number is wanted", "count: ${SECRET}", "1:8: count: what was filled in is not a whole number"},
		{"secret where a size is wanted", "size: ${SECRET}", "1:7: size: what was filled in is not a size"},
		{"secret where a list is wanted", "words: ${SECRET}", "1:8: words: a text, where a list is wanted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var doc document
			_, faults := Decode([]byte(tt.text), &doc, Options{Expand: expand})
			if len(faults) != 1 || faults[0].String() != tt.want {
				t.Errorf("got %v, want %q", faults, tt.want)
			}
		})
	}
}

func TestAllFaultsAreReportedAtOnce(t *testing.T) {
	var doc document
	_, faults := Decode([]byte("nam: x\ncount: x\non: 1\nlist:\n  - {ident: a}\n"), &doc, Options{})
	var lines []int
	for _, f := range faults {
		lines = append(lines, f.Line)
	}
	if diff := cmp.Diff([]int{1, 2, 3, 5}, lines); diff != "" {
		t.Error(diff)
	}
}

func TestAnExpandedTextIsNeverReadAsYAML(t *testing.T) {
	var doc document
	_, faults := Decode([]byte("name: ${SECRET}\ncount: ${SEVEN}\nwords: [\"${SECRET}\"]\nfree: {a: \"${SEVEN}\"}"), &doc, Options{Expand: expand})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	want := document{Name: "hunter2: [", Count: 7, Words: []string{"hunter2: ["}, Free: map[string]any{"a": "7"}}
	if diff := cmp.Diff(want, doc, cmp.AllowUnexported(document{})); diff != "" {
		t.Error(diff)
	}
}

func TestOneValueIsAssignedByItsPath(t *testing.T) {
	doc := document{Name: "before", Words: []string{"a"}}
	for _, set := range [][2]string{
		{"name", "[::]:80"},
		{"count", "${SEVEN}"},
		{"wait", "1m"},
		{"on", "true"},
		{"size", "1KiB"},
		{"words", "[b, c]"},
		{"inner.deep", ""},
		{"list", "[{id: x}]"},
	} {
		if faults := Assign(&doc, set[0], set[1], Options{Expand: expand}); len(faults) > 0 {
			t.Fatal(faults)
		}
	}
	want := document{Name: "[::]:80", Count: 7, Wait: time.Minute, On: true, Size: 1024, Words: []string{"b", "c"}}
	want.List = append(want.List, struct {
		ID string `yaml:"id"`
	}{"x"})
	if diff := cmp.Diff(want, doc, cmp.AllowUnexported(document{})); diff != "" {
		t.Error(diff)
	}
}

func TestAnAssignmentThatDoesNotFitIsRefused(t *testing.T) {
	tests := []struct{ path, text, want string }{
		{"nam", "x", `nam: unknown key "nam"; known are name, count, on, wait, size, words, free, inner, list`},
		{"", "x", `unknown key ""; known are name, count, on, wait, size, words, free, inner, list`},
		{"inner.x", "x", `inner.x: unknown key "x"; known are deep`},
		{"name.x", "x", "name.x: name has no keys that could be set one by one; set it as a whole"},
		{"list.0.id", "x", "list.0.id: list has no keys that could be set one by one; set it as a whole"},
		{"count", "many", `count: "many" is not a whole number`},
		{"count", "${SECRET}", "count: what was filled in is not a whole number"},
		{"name", "${NONE}", "name: NONE is not set"},
		{"words", "a", "words: a text, where a list is wanted"},
		{"words", "[a", "words: sequence end token ']' not found"},
	}
	for _, tt := range tests {
		var doc document
		faults := Assign(&doc, tt.path, tt.text, Options{Expand: expand})
		if len(faults) != 1 || faults[0].String() != tt.want {
			t.Errorf("%s=%s: got %v, want %q", tt.path, tt.text, faults, tt.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"name: a", "list: [{id: x}]", "free: {a: [1]}", "a: &b *c", "? x\n: y", "- - -", "\"\\u0061\": |\n  x", "%YAML 1.2\n---\na"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 4096 {
			return
		}
		var doc document
		_, faults := Decode(text, &doc, Options{Expand: expand})
		for _, fault := range faults {
			if fault.Message == "" {
				t.Errorf("a fault without a message: %+v", fault)
			}
		}
	})
}
