package strictyaml

import (
	"fmt"
	"reflect"
	"strings"
)

// Assign sets the value at path ("channels.max_open") inside the struct that
// into points to. A scalar takes text as it is; a list or a mapping is read
// from text as YAML. The faults have no position.
func Assign(into any, path, text string, o Options) []Fault {
	v := reflect.ValueOf(into).Elem()
	for i, key := range strings.Split(path, ".") {
		field, ok := reflect.Value{}, false
		if v.Kind() == reflect.Struct && !isScalar(v) {
			field, ok = fieldNamed(v, key)
		}
		if key == "" || !ok {
			return []Fault{{Path: path, Message: unknownKey(v, path, i)}}
		}
		v = field
	}
	if isScalar(v) {
		return assignScalar(v, path, text, o)
	}
	d := decoder{expand: o.Expand, at: Positions{}}
	node, fault := parse([]byte(text), o.MaxBytes)
	if fault != nil {
		return []Fault{{Path: path, Message: fault.Message}}
	}
	if node != nil {
		d.value(node, v, path, 0)
	}
	for i := range d.faults {
		d.faults[i].Position = Position{}
	}
	return d.faults
}

func assignScalar(v reflect.Value, path, text string, o Options) []Fault {
	expanded := false
	if o.Expand != nil {
		var err error
		if text, expanded, err = o.Expand(text); err != nil {
			return []Fault{{Path: path, Message: err.Error()}}
		}
	}
	err := assign(v, text)
	if err != nil && expanded {
		err = fmt.Errorf("what was filled in is not %s", wanted(v))
	}
	if err != nil {
		return []Fault{{Path: path, Message: err.Error()}}
	}
	return nil
}

func unknownKey(v reflect.Value, path string, i int) string {
	keys := strings.Split(path, ".")
	around := strings.Join(keys[:i], ".")
	if v.Kind() != reflect.Struct || isScalar(v) {
		return fmt.Sprintf("%s has no keys that could be set one by one; set it as a whole", around)
	}
	return fmt.Sprintf("unknown key %q; known are %s", keys[i], strings.Join(fieldNames(v.Type()), ", "))
}
