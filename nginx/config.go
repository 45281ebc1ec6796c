package nginx

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Directive is one statement of an nginx configuration, with the statements of its block,
// if it has one.
type Directive struct {
	Name   string
	Args   []string
	Block  []*Directive
	Parent *Directive
	File   string
	Line   int
	// Text[From:To] of the file is the directive, with its block or semicolon.
	From, To int
	// Body is where its block begins, after the brace; 0 without a block.
	Body int
	// Included are the files that an include leads to.
	Included []string
}

// At is the directive's place, for messages.
func (d *Directive) At() string { return fmt.Sprintf("%s:%d", d.File, d.Line) }

// Own returns the directives of that name in the block itself.
func (d *Directive) Own(name string) (list []*Directive) {
	for _, e := range d.Block {
		if e.Name == name {
			list = append(list, e)
		}
	}
	return list
}

// Effective returns the directives of that name that apply in the block: its
// own, or those of the nearest enclosing block that has any.
func (d *Directive) Effective(name string) []*Directive {
	for b := d; b != nil; b = b.Parent {
		if list := b.Own(name); len(list) > 0 {
			return list
		}
	}
	return nil
}

// Walk calls f for each directive in the block and below.
func (d *Directive) Walk(f func(*Directive)) {
	for _, e := range d.Block {
		f(e)
		e.Walk(f)
	}
}

// Limits of the files that are read.
const (
	maxDepth  = 16 // of includes, and of nested blocks
	maxFiles  = 1000
	maxConfig = 4 << 20 // bytes of a file
)

// loader reads a configuration and everything that it includes.
type loader struct {
	folder string // that relative includes refer to
	files  int
	read   func(path string) ([]byte, error)
}

// load reads the configuration file.
func load(file string) (*Directive, error) { return Load(file, os.ReadFile) }

// Load reads the configuration file and its includes, each with read. The statements of an
// included file come before the include in the same block.
func Load(file string, read func(path string) ([]byte, error)) (*Directive, error) {
	l := &loader{folder: filepath.Dir(file), read: read}
	root := &Directive{File: file}
	return root, l.file(file, root, 0)
}

// file reads one file into the block of parent.
func (l *loader) file(path string, parent *Directive, depth int) error {
	if l.files++; l.files > maxFiles || depth > maxDepth {
		return errors.New("too many includes")
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Size() > maxConfig {
		return fmt.Errorf("%s: too large", path)
	}
	text, err := l.read(path)
	if err != nil {
		return err
	}
	t := &tokens{text: string(text), line: 1}
	return l.block(t, path, parent, depth, 0)
}

// block reads statements up to the end of the block, or of the file.
func (l *loader) block(t *tokens, path string, parent *Directive, depth, nested int) error {
	for {
		var words []string
		line, from := 0, 0
	statement:
		for {
			w, kind := t.next()
			switch kind {
			case word:
				if line == 0 {
					line, from = t.line, t.start
				}
				words = append(words, w)
			case end:
				if nested > 0 || len(words) > 0 {
					return fmt.Errorf("%s:%d: the file ends within a block or directive", path, t.line)
				}
				return nil
			case closing:
				if nested == 0 || len(words) > 0 {
					return fmt.Errorf("%s:%d: unexpected }", path, t.line)
				}
				return nil
			case semicolon, opening:
				if len(words) == 0 {
					return fmt.Errorf("%s:%d: unexpected { or ;", path, t.line)
				}
				d := &Directive{Name: words[0], Args: words[1:], Parent: parent, File: path, Line: line, From: from}
				if kind == opening {
					d.Body = t.at
				}
				if err := l.statement(t, d, kind == opening, depth, nested); err != nil {
					return err
				}
				d.To = t.at
				break statement
			}
		}
	}
}

// statement reads d's block or what d includes, and adds d to its parent.
func (l *loader) statement(t *tokens, d *Directive, opens bool, depth, nested int) error {
	switch {
	case opens && nested >= maxDepth:
		return fmt.Errorf("%s: blocks too deep", d.At())
	case opens && strings.HasSuffix(d.Name, "_by_lua_block"):
		t.skipBlock()
	case opens:
		if err := l.block(t, d.File, d, depth, nested+1); err != nil {
			return err
		}
	case d.Name == "include" && len(d.Args) == 1:
		pattern := d.Args[0]
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(l.folder, pattern)
		}
		var err error
		if d.Included, err = filepath.Glob(pattern); err != nil {
			return fmt.Errorf("%s: %w", d.At(), err)
		}
		if len(d.Included) == 0 && !strings.ContainsAny(pattern, "*?[") {
			return fmt.Errorf("%s: %s does not exist", d.At(), pattern)
		}
		for _, f := range d.Included {
			if err := l.file(f, d.Parent, depth+1); err != nil {
				return err
			}
		}
	}
	d.Parent.Block = append(d.Parent.Block, d)
	return nil
}

type token uint8

const (
	end token = iota
	word
	semicolon
	opening
	closing
)

// tokens splits the text of a configuration into tokens.
type tokens struct {
	text  string
	at    int
	start int // of the last token
	line  int // of the last token
}

// next returns the next token; only a word has text.
func (t *tokens) next() (string, token) {
	for t.at < len(t.text) {
		t.start = t.at
		switch c := t.text[t.at]; c {
		case '\n':
			t.line++
			t.at++
		case ' ', '\t', '\r':
			t.at++
		case '#':
			for t.at < len(t.text) && t.text[t.at] != '\n' {
				t.at++
			}
		case ';', '{', '}':
			t.at++
			return "", map[byte]token{';': semicolon, '{': opening, '}': closing}[c]
		case '"', '\'':
			return t.quoted(c), word
		default:
			return t.plain(), word
		}
	}
	return "", end
}

func (t *tokens) quoted(quote byte) string {
	var b strings.Builder
	for t.at++; t.at < len(t.text); t.at++ {
		c := t.text[t.at]
		switch {
		case c == '\\' && t.at+1 < len(t.text):
			t.at++
			c = t.text[t.at]
		case c == quote:
			t.at++
			return b.String()
		}
		if c == '\n' {
			t.line++
		}
		b.WriteByte(c)
	}
	return b.String()
}

// plain reads a word without quotes. A brace after a dollar is part of it.
func (t *tokens) plain() string {
	start := t.at
	for t.at < len(t.text) {
		switch c := t.text[t.at]; {
		case c == '\\' && t.at+1 < len(t.text):
			t.at++
		case c == '$' && strings.HasPrefix(t.text[t.at:], "${"):
			t.at++
		case strings.IndexByte(" \t\r\n;{", c) >= 0:
			return t.text[start:t.at]
		}
		t.at++
	}
	return t.text[start:]
}

// skipBlock skips a block of another language. It counts braces and does not
// understand strings and comments.
func (t *tokens) skipBlock() {
	for depth := 1; t.at < len(t.text) && depth > 0; t.at++ {
		switch t.text[t.at] {
		case '{':
			depth++
		case '}':
			depth--
		case '\n':
			t.line++
		}
	}
}
