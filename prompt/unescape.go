package prompt

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf8"
)

// unescape appends to dst the characters of the string whose inside src starts
// with, up to its closing quote. It returns the index in src after that quote,
// or -1 if src ends before: then half an escape, half a surrogate pair or half a
// UTF-8 sequence at the end is left out. Lone surrogates become U+FFFD, an
// unknown escape its own letter.
//
// With short set, escapes of two bytes stay as they are, and what can be written
// so is: the form that most strings have already and that is hashed.
func unescape(dst, src []byte, short bool) ([]byte, int) {
	dst = slices.Grow(dst, len(src)+8)
	// Nothing grows when unescaped, so all of src fits into out, and a word may
	// be stored beyond what counts.
	out := dst[len(dst) : len(dst)+len(src)+8]
	i, o := 0, 0
	for i < len(src) {
		n := copyPlain(out[o:], src[i:])
		i, o = i+n, o+n
		if i == len(src) {
			break
		}
		switch c := src[i]; c {
		case '"':
			return dst[:len(dst)+o], i + 1
		case '\\':
			if i+1 == len(src) {
				return dst[:len(dst)+o], -1
			}
			c = src[i+1]
			if c != 'u' {
				if short {
					out[o] = '\\'
					o++
				} else {
					c = escaped[c]
				}
				out[o] = c
				i, o = i+2, o+1
				continue
			}
			r, n := codePoint(src[i:])
			if n == 0 {
				return dst[:len(dst)+o], -1
			}
			i += n
			if short && r < 128 && shortEscape[r] != 0 {
				out[o], out[o+1] = '\\', shortEscape[r]
				o += 2
				continue
			}
			o += utf8.EncodeRune(out[o:], r)
		default: // one of the last bytes of src
			out[o] = c
			i, o = i+1, o+1
		}
	}
	return dst[:len(dst)+len(trimRune(out[:o]))], -1
}

// copyPlain copies src up to its first quote or backslash and returns how many
// bytes that is; it may stop short within the last 7 bytes of src. What follows
// the copied bytes in dst is overwritten. Runs between escapes are mostly a line
// of text, too short for a search and a copy by calls, so it goes by words of
// eight.
func copyPlain(dst, src []byte) int {
	n := 0
	for len(src) >= 8 && len(dst) >= 8 {
		x := binary.LittleEndian.Uint64(src)
		binary.LittleEndian.PutUint64(dst, x)
		if m := special(x); m != 0 {
			return n + bits.TrailingZeros64(m)>>3
		}
		n += 8
		src, dst = src[8:], dst[8:]
	}
	return n
}

// special has bits set in the first byte of x, from the low end, that is a quote
// or a backslash, and possibly in later ones; it is 0 if there is none.
func special(x uint64) uint64 {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	quote, slash := x^0x22*ones, x^0x5c*ones
	return ((quote-ones)&^quote | (slash-ones)&^slash) & tops
}

// codePoint reads the \u escape, or the pair of them, that src starts with. It
// returns how many bytes that took; 0 if src ends before that is certain.
func codePoint(src []byte) (rune, int) {
	r, ok := hex4(src)
	if !ok {
		if len(src) < 6 && bytes.IndexByte(src, '"') < 0 {
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
		if !ok && mayBecomeEscape(src[6:]) {
			return 0, 0
		}
	}
	return utf8.RuneError, 6
}

// mayBecomeEscape reports whether src is the beginning of a \u escape.
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

// escaped maps the letter of a two-byte escape to the byte that it represents.
var escaped = func() (t [256]byte) {
	for c := range t {
		t[c] = byte(c)
	}
	t['b'], t['f'], t['n'], t['r'], t['t'] = '\b', '\f', '\n', '\r', '\t'
	return t
}()

// shortEscape maps a character that has an escape of two bytes, other than the
// slash, to its letter.
var shortEscape = [128]byte{'"': '"', '\\': '\\', '\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't'}

// hasLong reports whether p, the inside of a string, has an escape of the form
// \u0041; it may also say so of an escaped backslash before a u. It does not
// branch on where escapes are, so that they cost nothing.
func hasLong(p []byte) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for len(p) > 32 {
		w := p[:33]
		// A byte is 0 where a backslash is and u follows.
		a := (binary.LittleEndian.Uint64(w) ^ '\\'*ones) | (binary.LittleEndian.Uint64(w[1:]) ^ 'u'*ones)
		b := (binary.LittleEndian.Uint64(w[8:]) ^ '\\'*ones) | (binary.LittleEndian.Uint64(w[9:]) ^ 'u'*ones)
		c := (binary.LittleEndian.Uint64(w[16:]) ^ '\\'*ones) | (binary.LittleEndian.Uint64(w[17:]) ^ 'u'*ones)
		d := (binary.LittleEndian.Uint64(w[24:]) ^ '\\'*ones) | (binary.LittleEndian.Uint64(w[25:]) ^ 'u'*ones)
		if ((a-ones)&^a|(b-ones)&^b|(c-ones)&^c|(d-ones)&^d)&tops != 0 {
			return true
		}
		p = p[32:]
	}
	return bytes.Contains(p, longEscape)
}

var longEscape = []byte(`\u`)

// trimCut cuts an unfinished escape of two bytes or UTF-8 sequence off the end
// of p.
func trimCut(p []byte) []byte {
	if slashes(p)&1 == 1 {
		return p[:len(p)-1]
	}
	return trimRune(p)
}

// slashes counts the backslashes that end p.
func slashes(p []byte) int {
	n := 0
	for n < len(p) && p[len(p)-1-n] == '\\' {
		n++
	}
	return n
}

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
