package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"sluice/internal/strictyaml"
	"strings"
)

// maxConfigBytes bounds the configuration file.
const maxConfigBytes = 256 << 10

// ConfigError is a configuration that cannot be run with: every fault that
// was found.
type ConfigError struct{ Faults []ConfigFault }

// ConfigFault is one thing that is wrong with a configuration.
type ConfigFault struct {
	Source  string `json:"source"`           // the file, or the override ("--set a.b")
	Line    int    `json:"line,omitempty"`   // 0 where there is none
	Column  int    `json:"column,omitempty"` // 0 where there is none
	Path    string `json:"path,omitempty"`   // of the value, such as routes[0].path
	Message string `json:"message"`
}

// String gives "file:line:column: path: message", without what is not known.
func (f ConfigFault) String() string {
	var b strings.Builder
	if f.Source != "" {
		b.WriteString(f.Source + ":")
	}
	if f.Line > 0 {
		fmt.Fprintf(&b, "%d:%d:", f.Line, f.Column)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	if f.Path != "" && f.Source != "--set "+f.Path {
		b.WriteString(f.Path + ": ")
	}
	return b.String() + f.Message
}

func (e *ConfigError) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// Load reads the configuration file at path ("" is none: the embedded
// defaults), lays the overrides ("a.b=c") over it, and judges the whole. The
// error is a *ConfigError with every fault.
func Load(path string, sets []string) (*Config, error) {
	l := loader{config: defaultConfig(), path: path, set: map[string]bool{}}
	if path != "" {
		l.expander.dir = filepath.Dir(path)
	}
	l.expander.lookup = os.LookupEnv
	l.readFile()
	for _, set := range sets {
		l.override(set)
	}
	if len(l.faults) == 0 {
		resolvePaths(reflect.ValueOf(l.config).Elem(), l.expander.dir)
		l.config.File, l.config.place = path, l.place
		l.judge()
	}
	if len(l.faults) > 0 {
		return nil, &ConfigError{l.faults}
	}
	return l.config, nil
}

// loader remembers where each value came from, until all are judged.
type loader struct {
	config   *Config
	path     string
	expander expander
	at       strictyaml.Positions
	set      map[string]bool // paths that an override set
	faults   []ConfigFault
}

func (l *loader) options() strictyaml.Options {
	return strictyaml.Options{MaxBytes: maxConfigBytes, Expand: l.expander.expand}
}

func (l *loader) readFile() {
	if l.path == "" {
		return
	}
	l.config.stamp = stampOf(l.path)
	f, err := os.Open(l.path)
	if err != nil {
		l.faults = append(l.faults, ConfigFault{Message: fmt.Sprintf("read the configuration: %v", err)})
		return
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConfigBytes+1))
	if err != nil {
		l.faults = append(l.faults, ConfigFault{Message: fmt.Sprintf("read the configuration: %v", err)})
		return
	}
	l.read(text)
}

func (l *loader) read(text []byte) {
	at, faults := strictyaml.Decode(text, l.config, l.options())
	l.at = at
	for _, f := range faults {
		l.faults = append(l.faults, ConfigFault{l.path, f.Line, f.Column, f.Path, f.Message})
	}
}

func (l *loader) override(set string) {
	path, text, ok := strings.Cut(set, "=")
	if !ok {
		l.faults = append(l.faults, ConfigFault{Source: "--set " + set, Message: "write it as a.b=c"})
		return
	}
	for _, f := range strictyaml.Assign(l.config, path, text, l.options()) {
		l.faults = append(l.faults, ConfigFault{Source: "--set " + path, Path: f.Path, Message: f.Message})
	}
	l.set[path] = true
}

// wrong adds a fault of the value at path.
func (l *loader) wrong(path, format string, args ...any) {
	f := l.place(path)
	f.Message = fmt.Sprintf(format, args...)
	l.faults = append(l.faults, f)
}

// place is where the value at path was set: a fault without its words.
func (l *loader) place(path string) ConfigFault {
	f := ConfigFault{Source: l.path, Path: path}
	if set := l.overrideOf(path); set != "" {
		f.Source = "--set " + set
	} else {
		at := l.at.Near(path)
		f.Line, f.Column = at.Line, at.Column
	}
	return f
}

// overrideOf returns the override that set the value at path, or "".
func (l *loader) overrideOf(path string) string {
	for path != "" {
		if l.set[path] {
			return path
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return ""
}

// resolvePaths makes every path inside v relative to dir.
func resolvePaths(v reflect.Value, dir string) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			switch {
			case field.Tag.Get("path") != "":
				v.Field(i).SetString(absolute(dir, v.Field(i).String()))
			case field.Tag.Get("yaml") != "":
				resolvePaths(v.Field(i), dir)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			resolvePaths(v.Index(i), dir)
		}
	}
}
