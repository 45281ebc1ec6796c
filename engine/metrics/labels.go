package metrics

import (
	"bytes"
	"strings"
)

// unescape takes the escapes off a label's value.
var unescape = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n")

// labelsEnd returns the index of the bracket that closes the labels at the start of
// b, or -1.
func labelsEnd(b []byte) int {
	quoted := false
	for i := 1; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == '}' && !quoted:
			return i
		}
	}
	return -1
}

// labelValue returns the value of a label as it is written, nil if there is none.
func labelValue(labels []byte, name string) []byte {
	for len(labels) > 0 {
		eq := bytes.IndexByte(labels, '=')
		if eq < 0 || eq+1 >= len(labels) || labels[eq+1] != '"' {
			return nil
		}
		key, rest := bytes.Trim(labels[:eq], ", "), labels[eq+2:]
		end := 0
		for end < len(rest) && rest[end] != '"' {
			if rest[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(rest) {
			return nil
		}
		if string(key) == name {
			return rest[:end:end]
		}
		labels = rest[end+1:]
	}
	return nil
}

// labelNumber returns the value of the label of either name as a number, or 0.
func labelNumber(labels []byte, name, other string) float64 {
	text := labelValue(labels, name)
	if text == nil && other != "" {
		text = labelValue(labels, other)
	}
	v, _ := parseValue(text)
	return v
}
