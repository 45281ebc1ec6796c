package wire

import (
	"encoding/binary"
	"math/bits"
	"time"

	"pointsman/decider"
)

// Flags beside the kind of an event, which takes the lower four bits.
const (
	flagOther = 1 << (iota + 4)
	flagByProxy
	flagAdopted
	flagStarted
	flagRedispatched = flagAdopted
)

// Flags of a request.
const (
	flagSession = 1 << iota
	flagStream
	flagLoRA
	flagBand
	flagTenant
	flagExact
	flagBlocks
	flagHeld
)

func flag(on bool, f byte) byte {
	if on {
		return f
	}
	return 0
}

// event appends e to the events of the batch.
func (x *Encoder) event(e *decider.Event) {
	kind := byte(e.Kind) | flag(e.Other, flagOther)
	switch e.Kind {
	case decider.EventPlaced, decider.EventListed:
		kind |= flag(e.Adopted, flagAdopted) | flag(e.Started, flagStarted)
	case decider.EventFirstToken:
		kind |= flag(e.ByProxy, flagByProxy)
	case decider.EventEnded:
		kind |= flag(e.Redispatched, flagRedispatched)
	}
	pool, replica := x.name(e.Pool), x.name(e.Replica)
	b := append(x.events, kind)
	b = appendUint(b, pool)
	switch e.Kind {
	case decider.EventListBegins, decider.EventListEnds:
		x.events = b
		return
	case decider.EventDigest:
		b = appendUint(b, replica)
		b = appendInt(b, e.Count)
		x.events = binary.LittleEndian.AppendUint64(b, e.Sum)
		return
	}
	b = appendUint(b, replica)
	b = append(b, e.ID[:]...)
	switch e.Kind {
	case decider.EventPlaced, decider.EventListed, decider.EventHeld:
		b = x.request(b, e)
	case decider.EventEnded:
		b = append(b, byte(e.End))
		b = appendInt(b, e.Status)
		b = appendTime(b, e.TTFT)
	}
	x.events = b
}

// request appends the request of an event.
func (x *Encoder) request(b []byte, e *decider.Event) []byte {
	r := &e.Request
	lora, band := x.name(r.LoRA), x.name(r.Band)
	b = append(b, flag(r.HasSession, flagSession)|flag(r.Stream, flagStream)|flag(lora > 0, flagLoRA)|flag(band > 0, flagBand)|
		flag(r.Tenant != 0, flagTenant)|flag(r.ExactTokens > 0, flagExact)|flag(r.KeyScheme != 0, flagBlocks)|flag(e.Waited > 0, flagHeld))
	b = appendInt(b, r.Input)
	b = appendInt(b, r.Output+1)
	b = appendInt(b, r.TextBytes)
	b = appendInt(b, r.Cached)
	if e.Kind == decider.EventListed {
		b = appendTime(b, e.Age)
		b = appendTime(b, e.Quiet)
	}
	if e.Kind == decider.EventHeld {
		b = appendTime(b, e.Age)
		b = appendTime(b, e.Left)
	}
	if r.HasSession {
		b = binary.LittleEndian.AppendUint64(b, r.Session)
	}
	if lora > 0 {
		b = appendUint(b, lora)
	}
	if band > 0 {
		b = appendUint(b, band)
	}
	if r.Tenant != 0 {
		b = binary.LittleEndian.AppendUint64(b, r.Tenant)
	}
	if r.ExactTokens > 0 {
		b = appendInt(b, r.ExactTokens)
	}
	if e.Waited > 0 {
		b = appendTime(b, e.Waited)
	}
	if r.KeyScheme == 0 {
		return b
	}
	known := x.chains.known(r.Blocks)
	b = appendUint(b, uint64(r.KeyScheme))
	b = appendUint(b, uint64(len(r.Blocks)))
	b = appendUint(b, uint64(known))
	for _, key := range r.Blocks[max(known-1, 0):] {
		b = binary.LittleEndian.AppendUint64(b, key)
	}
	x.chains.note(r.Blocks)
	return b
}

