package spoa

import (
	"strconv"

	"github.com/negasus/haproxy-spoe-go/action"
)

// maxInt is the largest integer sent as one. The library encodes integers into
// eight bytes and panics on negative ones and on those a little above 1<<53.
const maxInt = 1 << 53

// ackOverhead bounds the bytes of an ACK without its variables: type, flags and
// two identifiers of at most ten bytes.
const ackOverhead = 1 + 4 + 10 + 10

// varOverhead bounds the bytes of a variable without its name and value: action
// type, count and scope, two lengths, type.
const varOverhead = 3 + 10 + 10 + 1

// Reply collects the variables of one answer. They are set in scope txn under
// the prefix of the spoe-agent. It must not be used after the Handler, or what was
// given to Later.Send, has returned.
//
// An ACK never exceeds the max-frame-size of its connection. A variable that does
// not fit is left out and counted in Stats.Dropped.
type Reply struct {
	actions *action.Actions
	room    int // bytes left
	dropped uint64
}

// SetString sets a variable of type string. v may be what Message.String
// returned.
func (w *Reply) SetString(name, v string) {
	if w.reserve(len(name) + len(v)) {
		w.actions.SetVar(action.ScopeTransaction, name, v)
	}
}

// SetInt sets a variable of type integer. Negative values and those above 1<<53
// travel as decimal strings, which HAProxy casts where it needs a number.
func (w *Reply) SetInt(name string, v int64) {
	if v < 0 || v > maxInt {
		w.SetString(name, strconv.FormatInt(v, 10))
		return
	}
	if w.reserve(len(name)) { // its ten bytes are in varOverhead
		w.actions.SetVar(action.ScopeTransaction, name, v)
	}
}

// SetBool sets a variable of type boolean.
func (w *Reply) SetBool(name string, v bool) {
	if w.reserve(len(name)) {
		w.actions.SetVar(action.ScopeTransaction, name, v)
	}
}

// Room is how many bytes of variables the ACK still takes.
func (w *Reply) Room() int { return w.room }

// reserve reserves room for a variable whose name and value have n bytes.
func (w *Reply) reserve(n int) bool {
	if n+varOverhead > w.room {
		w.dropped++
		return false
	}
	w.room -= n + varOverhead
	return true
}
