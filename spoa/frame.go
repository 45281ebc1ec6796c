package spoa

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/negasus/haproxy-spoe-go/frame"
	"github.com/negasus/haproxy-spoe-go/typeddata"
	"github.com/negasus/haproxy-spoe-go/varint"
)

const (
	prefixLen   = 4    // bytes of a frame's length on the wire
	minFrame    = 7    // type, flags and two identifiers: no frame is shorter
	maxHello    = 4096 // HAProxy's HELLO has about 150 bytes
	minMaxFrame = 256  // the smallest max-frame-size the protocol allows
	maxMessages = 64   // per frame; HAProxy sends one for each message of an event
	liftMin     = 2048 // values from this many bytes on stay out of the library
)

const (
	flagFin   = 1
	flagAbort = 2
)

// Status codes of an AGENT-DISCONNECT, as HAProxy's SPOE.txt lists them.
const (
	codeNormal     = 0
	codeTimeout    = 2
	codeTooBig     = 3
	codeInvalid    = 4
	codeFragmented = 10
)

// refusal is why a connection is closed by us because of what its peer sent,
// with the status code that tells the peer.
type refusal struct {
	code uint32
	text string
}

func (r *refusal) Error() string { return r.text }

func refuse(code uint32, format string, args ...any) error {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

// errShort is kept ready because fuzzers and broken peers meet it all the time.
var errShort error = &refusal{codeInvalid, "a length in the frame points beyond its end"}

// header is what every frame begins with.
type header struct {
	kind          frame.Type
	flags         uint32
	stream, frame uint64
	size          int // bytes of the header, without the prefix
}

// readHeader reads the header of a frame given without its length prefix and
// refuses what the library or this package cannot handle.
func readHeader(b []byte) (h header, err error) {
	c := cursor{b: b}
	h.kind = frame.Type(c.byte())
	h.flags = binary.BigEndian.Uint32(c.take(4))
	h.stream = c.uvarint()
	h.frame = c.uvarint()
	h.size = c.at
	switch {
	case c.short:
		return h, errShort
	case h.kind == frame.TypeUnset || h.flags&flagFin == 0:
		return h, refuse(codeFragmented, "fragmented frame: set `no option send-frag-payload` in the spoe-agent")
	case h.kind != frame.TypeHaproxyHello && h.kind != frame.TypeHaproxyDisconnect && h.kind != frame.TypeNotify:
		return h, refuse(codeInvalid, "frame of unexpected type %d", h.kind)
	case h.flags&flagAbort != 0:
		return h, refuse(codeInvalid, "frame with the abort flag")
	}
	return h, nil
}

// lifted is a large value that the library does not see. Its place in the
// frame, type byte included, is b[start:end].
type lifted struct {
	message, arg int
	start, end   int
	value        []byte
	text         bool
}

// checkNotify walks the messages of a NOTIFY frame (header included, prefix
// not) from offset at. If the frame is in a buffer of its own, h, the values of
// at least liftMin bytes are noted there.
func checkNotify(b []byte, at int, h *held) error {
	c := cursor{b: b, at: at}
	for m := 0; c.at < len(b); m++ {
		if m == maxMessages {
			return refuse(codeInvalid, "more than %d messages in a frame", maxMessages)
		}
		c.take(c.uvarint())
		args := int(c.byte())
		for a := 0; a < args; a++ {
			c.take(c.uvarint())
			start := c.at
			kind, value := c.value()
			if c.short {
				return errShort
			}
			if h != nil && len(value) >= liftMin {
				h.values = append(h.values, lifted{m, a, start, c.at, value, kind == typeddata.TypeString})
			}
		}
		if c.short {
			return errShort
		}
		if c.unknown {
			return errUnknown
		}
	}
	return nil
}

var errUnknown error = &refusal{codeInvalid, "value of unknown type"}

// helloArgs is what must be known of a HELLO frame before it is decoded.
type helloArgs struct{ maxFrame uint64 }

// checkPairs walks the key-value list of a HELLO or DISCONNECT frame. The
// library asserts the types of three keys without looking, so they are looked
// at here.
func checkPairs(b []byte, at int) (h helloArgs, err error) {
	c := cursor{b: b, at: at}
	seen := false
	for c.at < len(b) {
		key := c.take(c.uvarint())
		start := c.at
		kind, _ := c.value()
		if c.short {
			return h, errShort
		}
		if c.unknown {
			return h, errUnknown
		}
		want := kind
		switch string(key) {
		case "healthcheck":
			want = typeddata.TypeBoolean
		case "engine-id":
			want = typeddata.TypeString
		case "max-frame-size":
			want = typeddata.TypeUInt32
			if !seen {
				h.maxFrame, _ = varint.Uvarint(b[start+1:])
				seen = true
			}
		}
		if kind != want {
			return h, refuse(codeInvalid, "value of %q has the wrong type %d", key, kind)
		}
	}
	return h, nil
}

// cursor reads a frame and remembers instead of panicking when it ends early.
// Once short is set everything it returns is zero.
type cursor struct {
	b       []byte
	at      int
	short   bool
	unknown bool
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

// value reads one typed value; v is set for strings and binaries only.
func (c *cursor) value() (kind byte, v []byte) {
	kind = c.byte() & 0x0f
	switch kind {
	case typeddata.TypeNull, typeddata.TypeBoolean:
	case typeddata.TypeInt32, typeddata.TypeUInt32, typeddata.TypeInt64, typeddata.TypeUInt64:
		c.uvarint()
	case typeddata.TypeIPv4:
		c.take(4)
	case typeddata.TypeIPv6:
		c.take(16)
	case typeddata.TypeString, typeddata.TypeBinary:
		v = c.take(c.uvarint())
	default:
		c.unknown = true
	}
	return kind, v
}

// cutOut appends frame b, whose length prefix is included, to dst with every
// lifted value replaced by a null, and sets the new length.
func cutOut(dst, b []byte, gone []lifted) []byte {
	from := 0
	for _, l := range gone {
		dst = append(dst, b[from:prefixLen+l.start]...)
		dst = append(dst, typeddata.TypeNull)
		from = prefixLen + l.end
	}
	dst = append(dst, b[from:]...)
	binary.BigEndian.PutUint32(dst, uint32(len(dst)-prefixLen))
	return dst
}

// refusalOf returns the refusal in err, nil if it holds none.
func refusalOf(err error) *refusal {
	var r *refusal
	errors.As(err, &r)
	return r
}
