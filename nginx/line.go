package nginx

import (
	"bytes"
	"strconv"

	"pointsman/decider"
	"pointsman/templates"
)

// line is one parsed access-log line of the feed. Its slices point into the line.
// Lists have an element for each try, separated by ", " within an upstream and by
// " : " between redirects.
type line struct {
	id, server       []byte // of the request; the upstream of the last decision
	addresses        []byte // list
	statuses         []byte // list
	headers          []byte // list of seconds until the replica's headers, "-" = none arrived
	connects         []byte // list of seconds until the connection, "-" = none was made
	length, declared []byte // of the body: received, a list; announced by its headers
	status           int
	done             bool // the answer was sent whole, as far as nginx knows
	pid, conn        []byte
}

// The tags of nginx's lines. Lines of the error log contain bytes of clients, so they have
// their own tag.
var (
	accessTag = []byte(templates.NginxTag)
	errorTag  = []byte(templates.NginxErrorTag)
)

// untag splits a datagram of nginx's syslog: "<PRI>Mmm dd hh:mm:ss tag: text". It
// reports false for anything else.
func untag(datagram []byte) (tag, text []byte, ok bool) {
	end := bytes.IndexByte(datagram, '>')
	if end < 2 || end > 4 || datagram[0] != '<' {
		return nil, nil, false
	}
	rest := datagram[end+1:]
	if len(rest) <= timestamp || rest[timestamp] != ' ' {
		return nil, nil, false
	}
	tag, text, ok = bytes.Cut(rest[timestamp+1:], afterTag)
	return tag, text, ok && bytes.IndexByte(tag, ' ') < 0
}

// timestamp is the length of "Nov 20 16:48:19".
const timestamp = 15

var afterTag = []byte(": ")

// parse parses an access line of the feed, whose tag was taken off: a flat JSON
// object of strings, and nothing else. None of its values comes from a client. It
// reports false for a line that is not ours.
func parse(text []byte) (l line, ok bool) {
	if len(text) == 0 || text[0] != '{' {
		return l, false
	}
	text = text[1:]
	for {
		key, rest, ok := quoted(text)
		if !ok || len(rest) == 0 || rest[0] != ':' {
			return l, false
		}
		value, rest, ok := quoted(rest[1:])
		if !ok || len(rest) == 0 {
			return l, false
		}
		l.set(key, value)
		switch rest[0] {
		case ',':
			text = rest[1:]
		case '}':
			return l, len(l.id) > 0 && len(bytes.TrimSpace(rest[1:])) == 0
		default:
			return l, false
		}
	}
}

// quoted splits a JSON string off s. It keeps escapes as they are: our values have
// none.
func quoted(s []byte) (value, rest []byte, ok bool) {
	if len(s) == 0 || s[0] != '"' {
		return nil, nil, false
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return s[1:i], s[i+1:], true
		}
	}
	return nil, nil, false
}

func (l *line) set(key, value []byte) {
	switch string(key) {
	case "id":
		l.id = value
	case "srv":
		l.server = value
	case "addr":
		l.addresses = value
	case "ust":
		l.statuses = value
	case "hdr":
		l.headers = value
	case "uconn":
		l.connects = value
	case "ulen":
		l.length = value
	case "clen":
		l.declared = value
	case "status":
		l.status, _ = strconv.Atoi(string(value))
	case "done":
		l.done = len(value) > 0
	case "pid":
		l.pid = value
	case "conn":
		l.conn = value
	}
}

// lastTry splits the last element off a list. In a list that ends with a colon it
// is empty: nginx did not get as far as a try.
func lastTry(list []byte) (before, last []byte) {
	if bytes.HasSuffix(list, colon) {
		return bytes.TrimRight(list, " ,:"), nil
	}
	at := bytes.LastIndexByte(list, ' ')
	if at < 0 {
		return nil, list
	}
	return bytes.TrimRight(list[:at], " ,:"), list[at+1:]
}

var colon = []byte{':'}

// drop removes the last try from all lists.
func (l *line) drop() {
	for _, list := range []*[]byte{&l.addresses, &l.statuses, &l.headers, &l.connects, &l.length} {
		*list, _ = lastTry(*list)
	}
}

// lastStatus is the status of the last try, 0 if there was none.
func (l *line) lastStatus() int {
	_, status := lastTry(l.statuses)
	n, _ := strconv.Atoi(string(status))
	return n
}

// lastLength is how many bytes of its body the last try has sent, 0 if that is not
// known.
func (l *line) lastLength() int {
	_, length := lastTry(l.length)
	n, _ := strconv.Atoi(string(length))
	return max(n, 0)
}

// end returns how the last try ended, which must be one to a replica.
func (l *line) end() decider.End {
	_, status := lastTry(l.statuses)
	_, headers := lastTry(l.headers)
	_, connect := lastTry(l.connects)
	answered := len(headers) > 0 && !bytes.Equal(headers, none)
	switch {
	case answered && len(status) == 3 && status[0] == '5':
		return decider.Failed
	case answered && l.short():
		return decider.Died
	case answered && l.done:
		return decider.Served
	case answered, l.status == 499:
		return decider.ClientGone
	case len(connect) == 0 || bytes.Equal(connect, none):
		return decider.Refused
	case string(status) == "504":
		return decider.TimedOut
	}
	return decider.Died
}

// short reports whether less of the answer arrived than its headers announced,
// although the client stayed.
func (l *line) short() bool {
	if !l.done || len(l.declared) == 0 {
		return false
	}
	_, came := lastTry(l.length)
	n, err := strconv.Atoi(string(came))
	want, err2 := strconv.Atoi(string(l.declared))
	return err == nil && err2 == nil && n < want
}
