package prompt

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf8"
)

// unescape appends the characters that src, the raw inside of a JSON string,
// stands for. Lone surrogates become U+FFFD, an unknown escape its own letter.
// With cut, src may end anywhere, and half an escape or half a surrogate pair at
// its end is left out.
func unescape(dst, src []byte, cut bool) []byte {
	dst = slices.Grow(dst, len(src)+8)
	// Nothing grows when unescaped, so all of src fits into out.
	out := dst[len(dst) : len(dst)+len(src)+8]
	i, o := 0, 0
	for {
		n := copyPlain(out[o:], src[i:])
		i, o = i+n, o+n
		if i+1 >= len(src) {
			if i < len(src) && !cut {
				out[o] = src[i]
				o++
			}
			break
		}
		c := src[i+1]
		if c != 'u' {
			out[o] = escaped[c]
			i, o = i+2, o+1
			continue
		}
		r, n := codePoint(src[i:], cut)
		if n == 0 {
			break
		}
		i += n
		o += utf8.EncodeRune(out[o:], r)
	}
	return dst[:len(dst)+o]
}

// copyPlain copies src up to its first backslash and returns how many bytes
// that is. dst has room for len(src)+8 bytes; what lies beyond the copied bytes
// is overwritten. Runs between escapes are mostly a line of text, too short for
// a search and a copy by calls, so it goes by words of eight.
func copyPlain(dst, src []byte) int {
	i := 0
	for i+8 <= len(src) {
		x := binary.LittleEndian.Uint64(src[i:])
		binary.LittleEndian.PutUint64(dst[i:], x)
		y := x ^ 0x5c5c5c5c5c5c5c5c
		if m := (y - 0x0101010101010101) &^ y & 0x8080808080808080; m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
		i += 8
	}
	for ; i < len(src) && src[i] != '\\'; i++ {
		dst[i] = src[i]
	}
	return i
}

// codePoint reads the \u escape, or the pair of them, that src starts with. It
// returns how many bytes that took; 0 if cut and the end may lie within.
func codePoint(src []byte, cut bool) (rune, int) {
	r, ok := hex4(src)
	if !ok {
		if cut && len(src) < 6 {
			return 0, 0
		}
		return 'u', 2
	}
	if r < 0xD800 || r > 0xDFFF {
		return r, 6
	}
	if r < 0xDC00 {
		low, ok := hex4(src[6:])
		if ok && low >= 0xDC00 && low <= 0xDFFF {
			return 0x10000 + (r-0xD800)<<10 + (low - 0xDC00), 12
		}
		if cut && !ok && mayBecomeEscape(src[6:]) {
			return 0, 0
		}
	}
	return utf8.RuneError, 6
}

// mayBecomeEscape tells whether src is the beginning of a \u escape.
func mayBecomeEscape(src []byte) bool {
	return len(src) == 0 || len(src) < 6 && src[0] == '\\' && (len(src) == 1 || src[1] == 'u')
}

// hex4 reads an escape of the form \u0041.
func hex4(src []byte) (rune, bool) {
	if len(src) < 6 || src[0] != '\\' || src[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range src[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// escaped maps the letter of a two-byte escape to what it stands for.
var escaped = func() (t [256]byte) {
	for c := range t {
		t[c] = byte(c)
	}
	t['b'], t['f'], t['n'], t['r'], t['t'] = '\b', '\f', '\n', '\r', '\t'
	return t
}()

// trimRune cuts an unfinished UTF-8 sequence off the end of p.
func trimRune(p []byte) []byte {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if last := p[len(p)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				return p[:len(p)-n]
			}
			break
		}
	}
	return p
}
