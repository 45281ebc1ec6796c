package nginx

import (
	"bytes"
	"time"
)

// broke is an error-log line: a replica ended an answer in mid-stream. Such an
// answer has an access-log line like any other's, right after this one, of the
// same worker and connection.
type broke struct{ pid, conn, address []byte }

// reasons are how nginx puts it.
var reasons = [][]byte{
	[]byte("prematurely closed connection while reading upstream"),
	[]byte(") while reading upstream"), // reset or timed out, with the system's number
}

// parseBreak reads an error-log line: "… [error] PID#TID: *CONN message, client:
// …, request: "…", upstream: "http://ADDRESS/…", host: …". What a client wrote
// stands in the request, where no space can be within its URI, and behind the
// upstream.
func parseBreak(text []byte) (b broke, ok bool) {
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

// breaks remembers the last broken answers until their access-log lines come. It
// belongs to one goroutine.
type breaks struct {
	ring [64]struct {
		key string
		at  time.Time
	}
	next int
	n    int // that are waited for
}

// breakKept is how long the access-log line may take: it comes at once, unless
// the client is slow to take what had come of the answer.
const breakKept = time.Minute

func breakKey(pid, conn, address []byte) string {
	return string(pid) + "#" + string(conn) + " " + string(address)
}

func (s *breaks) add(b broke, now time.Time) {
	e := &s.ring[s.next]
	if e.key == "" {
		s.n++
	}
	e.key, e.at = breakKey(b.pid, b.conn, b.address), now
	s.next = (s.next + 1) % len(s.ring)
}

// take reports whether the answer on that connection broke off, and forgets it.
func (s *breaks) take(pid, conn, address []byte, now time.Time) bool {
	if s.n == 0 {
		return false
	}
	key := breakKey(pid, conn, address)
	for i := range s.ring {
		if e := &s.ring[i]; e.key == key {
			e.key = ""
			s.n--
			return now.Sub(e.at) < breakKept
		}
	}
	return false
}