// readEvent reads an event.
func (d *Decoder) readEvent() {
	e := &d.event
	kind := d.byte()
	*e = decider.Event{Kind: decider.EventKind(kind & 15), Other: kind&flagOther != 0, Pool: d.name()}
	switch e.Kind {
	case decider.EventListBegins, decider.EventListEnds:
		return
	case decider.EventDigest:
		e.Replica, e.Count, e.Sum = d.name(), d.int(), d.fixed()
		return
	case decider.EventPlaced, decider.EventListed, decider.EventConnected, decider.EventFirstToken, decider.EventEnded, decider.EventHeld, decider.EventNotHeld:
	default:
		d.failed = true
		return
	}
	e.Replica = d.name()
	copy(e.ID[:], d.bytes(len(e.ID)))
	switch e.Kind {
	case decider.EventPlaced, decider.EventListed:
		e.Adopted, e.Started = kind&flagAdopted != 0, kind&flagStarted != 0
		d.readRequest()
	case decider.EventFirstToken:
		e.ByProxy = kind&flagByProxy != 0
	case decider.EventHeld:
		d.readRequest()
	case decider.EventEnded:
		e.Redispatched = kind&flagRedispatched != 0
		e.End, e.Status, e.TTFT = decider.End(d.byte()), d.int(), d.time()
	}
}

func (d *Decoder) readRequest() {
	e, r := &d.event, &d.event.Request
	flags := d.byte()
	has := func(f byte) bool { return flags&f != 0 }
	r.HasSession, r.Stream = has(flagSession), has(flagStream)
	r.Input, r.Output, r.TextBytes, r.Cached = d.int(), d.int()-1, d.int(), d.int()
	if e.Kind == decider.EventListed {
		e.Age, e.Quiet = d.time(), d.time()
	}
	if e.Kind == decider.EventHeld {
		e.Age, e.Left = d.time(), d.time()
	}
	if r.HasSession {
		r.Session = d.fixed()
	}
	if has(flagLoRA) {
		r.LoRA = d.name()
	}
	if has(flagBand) {
		r.Band = d.name()
	}
	if has(flagTenant) {
		r.Tenant = d.fixed()
	}
	if has(flagExact) {
		r.ExactTokens = d.int()
	}
	if has(flagHeld) {
		e.Waited = d.time()
	}
	if has(flagBlocks) {
		d.readBlocks(r)
	}
}

// readBlocks reads the blocks of a prompt.
func (d *Decoder) readBlocks(r *decider.RequestSummary) {
	scheme := d.uint()
	n := d.count(decider.MostBlocks)
	known := d.count(n)
	if scheme > 1<<31 {
		d.failed = true
	}
	if d.failed {
		return
	}
	blocks, whole := d.blocks[:0], true
	if known > 0 {
		last := d.fixed()
		if d.broken {
			whole = false
		} else if blocks, whole = d.chains.appendKnown(blocks, last, known); !whole {
			d.broken = true
		}
	}
	for range n - known {
		blocks = append(blocks, d.fixed())
	}
	d.blocks = blocks
	if !whole || d.failed {
		return // the blocks are unknown
	}
	if !d.broken {
		d.chains.note(blocks)
	}
	r.KeyScheme, r.Blocks = uint32(scheme), blocks
}

// Broken reports whether prompts cannot be read until the agent resets its Chains.
func (d *Decoder) Broken() bool { return d.broken }

// name reads the number of a name.
func (d *Decoder) name() string {
	switch i := d.uint(); {
	case i == 0:
		return ""
	case i <= uint64(len(d.names)):
		return d.names[i-1]
	}
	d.failed = true
	return ""
}

func appendUint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

// appendInt appends a number of at most 31 bits.
func appendInt(b []byte, n int) []byte { return appendUint(b, uint64(min(max(n, 0), 1<<31-1))) }

// appendTime appends a time in milliseconds, rounded up.
func appendTime(b []byte, t time.Duration) []byte {
	return appendUint(b, uint64((max(t, 0)+time.Millisecond-1)/time.Millisecond))
}

// reader reads numbers. After an error it returns zeros.
type reader struct {
	rest   []byte
	failed bool
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || n > 1 && bits.Len64(v) <= 7*(n-1) { // not the shortest form
		r.failed, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// int reads a number that fits 31 bits.
func (r *reader) int() int { return r.count(1<<31 - 1) }

// count reads a number that is at most most.
func (r *reader) count(most int) int {
	v := r.uint()
	if v > uint64(most) {
		r.failed, r.rest = true, nil
		return 0
	}
	return int(v)
}

// mostTime bounds a time.
const mostTime = 30 * 24 * time.Hour

func (r *reader) time() time.Duration {
	return time.Duration(r.count(int(mostTime/time.Millisecond))) * time.Millisecond
}

func (r *reader) bytes(n int) []byte {
	if n > len(r.rest) {
		r.failed, r.rest = true, nil
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) fixed() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}
