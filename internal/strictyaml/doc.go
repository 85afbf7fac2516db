// Package strictyaml reads one YAML document into a Go value and refuses what
// it does not know: an unknown key, a duplicate key, a value of another type,
// and the parts of YAML that make a file mean something else than it seems to
// (anchors, aliases, merge keys, tags, several documents, numbers that are not
// plain decimals).
//
// Decode walks the parsed document beside the Go value. It collects every
// fault instead of stopping at the first, each with line and column, and it
// remembers where each value stood, so that whoever judges the values
// afterwards can name the place too. Texts can be expanded (environment
// variables, secrets) after the document was parsed: what is filled in is
// always text, never YAML. Assign sets one value by its path, for overrides on
// a command line.
//
// It does not judge values beyond their type, keeps no comments, writes no
// YAML, and never repeats an expanded text in a fault, for it may be a secret.
package strictyaml
