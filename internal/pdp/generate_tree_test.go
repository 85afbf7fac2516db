package pdp_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// A generated case is a passing one that was damaged in none to four places.
// Cases are trees of obj, []any and scalars until they are written, so that a
// mutation can also put text there that no encoder would write.

// obj is a JSON object. A key that starts with a quotation mark is written as
// it stands, which is how a duplicate or escaped key gets in.
type obj map[string]any

// raw is JSON text that is written as it stands.
type raw string

// gone, as a mutation's value, takes the member away.
type gone struct{}

// write appends the JSON text of v.
func write(out *bytes.Buffer, v any) {
	switch v := v.(type) {
	case obj:
		out.WriteByte('{')
		for i, key := range sortedKeys(v) {
			comma(out, i)
			if strings.HasPrefix(key, `"`) {
				out.WriteString(key)
			} else {
				writeString(out, key)
			}
			out.WriteByte(':')
			write(out, v[key])
		}
		out.WriteByte('}')
	case []any:
		out.WriteByte('[')
		for i, item := range v {
			comma(out, i)
			write(out, item)
		}
		out.WriteByte(']')
	case raw:
		out.WriteString(string(v))
	case string:
		writeString(out, v)
	default:
		writeScalar(out, v)
	}
}

// writeString has a short way for what needs no escape, which is almost all.
func writeString(out *bytes.Buffer, s string) {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c > 0x7E || c == '"' || c == '\\' {
			writeScalar(out, s)
			return
		}
	}
	out.WriteByte('"')
	out.WriteString(s)
	out.WriteByte('"')
}

func writeScalar(out *bytes.Buffer, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // a scalar of the tables below
	}
	out.Write(b)
}

func comma(out *bytes.Buffer, i int) {
	if i > 0 {
		out.WriteByte(',')
	}
}

func sortedKeys(o obj) []string {
	keys := make([]string, 0, len(o))
	for key := range o {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func encode(v any) []byte {
	var out bytes.Buffer
	write(&out, v)
	return out.Bytes()
}

// parent walks to what holds the last step of a dotted path; numbers are steps
// into lists. It is nil when an earlier mutation took the way there.
func (o obj) parent(path string) (any, string) {
	steps := strings.Split(path, ".")
	var at any = o
	for _, step := range steps[:len(steps)-1] {
		at = child(at, step)
	}
	return at, steps[len(steps)-1]
}

func child(at any, step string) any {
	switch at := at.(type) {
	case obj:
		return at[step]
	case []any:
		if i, err := strconv.Atoi(step); err == nil && i < len(at) {
			return at[i]
		}
	}
	return nil
}

func (o obj) get(path string) any { return child(o.parent(path)) }

func (o obj) set(path string, v any) {
	at, last := o.parent(path)
	switch at := at.(type) {
	case obj:
		if v == (gone{}) {
			delete(at, last)
			return
		}
		at[last] = v
	case []any:
		if i, err := strconv.Atoi(last); err == nil && i < len(at) && v != (gone{}) {
			at[i] = v
		}
	}
}

// fresh copies what a mutation puts in, so that a later mutation of the same
// case does not reach into the table.
func fresh(v any) any {
	switch v := v.(type) {
	case obj:
		c := obj{}
		for key, value := range v {
			c[key] = fresh(value)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i, value := range v {
			c[i] = fresh(value)
		}
		return c
	}
	return v
}

func (o obj) rename(holder, field, other string) {
	at, ok := o.get(holder).(obj)
	if v, has := at[field]; ok && has {
		delete(at, field)
		at[other] = v
	}
}
