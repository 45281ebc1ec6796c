package spoa

import "github.com/negasus/haproxy-spoe-go/typeddata"

// message is one message of a NOTIFY frame, within its buffer.
type message struct {
	name     []byte
	from, to int // its arguments are buffer.args[from:to]
}

// argument is one argument of a message.
type argument struct {
	name  []byte
	value value
}

// decodeNotify decodes the messages of a NOTIFY frame, which begin at offset at.
// The frame lies in b's memory; names and values point into it.
func (b *buffer) decodeNotify(frame []byte, at int) error {
	c := cursor{b: frame, at: at}
	for c.at < len(c.b) {
		if len(b.messages) == maxMessages {
			return refuse(codeInvalid, "more than %d messages in a frame", maxMessages)
		}
		m := message{name: c.take(c.uvarint()), from: len(b.args)}
		for n := c.byte(); n > 0; n-- {
			b.args = append(b.args, argument{c.take(c.uvarint()), c.value()})
			if c.short || c.unknown {
				break
			}
		}
		if err := c.err(); err != nil {
			return err
		}
		m.to = len(b.args)
		b.messages = append(b.messages, m)
	}
	return nil
}

var errUnknown error = &refusal{codeInvalid, "value of unknown type"}

// pairs are the values of a HELLO or DISCONNECT frame that matter here.
type pairs struct {
	maxFrame    uint64
	healthcheck bool
}

// decodePairs decodes the key-value list of a HELLO or DISCONNECT frame, which
// begins at offset at. When a key occurs twice the first one counts.
func decodePairs(b []byte, at int) (p pairs, err error) {
	c := cursor{b: b, at: at}
	seenFrame, seenCheck := false, false
	for c.at < len(b) {
		key := c.take(c.uvarint())
		v := c.value()
		if err := c.err(); err != nil {
			return p, err
		}
		want := v.kind
		switch string(key) {
		case "healthcheck":
			want = typeddata.TypeBoolean
			if !seenCheck {
				p.healthcheck, seenCheck = v.number != 0, true
			}
		case "engine-id":
			want = typeddata.TypeString
		case "max-frame-size":
			want = typeddata.TypeUInt32
			if !seenFrame {
				p.maxFrame, seenFrame = v.number, true
			}
		}
		if v.kind != want {
			return p, refuse(codeInvalid, "value of %q has the wrong type %d", key, v.kind)
		}
	}
	return p, nil
}
