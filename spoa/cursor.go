package spoa

import (
	"github.com/negasus/haproxy-spoe-go/typeddata"
	"github.com/negasus/haproxy-spoe-go/varint"
)

// cursor reads a frame from at on. It never reads beyond the end: then it sets
// short and returns zero values from there on.
type cursor struct {
	b       []byte
	at      int
	short   bool // the frame ended early
	unknown bool // a value had an unknown type
}

var zeros [4]byte

// take returns the next n bytes. After a short read it returns four zero
// bytes, enough for the one caller that reads them without asking.
func (c *cursor) take(n uint64) []byte {
	if c.short || n > uint64(len(c.b)-c.at) {
		c.short = true
		return zeros[:]
	}
	v := c.b[c.at : c.at+int(n) : c.at+int(n)]
	c.at += int(n)
	return v
}

func (c *cursor) byte() byte { return c.take(1)[0] }

func (c *cursor) uvarint() uint64 {
	if c.short {
		return 0
	}
	v, n := varint.Uvarint(c.b[c.at:])
	if n <= 0 {
		c.short = true
		return 0
	}
	c.at += n
	return v
}

// value is one typed value. Which of its fields is set depends on its kind.
type value struct {
	kind   byte   // of the types of package typeddata
	number uint64 // of integers, sign-extended; 1 for true
	bytes  []byte // of strings and binaries
	at     int    // where these are in the frame
}

// value reads one typed value.
func (c *cursor) value() (v value) {
	kind := c.byte()
	v.kind = kind & 0x0f
	switch v.kind {
	case typeddata.TypeNull:
	case typeddata.TypeBoolean:
		v.number = uint64(kind >> 4 & 1)
	case typeddata.TypeInt32, typeddata.TypeUInt32, typeddata.TypeInt64, typeddata.TypeUInt64:
		v.number = c.uvarint()
	case typeddata.TypeIPv4:
		c.take(4)
	case typeddata.TypeIPv6:
		c.take(16)
	case typeddata.TypeString, typeddata.TypeBinary:
		n := c.uvarint()
		v.at = c.at
		v.bytes = c.take(n)
	default:
		c.unknown = true
	}
	return v
}

// err is why the frame is refused, nil if nothing is wrong so far.
func (c *cursor) err() error {
	switch {
	case c.short:
		return errShort
	case c.unknown:
		return errUnknown
	}
	return nil
}
