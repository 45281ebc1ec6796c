package metrics

import (
	"bytes"
	"errors"
)

// errReply means that an answer is not HTTP or too large.
var errReply = errors.New("malformed or too large HTTP answer")

// maxReplyHead bounds the head of an answer in bytes.
const maxReplyHead = 64 << 10

// reply parses an HTTP/1 answer as it arrives. The zero value expects the first
// byte.
type reply struct {
	status   int
	from, to int  // the body so far
	end      int  // of the part of the answer that has been parsed
	closes   bool // the connection ends with the answer

	headRead bool // the head has been parsed
	chunked  bool
	length   int // of the body; -1 = not given
}

// parse parses the answer so far: b always begins with its first byte. eof means
// that no more will arrive. parse joins the chunks of a body in place. It reports
// whether the answer is complete.
func (a *reply) parse(b []byte, eof bool) (done bool, err error) {
	if !a.headRead {
		if !a.parseHead(b) {
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
		done, err = a.parseChunks(b)
	case a.length >= 0:
		a.to = min(len(b), a.from+a.length)
		a.end = a.to
		done = a.to == a.from+a.length
	default:
		a.to, a.end, a.closes, done = len(b), len(b), true, eof
	}
	if err == nil && (a.to-a.from > maxPage || eof && !done) {
		err = errReply
	}
	return done, err
}

// parseHead parses the status and the headers once all of them have arrived. It sets
// a negative status if they are malformed.
func (a *reply) parseHead(b []byte) bool {
	n := bytes.Index(b, []byte("\r\n\r\n"))
	if n < 0 {
		return false
	}
	line, rest, _ := bytes.Cut(b[:n+2], []byte("\r\n"))
	code, ok := parseDecimal(line[min(len(line), 9):min(len(line), 12)])
	if len(line) < 12 || string(line[:7]) != "HTTP/1." || line[8] != ' ' || !ok {
		a.status = -1
		return false
	}
	a.status, a.length, a.closes = code, -1, line[7] == '0'
	for len(rest) > 0 {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case equalFold(name, "content-length"):
			if a.length, ok = parseDecimal(value); !ok {
				a.status = -1
				return false
			}
		case equalFold(name, "transfer-encoding"):
			a.chunked = true
		case equalFold(name, "connection"):
			a.closes = equalFold(value, "close") || a.closes && !equalFold(value, "keep-alive")
		}
	}
	a.headRead, a.from, a.to, a.end = true, n+4, n+4, n+4
	return true
}

// parseChunks parses the chunks that have arrived completely.
func (a *reply) parseChunks(b []byte) (done bool, err error) {
	for {
		line := bytes.IndexByte(b[a.end:], '\n')
		if line < 0 {
			return false, checkHead(len(b) - a.end)
		}
		size, ok := parseChunkSize(b[a.end : a.end+line])
		if !ok || size > maxPage {
			return false, errReply
		}
		start := a.end + line + 1
		if size == 0 {
			return a.parseTrailers(b, start)
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

// parseTrailers skips the lines after the last chunk, up to an empty one.
func (a *reply) parseTrailers(b []byte, at int) (done bool, err error) {
	for {
		line := bytes.IndexByte(b[at:], '\n')
		if line < 0 {
			return false, checkHead(len(b) - a.end)
		}
		at += line + 1
		if line == 0 || line == 1 && b[at-2] == '\r' {
			a.end = at
			return true, nil
		}
	}
}

// checkHead returns an error if n bytes are too many for a line or the trailers.
func checkHead(n int) error {
	if n > maxReplyHead {
		return errReply
	}
	return nil
}

// equalFold reports whether b is word, which is in lower case, in any case.
func equalFold(b []byte, word string) bool {
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

// parseDecimal parses a number of up to nine digits.
func parseDecimal(b []byte) (n int, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, len(b) > 0 && len(b) <= 9
}

// parseChunkSize parses the size of a chunk: up to seven hexadecimal digits. A
// semicolon or a space ends it.
func parseChunkSize(b []byte) (n int, ok bool) {
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
