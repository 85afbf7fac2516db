package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"

	yaml "github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxDepth bounds nesting. It stops a file of brackets from exhausting memory:
// the parser needs memory that grows with the square of the depth.
const maxDepth = 32

// defaultMaxBytes bounds a document whose reader names no bound.
const defaultMaxBytes = 256 << 10

// parse returns the body of the only document in text; nil when it is empty.
func parse(text []byte, maxBytes int) (node ast.Node, fault *Fault) {
	defer func() {
		if p := recover(); p != nil { // the parser's own faults must not become ours
			node, fault = nil, &Fault{Message: "not readable as YAML"}
		}
	}()
	if maxBytes == 0 {
		maxBytes = defaultMaxBytes
	}
	if len(text) > maxBytes {
		return nil, &Fault{Message: fmt.Sprintf("larger than %d bytes", maxBytes)}
	}
	if at, bad := invalidUTF8(text); bad {
		return nil, &Fault{Position: at, Message: "not UTF-8"}
	}
	tokens := lexer.Tokenize(string(text))
	if fault := tooDeep(tokens); fault != nil {
		return nil, fault
	}
	// Duplicate keys are found by the decoder, which goes on after the first.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, syntaxFault(err)
	}
	return onlyDocument(file)
}

func onlyDocument(file *ast.File) (ast.Node, *Fault) {
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if body != nil {
			return nil, &Fault{Position: position(doc.Body), Message: "a second document; one is wanted"}
		}
		body = doc.Body
	}
	return body, nil
}

func invalidUTF8(text []byte) (Position, bool) {
	for n := 0; n < len(text); {
		r, size := utf8.DecodeRune(text[n:])
		if r == utf8.RuneError && size == 1 {
			before := text[:n]
			line := bytes.Count(before, []byte{'\n'}) + 1
			return Position{line, utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1}, true
		}
		n += size
	}
	return Position{}, false
}

// tooDeep looks at the tokens, before the parser does: nesting by brackets,
// and by several markers on one line. (Nesting by indentation costs a line and
// its indent for each level, and is bounded by the size.)
func tooDeep(tokens token.Tokens) *Fault {
	brackets, markers, line := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			line, markers = t.Position.Line, 0
		}
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			brackets++
		case token.MappingEndType, token.SequenceEndType:
			brackets--
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			markers++
		}
		if brackets > maxDepth || markers > maxDepth {
			return &Fault{Position: tokenPosition(t), Message: fmt.Sprintf("nested deeper than %d", maxDepth)}
		}
	}
	return nil
}

func syntaxFault(err error) *Fault {
	// Not err.Error(): it quotes the source, which may hold a secret.
	if e, ok := errors.AsType[yaml.Error](err); ok {
		return &Fault{Position: tokenPosition(e.GetToken()), Message: e.GetMessage()}
	}
	return &Fault{Message: "not readable as YAML"}
}

// position is where n begins; the parser's token of a block mapping is its
// first colon.
func position(n ast.Node) Position {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return tokenPosition(m.Values[0].Key.GetToken())
	}
	return tokenPosition(n.GetToken())
}

func tokenPosition(t *token.Token) Position {
	if t == nil || t.Position == nil {
		return Position{}
	}
	return Position{t.Position.Line, t.Position.Column}
}
