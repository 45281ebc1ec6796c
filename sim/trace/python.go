package trace

import (
	"bytes"
	"strconv"
)

// pythonString reads a string as Python's repr writes it. Unknown escapes stay as they are.
func pythonString(s []byte) (text string, rest []byte, ok bool) {
	if len(s) == 0 || s[0] != '\'' && s[0] != '"' {
		return "", nil, false
	}
	quote := s[0]
	out := make([]byte, 0, min(len(s), 4096))
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == quote:
			return string(out), s[i+1:], true
		case c == '\\' && i+1 < len(s):
			i++
			switch e := s[i]; e {
			case 'n':
				out = append(out, '\n')
			case 't':
				out = append(out, '\t')
			case 'r':
				out = append(out, '\r')
			case '\\', '\'', '"':
				out = append(out, e)
			default:
				out = append(out, '\\', e)
			}
		default:
			out = append(out, c)
		}
	}
	return "", nil, false
}

// pythonInts reads a list of numbers of tokens.
func pythonInts(s []byte) (list []uint32, rest []byte, ok bool) {
	if len(s) == 0 || s[0] != '[' {
		return nil, s, false
	}
	end := bytes.IndexByte(s, ']')
	if end < 0 {
		return nil, s, false
	}
	inner := bytes.TrimSpace(s[1:end])
	if len(inner) == 0 {
		return nil, s[end+1:], true
	}
	for part := range bytes.SplitSeq(inner, []byte{','}) {
		n, err := strconv.ParseUint(string(bytes.TrimSpace(part)), 10, 32)
		if err != nil {
			return nil, s, false
		}
		list = append(list, uint32(n))
	}
	return list, s[end+1:], true
}
