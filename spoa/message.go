package spoa

import (
	"math"
	"strconv"
	"unsafe"

	"github.com/negasus/haproxy-spoe-go/typeddata"
)

// Message is one message that HAProxy sent. It and everything its methods
// return are valid only until the Handler returns, and must not be changed:
// clone what is kept. When an argument occurs twice the first one counts.
type Message struct {
	message
	call *call
}

// Name returns the name of the spoe-message section.
func (m *Message) Name() string { return text(m.name) }

// Peer is the pid of the process that sent the message, where that is known: over a
// unix socket, in the same pid namespace. Else it is 0.
func (m *Message) Peer() int { return m.call.conn.peer }

// Bytes returns the value of a string or binary argument without copying it,
// nil if there is none or it has another type.
func (m *Message) Bytes(key string) []byte { return m.value(key).bytes }

// Join returns the values of two arguments, the second of which follows the first in
// the message, as one. It moves the second and takes the place of both: neither is
// found any more. It returns nil, and changes nothing, if there are no such two.
func (m *Message) Join(first, second string) []byte {
	args := m.call.frame.args[m.from:m.to]
	for i := range max(0, len(args)-1) {
		a, b := &args[i], &args[i+1]
		if string(a.name) != first || string(b.name) != second || len(a.value.bytes) == 0 || len(b.value.bytes) == 0 {
			continue
		}
		end := a.value.at + len(a.value.bytes) + len(b.value.bytes)
		whole := m.call.frame.bytes[a.value.at:end:end]
		copy(whole[len(a.value.bytes):], b.value.bytes)
		a.name, b.name = nil, nil
		return whole
	}
	return nil
}

// String returns the value of a string or binary argument without copying it,
// "" if there is none or it has another type.
func (m *Message) String(key string) string { return text(m.Bytes(key)) }

// Int returns the value of an integer argument of any width, or of a string
// that holds a decimal integer. ok is false for anything else and for what an
// int64 cannot hold.
func (m *Message) Int(key string) (n int64, ok bool) {
	switch v := m.value(key); v.kind {
	case typeddata.TypeInt32:
		return int64(int32(v.number)), true
	case typeddata.TypeUInt32:
		return int64(uint32(v.number)), true
	case typeddata.TypeInt64:
		return int64(v.number), true
	case typeddata.TypeUInt64:
		return int64(v.number), v.number <= math.MaxInt64
	case typeddata.TypeString, typeddata.TypeBinary:
		n, err := strconv.ParseInt(text(v.bytes), 10, 64)
		return n, err == nil
	}
	return 0, false
}

// Bool returns the value of a boolean argument. ok is false if there is none or
// it has another type.
func (m *Message) Bool(key string) (b, ok bool) {
	v := m.value(key)
	return v.number != 0 && v.kind == typeddata.TypeBoolean, v.kind == typeddata.TypeBoolean
}

// value returns the value of an argument, null if there is none.
func (m *Message) value(key string) value {
	args := m.call.frame.args[m.from:m.to]
	for i := range args {
		if string(args[i].name) == key {
			return args[i].value
		}
	}
	return value{}
}

// text is b as a string, without copying it.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
