package spoa

import (
	"math"
	"strconv"
	"unsafe"

	"github.com/negasus/haproxy-spoe-go/message"
)

// Message is one message that HAProxy sent. It and everything its methods
// return are valid only until the Handler returns, and must not be changed:
// clone what is kept. When an argument occurs twice the first one counts.
type Message struct {
	msg   *message.Message
	index int // within its frame
	call  *call
}

// Name returns the name of the spoe-message section.
func (m *Message) Name() string { return m.msg.Name }

// Bytes returns the value of a string or binary argument without copying it,
// nil if there is none or it has another type.
func (m *Message) Bytes(key string) []byte {
	switch v := m.value(key).(type) {
	case []byte:
		return v
	case string:
		return unsafe.Slice(unsafe.StringData(v), len(v))
	case *lifted:
		return v.value
	}
	return nil
}

// String returns the value of a string or binary argument without copying it,
// "" if there is none or it has another type.
func (m *Message) String(key string) string {
	b := m.Bytes(key)
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// Int returns the value of an integer argument of any width, or of a string
// that holds a decimal integer. ok is false for anything else and for what an
// int64 cannot hold.
func (m *Message) Int(key string) (v int64, ok bool) {
	switch v := m.value(key).(type) {
	case int64:
		return v, true
	case int32:
		return int64(v), true
	case uint32:
		return int64(v), true
	case uint64:
		return int64(v), v <= math.MaxInt64
	case string, []byte, *lifted:
		n, err := strconv.ParseInt(m.String(key), 10, 64)
		return n, err == nil
	}
	return 0, false
}

// Bool returns the value of a boolean argument. ok is false if there is none or
// it has another type.
func (m *Message) Bool(key string) (v, ok bool) {
	v, ok = m.value(key).(bool)
	return v, ok
}

func (m *Message) value(key string) any {
	for i, item := range m.msg.KV.Data() {
		if item.Name != key {
			continue
		}
		if item.Value == nil {
			if l := m.call.held.find(m.index, i); l != nil {
				return l
			}
		}
		return item.Value
	}
	return nil
}
