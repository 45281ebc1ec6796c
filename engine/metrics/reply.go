package metrics

import (
	"bytes"
	"errors"
)

// errReply tells of an answer that is none in HTTP, or is too large.
var errReply = errors.New("answers with something other than HTTP, or with too much")

// maxReplyHead bounds the head of an answer, in bytes.
const maxReplyHead = 64 << 10

// httpReply is an answer in HTTP/1 that is taken in as it comes. The zero value
// waits for the first byte.
type httpReply struct {
	status   int
	from, to int  // where the body is, as far as it has come
	end      int  // of what belongs to the answer
	last     bool // the connection ends with it

	begun   bool // the head is all there
	chunked bool
	length  int // of the body; -1 = not told
}

// take looks at what has come so far, always from the first byte on; eof tells
// that nothing more will. It moves the chunks of a body together. It reports
// whether the answer is complete.
func (a *httpReply) take(b []byte, eof bool) (done bool, err error) {
	if !a.begun {
		if !a.head(b) {
			if eof || len(b) > maxReplyHead || a.status < 0 {
				return false, errReply
			}
			return false, nil
		}
	}
	switch {
	case a.status < 200 || a.length > maxPage:
		return false, errReply
	case a.status == 204 || a.status == 304:
		done = true
	case a.chunked:
		done, err = a.chunks(b)
	case a.length >= 0:
		a.to = min(len(b), a.from+a.length)
		a.end = a.to
		done = a.to == a.from+a.length
	default:
		a.to, a.end, a.last, done = len(b), len(b), true, eof
	}
	if err == nil && (a.to-a.from > maxPage || eof && !done) {
		err = errReply
	}
	return done, err
}

// head reads status and headers, once they are all there. What is no HTTP has a
// negative status.
func (a *httpReply) head(b []byte) bool {
	n := bytes.Index(b, []byte("\r\n\r\n"))
	if n < 0 {
		return false
	}
	line, rest, _ := bytes.Cut(b[:n+2], []byte("\r\n"))
	code, ok := decimal(line[min(len(line), 9):min(len(line), 12)])
	if len(line) < 12 || string(line[:7]) != "HTTP/1." || line[8] != ' ' || !ok {
		a.status = -1
		return false
	}
	a.status, a.length, a.last = code, -1, line[7] == '0'
	for len(rest) > 0 {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case is(name, "content-length"):
			if a.length, ok = decimal(value); !ok {
				a.status = -1
				return false
			}
		case is(name, "transfer-encoding"):
			a.chunked = true
		case is(name, "connection"):
			a.last = is(value, "close") || a.last && !is(value, "keep-alive")
		}
	}
	a.begun, a.from, a.to, a.end = true, n+4, n+4, n+4
	return true
}

// chunks takes in the chunks that are all there.
func (a *httpReply) chunks(b []byte) (done bool, err error) {
	for {
		line := bytes.IndexByte(b[a.end:], '\n')
		if line < 0 {
			return false, tooLong(len(b) - a.end)
		}
		size, ok := hexadecimal(b[a.end : a.end+line])
		if !ok || size > maxPage {
			return false, errReply
		}
		start := a.end + line + 1
		if size == 0 {
			return a.trailers(b, start)
		}
		if len(b) < start+size+2 {
			return false, nil
		}
		if b[start+size] != '\r' || b[start+size+1] != '\n' {
			return false, errReply
		}
		a.to += copy(b[a.to:], b[start:start+size])
		a.end = start + size + 2
		if a.to-a.from > maxPage {
			return false, errReply
		}
	}
}

// trailers passes over the lines after the last chunk, up to an empty one.
func (a *httpReply) trailers(b []byte, at int) (done bool, err error) {
	for {
		line := bytes.IndexByte(b[at:], '\n')
		if line < 0 {
			return false, tooLong(len(b) - a.end)
		}
		at += line + 1
		if line == 0 || line == 1 && b[at-2] == '\r' {
			a.end = at
			return true, nil
		}
	}
}

func tooLong(n int) error {
	if n > maxReplyHead {
		return errReply
	}
	return nil
}

// is reports whether b is the lower-case word, in whatever case.
func is(b []byte, word string) bool {
	if len(b) != len(word) {
		return false
	}
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != word[i] {
			return false
		}
	}
	return true
}

// decimal reads a number of nine digits at most.
func decimal(b []byte) (n int, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, len(b) > 0 && len(b) <= 9
}

// hexadecimal reads the size of a chunk: seven digits at most, and what follows
// a semicolon or a space says nothing of it.
func hexadecimal(b []byte) (n int, ok bool) {
	for i, c := range b {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return n, i > 0 && (c == '\r' || c == ';' || c == ' ')
		}
		if i == 7 {
			return 0, false
		}
		n = 16*n + int(c)
	}
	return n, len(b) > 0
}
