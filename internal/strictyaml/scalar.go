package strictyaml

import (
	"encoding"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"time"

	"github.com/goccy/go-yaml/ast"
)

var (
	durationType  = reflect.TypeFor[time.Duration]()
	unmarshalType = reflect.TypeFor[encoding.TextUnmarshaler]()

	// decimal leaves out what other readers of YAML take for another number:
	// 010, 0x10, 1_000, +1.
	decimal = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)
)

func isScalar(v reflect.Value) bool {
	if v.CanAddr() && v.Addr().Type().Implements(unmarshalType) {
		return true
	}
	switch v.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64:
		return true
	}
	return false
}

// scalar decodes n into v and says whether it did. A text that was expanded is
// read as whatever v wants; one that stands in the document must be text where
// text is wanted and must not be where it is not.
func (d *decoder) scalar(n ast.Node, v reflect.Value, path string) bool {
	text, expanded, ok := d.text(n, path)
	if !ok {
		return false
	}
	if !expanded && !fits(n, v) {
		d.fault(n, path, "%s, where %s is wanted", kindOf(n), wanted(v))
		return false
	}
	if err := assign(v, text); err != nil {
		if expanded {
			err = fmt.Errorf("what was filled in is not %s", wanted(v))
		}
		d.fault(n, path, "%v", err)
		return false
	}
	return true
}

// text returns the characters of a scalar, and whether they were expanded.
func (d *decoder) text(n ast.Node, path string) (text string, expanded, ok bool) {
	switch node := n.(type) {
	case *ast.StringNode:
		text = node.Value
	case *ast.LiteralNode:
		text = node.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, false, true
	default:
		return "", false, true // no scalar: fits says so
	}
	if d.expand == nil {
		return text, false, true
	}
	text, expanded, err := d.expand(text)
	if err != nil {
		d.fault(n, path, "%v", err)
	}
	return text, expanded, err == nil
}

// fits says whether the document's own kind of scalar may stand for v.
func fits(n ast.Node, v reflect.Value) bool {
	texts := v.Kind() == reflect.String || v.Type() == durationType || v.Addr().Type().Implements(unmarshalType)
	switch n.(type) {
	case *ast.StringNode, *ast.LiteralNode:
		return texts
	case *ast.IntegerNode:
		return v.Kind() != reflect.Bool && v.Kind() != reflect.String && v.Kind() != reflect.Struct
	case *ast.BoolNode:
		return v.Kind() == reflect.Bool
	}
	return false
}

func assign(v reflect.Value, text string) error {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	switch {
	case v.Type() == durationType:
		dur, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not %s", text, wanted(v))
		}
		v.SetInt(int64(dur))
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.Kind() == reflect.Bool:
		if text != "true" && text != "false" {
			return fmt.Errorf("%q is not %s", text, wanted(v))
		}
		v.SetBool(text == "true")
	default:
		i, err := strconv.ParseInt(text, 10, 64)
		if err != nil || !decimal.MatchString(text) {
			return fmt.Errorf("%q is not %s", text, wanted(v))
		}
		v.SetInt(i)
	}
	return nil
}

// Wanter is implemented by a value that can name what it reads, such as "a
// size such as 64KiB".
type Wanter interface{ Wanted() string }

func wanted(v reflect.Value) string {
	if w, ok := v.Addr().Interface().(Wanter); ok {
		return w.Wanted()
	}
	switch {
	case v.Type() == durationType:
		return "a duration such as 250ms or 5s"
	case v.Kind() == reflect.Bool:
		return "true or false"
	case v.Kind() == reflect.Int, v.Kind() == reflect.Int64:
		return "a whole number"
	}
	return "a text (write it in quotes)"
}

func kindOf(n ast.Node) string {
	switch n.(type) {
	case ast.MapNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode, *ast.LiteralNode:
		return "a text"
	case *ast.BoolNode:
		return "a boolean"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	}
	return "something else"
}
