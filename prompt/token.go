package prompt

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// skipSpace returns the index of the first byte from i on that is not JSON white
// space, or len(data).
func skipSpace(data []byte, i int) int {
	for i < len(data) && isSpace(data[i]) {
		i++
	}
	return i
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// stringEnd returns the index after the closing quote of the string that opens
// at i, or -1.
func stringEnd(data []byte, i int) int {
	i++
	if end := shortEnd(data, i); end >= 0 {
		return end
	}
	for {
		n := bytes.IndexByte(data[i:], '"')
		if n < 0 {
			return -1
		}
		quote := i + n
		// An odd number of backslashes escapes the quote. They are looked for
		// only since the last escaped quote, so each is counted once.
		slash := quote
		for slash > i && data[slash-1] == '\\' {
			slash--
		}
		i = quote + 1
		if (quote-slash)&1 == 0 {
			return i
		}
	}
}

// shortEnd returns the index after the closing quote of the string whose inside
// starts at i, if it has less than 16 bytes and no escapes, else -1. Keys and
// roles are such, and a search by a call costs more.
func shortEnd(data []byte, i int) int {
	if i+16 > len(data) {
		return -1
	}
	m := special(binary.LittleEndian.Uint64(data[i:]))
	if m == 0 {
		i += 8
		if m = special(binary.LittleEndian.Uint64(data[i:])); m == 0 {
			return -1
		}
	}
	if i += bits.TrailingZeros64(m) >> 3; data[i] == '"' {
		return i + 1
	}
	return -1
}

// literalEnd returns the index of the delimiter after the number, true, false
// or null at i, or -1 if there is none.
func literalEnd(data []byte, i int) int {
	for j := i; j < len(data); j++ {
		switch data[j] {
		case ',', '}', ']', ' ', '\n', '\r', '\t':
			if j == i {
				return -1
			}
			return j
		case '"', '{', '[', ':':
			return -1
		}
	}
	return -1
}

// skipValue returns the index after the value at i, or -1. It counts brackets
// but does not check that they match.
func skipValue(data []byte, i int) int {
	switch data[i] {
	case '"':
		return stringEnd(data, i)
	case '{', '[':
	default:
		return literalEnd(data, i)
	}
	for depth := 0; i < len(data); {
		switch data[i] {
		case '"':
			if i = stringEnd(data, i); i < 0 {
				return -1
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return -1
}

// member steps to the next member of an object: i is at the opening brace
// (first) or after the member before. It returns the key and where its value
// starts; or done and the index after the closing brace; or -1 if the object is
// cut or broken there. The key is valid until the arena is next written to.
func (b *Body) member(i int, first bool) (key []byte, at int, done bool) {
	if i, done = step(b.data, i, first, '}'); done || i < 0 {
		return nil, i, done
	}
	if b.data[i] != '"' {
		return nil, -1, false
	}
	end := shortEnd(b.data, i+1)
	if end >= 0 {
		key = b.data[i+1 : end-1]
	} else {
		if end = stringEnd(b.data, i); end < 0 {
			return nil, -1, false
		}
		start := len(b.arena)
		key = b.plain(b.data[i:end])
		b.arena = b.arena[:start]
	}
	i = skipSpace(b.data, end)
	if i == len(b.data) || b.data[i] != ':' {
		return nil, -1, false
	}
	if i = skipSpace(b.data, i+1); i == len(b.data) {
		return nil, -1, false
	}
	return key, i, false
}

// step goes from an opening bracket at i (first), or from the end i of a value,
// to the next key or value of the composite. It returns its index; or done and
// the index after the bracket that closes; or -1.
func step(data []byte, i int, first bool, closing byte) (at int, done bool) {
	if first {
		i++
	}
	i = skipSpace(data, i)
	if i == len(data) {
		return -1, false
	}
	if data[i] == closing {
		return i + 1, true
	}
	if first {
		return i, false
	}
	if data[i] != ',' {
		return -1, false
	}
	if i = skipSpace(data, i+1); i == len(data) {
		return -1, false
	}
	return i, false
}
