package prompt

import "bytes"

// ScanTail adds to the last Scan, if that saw an object but not all of it, what the
// end of the same body says. tail is the body's last bytes up to its very end
// and may overlap what was scanned. It is read backwards from the closing brace
// over members whose values are strings, numbers, true, false or null, up to the
// first that is composite, cut or odd, looking at no more than DefaultLimit
// bytes.
//
// A member of the tail comes after everything the scan saw, so where a key is
// there twice the tail's counts, as in a decoder. Text is never taken from it,
// and Complete stays false. Of a form the fields are read.
func (b *Body) ScanTail(tail []byte) {
	if b.Opaque && b.CutMedium {
		b.form(tail[max(0, len(tail)-DefaultLimit):])
	}
	if b.Complete || b.Opaque {
		return
	}
	tail = tail[max(0, len(tail)-DefaultLimit):]
	end := trimSpace(tail)
	if end == 0 || tail[end-1] != '}' {
		return
	}
	end--
	var seen [scalarKeys]bool
	for {
		key, value, rest := lastMember(tail[:end])
		if rest < 0 {
			return
		}
		mark := len(b.arena)
		k := scalarOf(b.plain(key))
		b.arena = b.arena[:mark]
		if k != noScalar && !seen[k] {
			seen[k] = true
			b.assign(k, value)
		}
		if tail[rest] == '{' {
			return
		}
		end = rest
	}
}

// lastMember splits the member `"key":scalar` off the end of p. It returns the
// two tokens and the index of the comma or brace before them, or -1.
// Without that comma or brace the opening quote of the key could be an escaped
// one.
func lastMember(p []byte) (key, value []byte, rest int) {
	i := trimSpace(p)
	if i == 0 {
		return nil, nil, -1
	}
	start := i
	if p[i-1] == '"' {
		if start = stringStart(p[:i]); start < 0 {
			return nil, nil, -1
		}
	} else {
		for start > 0 && isLiteral(p[start-1]) {
			start--
		}
		if !isScalar(p[start:i]) {
			return nil, nil, -1
		}
	}
	value, i = p[start:i], start
	if i = trimSpace(p[:i]); i == 0 || p[i-1] != ':' {
		return nil, nil, -1
	}
	if i = trimSpace(p[:i-1]); i == 0 || p[i-1] != '"' {
		return nil, nil, -1
	}
	if start = stringStart(p[:i]); start < 0 {
		return nil, nil, -1
	}
	key = p[start:i]
	if i = trimSpace(p[:start]); i == 0 || p[i-1] != ',' && p[i-1] != '{' {
		return nil, nil, -1
	}
	return key, value, i - 1
}

// stringStart returns the index of the opening quote of the string whose closing
// quote ends p, or -1. Quotes inside are escaped; an opening one has no backslash
// before it.
func stringStart(p []byte) int {
	end := len(p) - 1
	if slashes(p[:end])&1 == 1 {
		return -1
	}
	for {
		quote := bytes.LastIndexByte(p[:end], '"')
		if quote < 0 {
			return -1
		}
		n := slashes(p[:quote])
		if n == 0 {
			return quote
		}
		if n&1 == 0 {
			return -1
		}
		end = quote - n
	}
}

// isLiteral reports whether c is a byte of a number, true, false or null.
func isLiteral(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'z' || c == '-' || c == '+' || c == '.' || c == 'E'
}

// isScalar reports whether p may be a number, true, false or null.
func isScalar(p []byte) bool {
	switch string(p) {
	case "":
		return false
	case "true", "false", "null":
		return true
	}
	for _, c := range p {
		if c >= 'a' && c <= 'z' && c != 'e' {
			return false
		}
	}
	return (p[0] == '-' || isDigit(p[0])) && isDigit(p[len(p)-1])
}

// trimSpace returns the length of p without the white space at its end.
func trimSpace(p []byte) int {
	i := len(p)
	for i > 0 && isSpace(p[i-1]) {
		i--
	}
	return i
}
