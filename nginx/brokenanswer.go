package nginx

import (
	"bytes"
	"time"
)

// brokenAnswer is an error-log line that reports an answer which a replica broke
// off in mid-stream. The access-log line of such an answer looks like any other.
// It follows this line, from the same worker and connection.
type brokenAnswer struct{ pid, conn, address []byte }

// brokeOff is nginx's message for a replica that closed the connection, before what
// nginx was doing.
var brokeOff = []byte("upstream prematurely closed connection")

// failedCalls begin nginx's messages for a connection that was reset or timed out.
// What follows is the system's number and text of the error, and the same.
var failedCalls = [][]byte{
	[]byte("recv() failed ("), []byte("readv() failed ("), []byte("upstream timed out ("),
}

// midStream describes what nginx was doing with the answer when it noticed. nginx reads on
// whenever it has sent a part to the client, and then the message mentions the client. It
// reports a broken connection to a client at a lower level than this.
var midStream = [][]byte{[]byte(" while reading upstream"), []byte(" while sending to client")}

// isBreak reports whether message, all of it, says that an answer broke off. Other
// messages hold what a client wrote, such as the user name of a failed login.
func isBreak(message []byte) bool {
	for _, doing := range midStream {
		what, ok := bytes.CutSuffix(message, doing)
		if !ok {
			continue
		}
		if bytes.Equal(what, brokeOff) {
			return true
		}
		for _, call := range failedCalls {
			if system, ok := bytes.CutPrefix(what, call); ok {
				return bytes.HasSuffix(system, []byte(")")) && bytes.IndexByte(system, '"') < 0
			}
		}
	}
	return false
}

// parseBrokenAnswer parses an error-log line without its tag: "DATE TIME [error]
// PID#TID: *CONN message, client: …, request: "…", upstream: "http://ADDRESS/…", host:
// …". The first words are nginx's own, up to a message that must be one of a few.
// Client input occurs in the request, whose URI cannot contain a space, and after the
// upstream.
func parseBrokenAnswer(text []byte) (b brokenAnswer, ok bool) {
	if len(text) <= errorDate || !bytes.HasPrefix(text[errorDate:], errorLevel) {
		return b, false
	}
	rest := text[errorDate+len(errorLevel):]
	if b.pid, rest, ok = bytes.Cut(rest, []byte("#")); !ok || !digits(b.pid) {
		return b, false
	}
	tid, rest, ok := bytes.Cut(rest, []byte(": *"))
	if !ok || !digits(tid) {
		return b, false
	}
	if b.conn, rest, ok = bytes.Cut(rest, []byte(" ")); !ok || !digits(b.conn) {
		return b, false
	}
	message, rest, ok := bytes.Cut(rest, []byte(", client: "))
	if !ok || !isBreak(message) {
		return b, false
	}
	if _, rest, ok = bytes.Cut(rest, []byte(`, upstream: "http://`)); !ok {
		return b, false
	}
	end := bytes.IndexAny(rest, `/"`)
	if end <= 0 {
		return b, false
	}
	b.address = rest[:end]
	return b, true
}

// errorDate is the length of "2026/11/20 16:48:19".
const errorDate = 19

var errorLevel = []byte(" [error] ")

// digits reports whether s is a number.
func digits(s []byte) bool {
	for _, c := range s {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(s) > 0
}

// brokenAnswers keeps the latest broken answers until their access-log lines
// arrive. It belongs to one goroutine.
type brokenAnswers struct {
	ring [64]struct {
		key string
		at  time.Time
	}
	next int
	n    int // entries in use
}

// brokenKept is how long the access-log line may take. It comes at once unless the
// client is slow to read the part of the answer that had arrived.
const brokenKept = time.Minute

func brokenKey(pid, conn, address []byte) string {
	return string(pid) + "#" + string(conn) + " " + string(address)
}

func (s *brokenAnswers) add(b brokenAnswer, now time.Time) {
	e := &s.ring[s.next]
	if e.key == "" {
		s.n++
	}
	e.key, e.at = brokenKey(b.pid, b.conn, b.address), now
	s.next = (s.next + 1) % len(s.ring)
}

// remove reports whether the answer on that connection broke off, and removes it.
func (s *brokenAnswers) remove(pid, conn, address []byte, now time.Time) bool {
	if s.n == 0 {
		return false
	}
	key := brokenKey(pid, conn, address)
	for i := range s.ring {
		if e := &s.ring[i]; e.key == key {
			e.key = ""
			s.n--
			return now.Sub(e.at) < brokenKept
		}
	}
	return false
}
