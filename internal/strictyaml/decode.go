package strictyaml

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Options say how a document is read.
type Options struct {
	// MaxBytes bounds the text; 0 is 256 KiB.
	MaxBytes int

	// Expand, when set, is given every text value. It returns the text to use
	// and whether that differs in origin from what the document says; such a
	// text may also stand where a number, a boolean or a duration is wanted.
	// Keys are never expanded.
	Expand func(text string) (expanded string, replaced bool, err error)
}

// Decode reads text into the struct, slice or map that into points to, over
// the values that are there already. A null leaves what is there; a list
// replaces the whole list. Fields are named by their yaml tag; a field without
// one is not part of the document. Understood are structs, slices, maps from
// string to any, strings, booleans, integers, time.Duration, and what
// implements encoding.TextUnmarshaler. After a fault, into is not to be used.
func Decode(text []byte, into any, o Options) (Positions, []Fault) {
	d := decoder{expand: o.Expand, at: Positions{}}
	node, fault := parse(text, o.MaxBytes)
	if fault != nil {
		return d.at, []Fault{*fault}
	}
	if node != nil {
		d.value(node, reflect.ValueOf(into).Elem(), "", 0)
	}
	return d.at, d.faults
}

type decoder struct {
	expand func(string) (string, bool, error)
	at     Positions
	faults []Fault
}

func (d *decoder) fault(n ast.Node, path, format string, args ...any) {
	d.faults = append(d.faults, Fault{Position: position(n), Path: path, Message: fmt.Sprintf(format, args...)})
}

func (d *decoder) value(n ast.Node, v reflect.Value, path string, depth int) {
	if path != "" {
		d.at[path] = position(n)
	}
	switch n.(type) {
	case *ast.NullNode:
		return
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode, *ast.DirectiveNode:
		d.fault(n, path, "anchors, aliases and tags are not allowed")
		return
	}
	switch {
	case depth > maxDepth:
		d.fault(n, path, "nested deeper than %d", maxDepth)
	case isScalar(v):
		d.scalar(n, v, path)
	case v.Kind() == reflect.Struct:
		d.structure(n, v, path, depth)
	case v.Kind() == reflect.Slice:
		d.list(n, v, path, depth)
	default:
		d.free(n, v, path, depth)
	}
}

// entries calls each for every entry of the mapping n, and faults what is no
// mapping and what is written twice.
func (d *decoder) entries(n ast.Node, path string, each func(key string, keyNode, value ast.Node)) {
	m, ok := n.(ast.MapNode)
	if !ok {
		d.fault(n, path, "%s, where a mapping (key: value) is wanted", kindOf(n))
		return
	}
	seen := map[string]Position{}
	for it := m.MapRange(); it.Next(); {
		key, ok := it.Key().(*ast.StringNode)
		if !ok {
			d.fault(it.Key(), path, "a key must be plain text")
			continue
		}
		if first, twice := seen[key.Value]; twice {
			d.fault(key, join(path, key.Value), "duplicate key; the first is on line %d", first.Line)
			continue
		}
		seen[key.Value] = position(key)
		each(key.Value, key, it.Value())
	}
}

func (d *decoder) structure(n ast.Node, v reflect.Value, path string, depth int) {
	d.entries(n, path, func(key string, keyNode, value ast.Node) {
		field, ok := fieldNamed(v, key)
		if !ok {
			d.fault(keyNode, path, "unknown key %q; known are %s", key, strings.Join(fieldNames(v.Type()), ", "))
			return
		}
		d.value(value, field, join(path, key), depth+1)
	})
}

func (d *decoder) list(n ast.Node, v reflect.Value, path string, depth int) {
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		d.fault(n, path, "%s, where a list is wanted", kindOf(n))
		return
	}
	items := reflect.MakeSlice(v.Type(), len(s.Values), len(s.Values))
	for i, item := range s.Values {
		itemPath := fmt.Sprintf("%s[%d]", path, i)
		if _, null := item.(*ast.NullNode); null {
			d.fault(item, itemPath, "nothing, where an entry of a list is wanted")
			continue
		}
		d.value(item, items.Index(i), itemPath, depth+1)
	}
	v.Set(items)
}

// free decodes a part whose keys are not ours to know, into an any or a map
// from string to any.
func (d *decoder) free(n ast.Node, v reflect.Value, path string, depth int) {
	switch node := n.(type) {
	case ast.MapNode:
		m := map[string]any{}
		d.entries(n, path, func(key string, _, value ast.Node) {
			var item any
			d.value(value, reflect.ValueOf(&item).Elem(), join(path, key), depth+1)
			m[key] = item
		})
		d.set(n, v, path, reflect.ValueOf(m))
	case *ast.SequenceNode:
		var list []any
		d.list(n, reflect.ValueOf(&list).Elem(), path, depth)
		d.set(n, v, path, reflect.ValueOf(list))
	case *ast.BoolNode:
		d.set(n, v, path, reflect.ValueOf(node.Value))
	case *ast.IntegerNode, *ast.FloatNode:
		d.set(n, v, path, reflect.ValueOf(node.(ast.ScalarNode).GetValue()))
	default:
		var text string
		if d.scalar(n, reflect.ValueOf(&text).Elem(), path) {
			d.set(n, v, path, reflect.ValueOf(text))
		}
	}
}

func (d *decoder) set(n ast.Node, v reflect.Value, path string, item reflect.Value) {
	if !item.Type().AssignableTo(v.Type()) {
		d.fault(n, path, "%s, where a mapping (key: value) is wanted", kindOf(n))
		return
	}
	v.Set(item)
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func fieldNamed(v reflect.Value, key string) (reflect.Value, bool) {
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("yaml") == key {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

func fieldNames(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("yaml"); name != "" {
			names = append(names, name)
		}
	}
	return names
}
