package haproxy

import "strings"

// HAProxy's runtime API quotes a text that has a comma, a quote or the end of a line, and
// doubles the quotes in it. Such texts come from engines: the last check of a server has
// the words that the engine answered.

// scanRecord is a bufio.SplitFunc for what the runtime API prints: lines, whose ends do not
// count within quotes.
func scanRecord(data []byte, atEOF bool) (advance int, record []byte, err error) {
	quoted := false
	for i, c := range data {
		switch {
		case c == '"':
			quoted = !quoted
		case c == '\n' && !quoted:
			return i + 1, data[:i], nil
		}
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// appendFields appends the fields of a record of CSV to list.
func appendFields(list []string, record string) []string {
	quoted, start := false, 0
	for i := range len(record) {
		switch {
		case record[i] == '"':
			quoted = !quoted
		case record[i] == ',' && !quoted:
			list = append(list, unquote(record[start:i]))
			start = i + 1
		}
	}
	return append(list, unquote(record[start:]))
}

// unquote takes the quotes off a field that has some.
func unquote(field string) string {
	if len(field) < 2 || field[0] != '"' || field[len(field)-1] != '"' {
		return field
	}
	return strings.ReplaceAll(field[1:len(field)-1], `""`, `"`)
}
