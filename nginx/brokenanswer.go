package nginx

import (
	"bytes"
	"time"
)

// brokenAnswer is an error-log line that reports an answer which a replica broke
// off in mid-stream. The access-log line of such an answer looks like any other.
// It follows this line, from the same worker and connection.
type brokenAnswer struct{ pid, conn, address []byte }

// reasons are nginx's texts for it.
var reasons = [][]byte{
	[]byte("prematurely closed connection while reading upstream"),
	[]byte(") while reading upstream"), // reset or timed out, with the system's number
}

// parseBrokenAnswer parses an error-log line: "… [error] PID#TID: *CONN message,
// client: …, request: "…", upstream: "http://ADDRESS/…", host: …". Client input
// occurs in the request, whose URI cannot contain a space, and after the upstream.
func parseBrokenAnswer(text []byte) (b brokenAnswer, ok bool) {
	_, rest, ok := bytes.Cut(text, []byte("[error] "))
	if !ok {
		return b, false
	}
	if b.pid, rest, ok = bytes.Cut(rest, []byte("#")); !ok {
		return b, false
	}
	if _, rest, ok = bytes.Cut(rest, []byte(": *")); !ok {
		return b, false
	}
	if b.conn, rest, ok = bytes.Cut(rest, []byte(" ")); !ok {
		return b, false
	}
	message, rest, ok := bytes.Cut(rest, []byte(", client: "))
	if !ok || !bytes.HasSuffix(message, reasons[0]) && !bytes.HasSuffix(message, reasons[1]) {
		return b, false
	}
	if _, rest, ok = bytes.Cut(rest, []byte(`, upstream: "http://`)); !ok {
		return b, false
	}
	end := bytes.IndexAny(rest, `/"`)
	if end < 0 {
		return b, false
	}
	b.address = rest[:end]
	return b, len(b.pid) > 0 && len(b.conn) > 0 && len(b.address) > 0
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
