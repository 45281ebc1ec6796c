package haproxy

import (
	"bytes"
	"strconv"
	"time"

	"pointsman/decider"
	"pointsman/templates"
)

// line is one parsed line of the feed. Its slices point into the line.
type line struct {
	event        event
	rid          []byte
	pool         []byte  // HAProxy's backend, or its frontend if no backend was reached
	server       []byte  // nil when there was none
	status       int     // -1: none was sent; 0: not reported
	state        [2]byte // termination state: who ended it, and in which phase
	redispatched bool
	t0, tFirst   int64 // microseconds of HAProxy's clock; 0 = not known
	bytes        int   // of the answer, its headers included

	decided  []byte // the server that the agent named; nil = none
	failed   bool   // the question got no answer in time
	erred    bool   // it was asked, and HAProxy reports an error of it
	chat     bool   // its path ends as that of a completion
	frontend []byte
	post     bool
	whole    bool // the fields were not cut
}

type event uint8

const (
	closed event = iota
	connected
	first
)

var (
	marker = []byte(templates.FeedMarker + " ")
	ending = []byte(templates.FeedEnd)
	noSrv  = []byte("<NOSRV>")
)

// parse parses a feed line. Our fields are the first in it, from marker to ending;
// any text may follow, such as the user's own log format with a client's bytes. It
// reports false for a line that is not ours, or that was cut within the fields.
func parse(text []byte) (l line, ok bool) {
	text, ok = bytes.CutPrefix(text, marker)
	if !ok {
		return l, false
	}
	for {
		var field []byte
		field, text, _ = bytes.Cut(text, space)
		if bytes.Equal(bytes.TrimSpace(field), ending) {
			l.whole = true
			return l, len(l.rid) > 0
		}
		if len(text) == 0 {
			return l, false
		}
		key, value, found := bytes.Cut(field, equals)
		if !found || len(value) == 0 || value[0] == '-' && len(value) == 1 {
			continue
		}
		switch string(key) {
		case "ev":
			switch string(value) {
			case "conn":
				l.event = connected
			case "first":
				l.event = first
			}
		case "rid":
			l.rid = value
		case "pool":
			l.pool = value
		case "srv":
			if !bytes.Equal(value, noSrv) {
				l.server = value
			}
		case "st":
			if l.status = int(number(value)); l.status <= 0 {
				l.status = -1
			}
		case "ts":
			copy(l.state[:], value)
		case "rc":
			l.redispatched = value[0] == '+'
		case "B":
			l.bytes = int(number(value))
		case "err":
			l.erred = true
			// 4 and 5: the client left while the agent was asked.
			l.failed = string(value) != "4" && string(value) != "5" && string(value) != "0"
		case "dec":
			l.decided = value
		case "fe":
			l.frontend = value
		case "me":
			l.post = string(value) == "POST"
		case "pa":
			l.chat = string(value) == templates.FeedChat
		case "t0":
			l.t0 = number(value)
		case "tf":
			l.tFirst = number(value)
		}
	}
}

var space, equals = []byte{' '}, []byte{'='}

// number parses a field that should be a number. Anything else is 0.
func number(s []byte) int64 {
	if len(s) > 19 {
		return 0
	}
	n, err := strconv.ParseInt(string(s), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// ttft is the time from the request to its first byte, 0 if unknown.
func (l *line) ttft() time.Duration {
	if l.t0 <= 0 || l.tFirst <= l.t0 {
		return 0
	}
	return time.Duration(l.tFirst-l.t0) * time.Microsecond
}

// headerBytes is about the size of an answer's headers, which HAProxy counts too.
const headerBytes = 250

// outcome returns the outcome that a closing line reports. Section 8.5 of HAProxy's
// configuration manual lists the termination states.
func (l *line) outcome() decider.Outcome {
	o := decider.Outcome{
		ID: decider.ParseID(l.rid), Server: l.server, Redispatched: l.redispatched, TTFT: l.ttft(), Status: max(l.status, 0), Bytes: max(l.bytes-headerBytes, 0),
	}
	who, phase := l.state[0], l.state[1]
	switch who {
	case 'C', 'c':
		o.End = decider.ClientGone
	case 'S', 'D':
		o.End = decider.Died
		if phase == 'C' {
			o.End = decider.Refused
		}
	case 's':
		switch o.End = decider.TimedOut; phase {
		case 'C':
			o.End = decider.Refused
		case 'Q':
			o.Server = nil // it waited in the proxy's queue: no replica failed
		}
	case '-', 0:
		switch {
		case l.server == nil:
			o.End = decider.Denied
		case l.status < 0:
			o.End = decider.ClientGone // not answered, but nothing failed
		case l.status >= 500:
			o.End = decider.Failed
		default:
			o.End = decider.Served
		}
	case 'P':
		if o.End = decider.Denied; phase == 'H' && l.server != nil {
			o.End = decider.Died // the replica's answer was not HTTP
		}
	default: // L, R, I, K, U: the proxy answered or gave up by itself
		o.End = decider.Denied
	}
	return o
}
