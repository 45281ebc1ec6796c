package haproxy

import (
	"bytes"
	"strings"
)

// Statement is one line of an HAProxy configuration that is neither empty nor a comment.
type Statement struct {
	Section string   // keyword of the section that it is in; its own for a section's first line
	Name    string   // of that section, "" if it has none
	Words   []string // without quotes and comments; at least one
	Line    int      // from 1
	From    int      // offset of the line in the file, bytes
}

// Text is the statement with one space between its words.
func (s *Statement) Text() string { return strings.Join(s.Words, " ") }

// Is reports whether the statement begins with the words.
func (s *Statement) Is(words ...string) bool {
	if len(s.Words) < len(words) {
		return false
	}
	for i, w := range words {
		if s.Words[i] != w {
			return false
		}
	}
	return true
}

// Arg is the word at place i, "" if there is none.
func (s *Statement) Arg(i int) string {
	if i < len(s.Words) {
		return s.Words[i]
	}
	return ""
}

// sections are the keywords that begin one.
var sections = map[string]bool{
	"global": true, "defaults": true, "frontend": true, "backend": true, "listen": true, "ring": true, "log-profile": true,
	"log-forward": true, "peers": true, "resolvers": true, "userlist": true, "cache": true, "program": true, "http-errors": true,
	"mailers": true, "fcgi-app": true, "crt-store": true, "traces": true, "acme": true,
}

// ParseConfig reads any text as an HAProxy configuration. It keeps what it does
// not know.
func ParseConfig(text []byte) (list []Statement) {
	section, name := "", ""
	at := 0
	for line := 1; at < len(text); line++ {
		from := at
		end := bytes.IndexByte(text[at:], '\n')
		if end < 0 {
			end = len(text) - at
		}
		at += end + 1
		words := splitWords(text[from : from+end])
		if len(words) == 0 {
			continue
		}
		if sections[words[0]] {
			section, name = words[0], ""
			if len(words) > 1 {
				name = words[1]
			}
		}
		list = append(list, Statement{section, name, words, line, from})
	}
	return list
}

// splitWords splits a line as HAProxy does: at unquoted blanks, up to an unquoted
// '#'. A backslash quotes the next byte, but not within single quotes.
func splitWords(line []byte) (words []string) {
	var word []byte
	var quote byte
	inWord := false
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == '\\' && quote != '\'' && i+1 < len(line):
			i++
			word, inWord = append(word, line[i]), true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word = append(word, c)
		case c == '"' || c == '\'':
			quote, inWord = c, true
		case c == '#', c == ' ', c == '\t', c == '\r':
			if inWord {
				words = append(words, string(word))
				word, inWord = word[:0], false
			}
			if c == '#' {
				return words
			}
		default:
			word, inWord = append(word, c), true
		}
	}
	if inWord {
		words = append(words, string(word))
	}
	return words
}
