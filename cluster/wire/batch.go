package wire

import (
	"time"

	"pointsman/decider"
)

// Batch is a number of events of an agent, in order.
type Batch struct {
	Number     uint64        // counts the agent's batches in this epoch, from 1
	Generation uint64        // counts how often the agent has reset its Chains
	Stamp      time.Duration // when it was made, by a clock of the sender's
}

// mostEvents bounds the events of a batch.
const mostEvents = 1 << 16

// Encoder makes the bodies of batches.
type Encoder struct {
	chains     Chains
	generation uint64
	names      map[string]int
	table      []byte
	events     []byte
	n          int
}

// Forget makes the next batches readable without earlier ones.
func (x *Encoder) Forget() {
	x.chains.Reset()
	x.generation++
}

// Add adds an event to the batch. It reports false if the batch is full: the caller must
// call Append first.
func (x *Encoder) Add(e *decider.Event) bool {
	if x.n == mostEvents || x.n > 0 && len(x.events)+len(x.table)+8*len(e.Request.Blocks) > MostMessage/2 {
		return false
	}
	if x.names == nil {
		x.names = map[string]int{}
	}
	x.n++
	x.event(e)
	return true
}

// Append appends the body of the batch of the events added since the last call.
func (x *Encoder) Append(dst []byte, number uint64, stamp time.Duration) []byte {
	dst = appendUint(dst, number)
	dst = appendUint(dst, x.generation)
	dst = appendUint(dst, uint64(max(stamp, 0)/time.Microsecond))
	dst = appendUint(dst, uint64(len(x.names)))
	dst = append(dst, x.table...)
	dst = append(dst, x.events...)
	clear(x.names)
	x.table, x.events, x.n = x.table[:0], x.events[:0], 0
	return dst
}

// name returns the number of a name in this batch; "" is 0.
func (x *Encoder) name(s string) uint64 {
	if s == "" {
		return 0
	}
	i, ok := x.names[s]
	if !ok {
		i = len(x.names) + 1
		x.names[s] = i
		cut := s[:min(len(s), mostName)]
		x.table = append(appendUint(x.table, uint64(len(cut))), cut...)
	}
	return uint64(i)
}

// Decoder reads the bodies of the batches of one agent.
type Decoder struct {
	reader
	chains     Chains
	generation uint64
	broken     bool // it lacks blocks that the sender assumes it has
	names      []string
	interned   map[string]string
	event      decider.Event
	blocks     []uint64
}

// Missed notes that a batch was missed. Until the agent resets its Chains, prompts whose
// beginnings were sent before cannot be read.
func (d *Decoder) Missed() { d.broken = true }

// Begin reads the beginning of a batch.
func (d *Decoder) Begin(body []byte) (b Batch, err error) {
	d.reader = reader{rest: body}
	b.Number, b.Generation = d.uint(), d.uint()
	b.Stamp = time.Duration(min(d.uint(), uint64(maxStamp))) * time.Microsecond
	d.names = d.names[:0]
	for range d.count(len(d.rest)) {
		d.names = append(d.names, d.intern(d.bytes(d.count(mostName))))
	}
	if d.failed {
		return Batch{}, ErrMalformed
	}
	return b, nil
}

// maxStamp is about 290 years, in microseconds.
const maxStamp = int64(1<<63-1) / int64(time.Microsecond)

// Follow prepares for the events of a batch that is to be applied.
func (d *Decoder) Follow(b Batch) {
	if b.Generation != d.generation {
		d.chains.Reset()
		d.generation, d.broken = b.Generation, false
	}
}

// Next returns the next event of the batch, valid until the next call; nil after
// the last one.
func (d *Decoder) Next() (*decider.Event, error) {
	if len(d.rest) == 0 {
		return nil, nil
	}
	d.readEvent()
	if d.failed {
		return nil, ErrMalformed
	}
	return &d.event, nil
}

// intern returns b as a string, without a new one for each batch.
func (d *Decoder) intern(b []byte) string {
	if s, ok := d.interned[string(b)]; ok {
		return s
	}
	if d.interned == nil || len(d.interned) >= mostInterned {
		d.interned = map[string]string{}
	}
	s := string(b)
	d.interned[s] = s
	return s
}

// mostInterned bounds the names that are remembered of an agent.
const mostInterned = 4096
