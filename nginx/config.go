package nginx

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// directive is one statement of an nginx configuration, with what is in its
// block, if it has one.
type directive struct {
	name   string
	args   []string
	block  []*directive
	parent *directive
	file   string
	line   int
	// text[from:to] of the file is the directive, with its block or semicolon.
	from, to int
}

// at is the directive's place, for messages.
func (d *directive) at() string { return fmt.Sprintf("%s:%d", d.file, d.line) }

// own returns the directives of that name in the block itself.
func (d *directive) own(name string) (list []*directive) {
	for _, e := range d.block {
		if e.name == name {
			list = append(list, e)
		}
	}
	return list
}

// effective returns the directives of that name that apply in the block: its
// own, or those of the nearest enclosing block that has any.
func (d *directive) effective(name string) []*directive {
	for b := d; b != nil; b = b.parent {
		if list := b.own(name); len(list) > 0 {
			return list
		}
	}
	return nil
}

// walk calls f for each directive in the block and below.
func (d *directive) walk(f func(*directive)) {
	for _, e := range d.block {
		f(e)
		e.walk(f)
	}
}

// Limits of what is read.
const (
	maxDepth  = 16 // of includes, and of nested blocks
	maxFiles  = 1000
	maxConfig = 4 << 20 // bytes of a file
)

// loader reads a configuration and everything that it includes.
type loader struct {
	folder string // that relative includes refer to
	files  int
}

// load reads the configuration file.
func load(file string) (*directive, error) {
	l := &loader{folder: filepath.Dir(file)}
	root := &directive{file: file}
	return root, l.file(file, root, 0)
}

// file reads one file into the block of parent.
func (l *loader) file(path string, parent *directive, depth int) error {
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
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	t := &tokens{text: string(text), line: 1}
	return l.block(t, path, parent, depth, 0)
}

// block reads statements up to the end of the block, or of the file.
func (l *loader) block(t *tokens, path string, parent *directive, depth, nested int) error {
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
				d := &directive{name: words[0], args: words[1:], parent: parent, file: path, line: line, from: from}
				if err := l.statement(t, d, kind == opening, depth, nested); err != nil {
					return err
				}
				d.to = t.at
				break statement
			}
		}
	}
}

// statement reads d's block or what d includes, and adds d to its parent.
func (l *loader) statement(t *tokens, d *directive, opens bool, depth, nested int) error {
	switch {
	case opens && nested >= maxDepth:
		return fmt.Errorf("%s: blocks too deep", d.at())
	case opens && strings.HasSuffix(d.name, "_by_lua_block"):
		t.skipBlock()
	case opens:
		if err := l.block(t, d.file, d, depth, nested+1); err != nil {
			return err
		}
	case d.name == "include" && len(d.args) == 1:
		pattern := d.args[0]
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(l.folder, pattern)
		}
		files, err := filepath.Glob(pattern)
		if err != nil {
			return fmt.Errorf("%s: %w", d.at(), err)
		}
		if len(files) == 0 && !strings.ContainsAny(pattern, "*?[") {
			return fmt.Errorf("%s: %s does not exist", d.at(), pattern)
		}
		for _, f := range files {
			if err := l.file(f, d.parent, depth+1); err != nil {
				return err
			}
		}
	}
	d.parent.block = append(d.parent.block, d)
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
