package spoa

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/negasus/haproxy-spoe-go/frame"
)

const (
	prefixLen   = 4    // bytes of a frame's length on the wire
	minFrame    = 7    // type, flags and two identifiers: no frame is shorter
	maxHello    = 4096 // HAProxy's HELLO has about 150 bytes
	minMaxFrame = 256  // the smallest max-frame-size the protocol allows
	maxMessages = 64   // per frame; HAProxy sends one for each message of an event
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

// refusal is why we close a connection because of what its peer sent, with the
// status code for the peer.
type refusal struct {
	code uint32
	text string
}

func (r *refusal) Error() string { return r.text }

func refuse(code uint32, format string, args ...any) error {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

// errShort is allocated once because broken peers cause it often.
var errShort error = &refusal{codeInvalid, "a length in the frame points beyond its end"}

// header is the beginning of every frame.
type header struct {
	kind          frame.Type
	flags         uint32
	stream, frame uint64
	size          int // bytes of the header, without the prefix
}

// readHeader reads the header of a frame given without its length prefix and
// refuses frames that this package does not handle.
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

// refusalOf returns the refusal in err, nil if it holds none.
func refusalOf(err error) *refusal {
	var r *refusal
	errors.As(err, &r)
	return r
}
