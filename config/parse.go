package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxFile bounds the file, in bytes: room for some ten thousand replicas.
const maxFile = 1 << 20

// Checks are the checks that need to know more than this package does.
type Checks struct {
	// Policies are the valid policy names, in the order refusals list them.
	// None: any name will do.
	Policies []string
	// Policy, unless nil, is called for each pool whose policy has a valid
	// name, to validate its options. Errors of Decode and Refuse keep their
	// positions, any other is reported at the pool's policy key.
	Policy func(*Policy) error
}

// Load reads and parses the file at path; see Parse.
func Load(path string, env func(string) string, checks Checks) (*Config, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: `pointsman attach haproxy --write` or `attach nginx --write` writes one from your proxy's configuration", err)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	return Parse(path, data, env, checks)
}

// Parse turns the text of a file into a Config. name is the file's name in
// refusals; env looks up an environment variable, as os.Getenv does, and may
// be nil. The error is of type Errors and holds everything that is wrong.
func Parse(name string, data []byte, env func(string) string, checks Checks) (*Config, error) {
	d := &decoder{source: newSource(name)}
	c := Default()
	c.src = d.source
	root, err := document(name, data)
	if err != nil {
		return nil, Errors{*err}
	}
	d.value(root, "", reflect.ValueOf(c).Elem())
	v := validator{config: c, source: d.source, errs: d.errs}
	v.session(env)
	v.all(checks)
	if len(v.errs) > 0 {
		return nil, v.errs.sorted()
	}
	return c, nil
}

// document returns the file's only document, an empty one when there is none.
func document(name string, data []byte) (*yaml.Node, *Error) {
	if len(data) > maxFile {
		return nil, &Error{File: name, Msg: fmt.Sprintf("the file is larger than %v", Bytes(maxFile))}
	}
	if at := bytes.IndexFunc(data, notYAML); at >= 0 {
		before := data[:at]
		return nil, &Error{File: name, Line: 1 + bytes.Count(before, []byte("\n")), Col: 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]),
			Msg: "not YAML: want UTF-8 text without control characters"}
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) || err == nil && len(doc.Content) == 0 {
		return &yaml.Node{Kind: yaml.MappingNode, Line: 1, Column: 1}, nil
	} else if err != nil {
		if line, col := tabbed(data); line > 0 {
			return nil, &Error{File: name, Line: line, Col: col, Msg: "not YAML: a tab in the indentation; indent with spaces"}
		}
		return nil, syntaxError(name, err)
	}
	if err := dec.Decode(&more); err == nil {
		return nil, &Error{File: name, Line: more.Line, Col: more.Column, Msg: "want one document, not a second one after ---"}
	} else if !errors.Is(err, io.EOF) {
		return nil, syntaxError(name, err)
	}
	return doc.Content[0], nil
}

// tabbed finds the first tab that indents a line; line 0 if there is none.
func tabbed(data []byte) (line, col int) {
	for text := range bytes.Lines(data) {
		line++
		indent := text[:len(text)-len(bytes.TrimLeft(text, " \t"))]
		if at := bytes.IndexByte(indent, '\t'); at >= 0 && len(bytes.TrimSpace(text)) > 0 {
			return line, at + 1
		}
	}
	return 0, 0
}

// notYAML finds what no YAML file may contain, by the standard's printable set.
func notYAML(r rune) bool {
	return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r >= 0x7f && r < 0xa0 && r != 0x85 || r == utf8.RuneError || r == 0xfffe || r == 0xffff
}

var (
	yamlLine = regexp.MustCompile(`^line (\d+): `)
	// yamlParser recognises what the library finds in its second stage. There
	// it counts lines from 0, and often from where the mapping or list begins.
	yamlParser = regexp.MustCompile(`^did not find expected (node content|key|'-' indicator|',' or|<)`)
)

// syntaxError converts an error of the YAML library. The library reports the
// line, except for the first, and never the column.
func syntaxError(name string, err error) *Error {
	e := &Error{File: name, Msg: strings.TrimPrefix(err.Error(), "yaml: ")}
	if m := yamlLine.FindStringSubmatch(e.Msg); m != nil {
		e.Line, _ = strconv.Atoi(m[1])
		e.Msg = e.Msg[len(m[0]):]
	}
	if yamlParser.MatchString(e.Msg) {
		e.Line++
		e.Msg += ", here or below"
	}
	e.Line = max(e.Line, 1)
	e.Msg = "not YAML: " + e.Msg
	return e
}
