package decider

import (
	"encoding/binary"
	"math"
	"time"
)

// encoder appends the parts of a snapshot to b.
type encoder struct{ b []byte }

func (e *encoder) count(n int)        { e.b = binary.AppendUvarint(e.b, uint64(max(n, 0))) }
func (e *encoder) signed(n int)       { e.b = binary.AppendVarint(e.b, int64(n)) }
func (e *encoder) fixed(n uint64)     { e.b = binary.LittleEndian.AppendUint64(e.b, n) }
func (e *encoder) number(x float64)   { e.fixed(math.Float64bits(x)) }
func (e *encoder) flags(bits ...bool) { e.b = append(e.b, packed(bits)) }

func (e *encoder) text(s string) {
	e.count(len(s))
	e.b = append(e.b, s...)
}

// name writes a name, cut at the longest that readers accept.
func (e *encoder) name(s string) { e.text(s[:min(len(s), longestName)]) }

// age writes how long ago something was, in milliseconds.
func (e *encoder) age(d time.Duration) { e.count(int(d / time.Millisecond)) }

func packed(bits []bool) (x byte) {
	for i, b := range bits {
		if b {
			x |= 1 << i
		}
	}
	return x
}

// decoder reads what an encoder has written, or hostile bytes. A value out of bounds makes
// it bad: from then on it returns zeros.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) fail() {
	d.b, d.bad = nil, true
}

// count is a number up to most.
func (d *decoder) count(most int) int {
	x, n := binary.Uvarint(d.b)
	if n <= 0 || x > uint64(most) {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return int(x)
}

// signed is a number from -most to most.
func (d *decoder) signed(most int) int {
	x, n := binary.Varint(d.b)
	if n <= 0 || x > int64(most) || x < -int64(most) {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return int(x)
}

func (d *decoder) fixed() uint64 {
	if len(d.b) < 8 {
		d.fail()
		return 0
	}
	x := binary.LittleEndian.Uint64(d.b)
	d.b = d.b[8:]
	return x
}

// number is a number from 0 to most.
func (d *decoder) number(most float64) float64 {
	x := math.Float64frombits(d.fixed())
	if !(x >= 0 && x <= most) {
		d.fail()
		return 0
	}
	return x
}

func (d *decoder) bytes(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.fail()
		return nil
	}
	x := d.b[:n]
	d.b = d.b[n:]
	return x
}

// text is a string of at most most bytes.
func (d *decoder) text(most int) string { return string(d.bytes(d.count(most))) }

// age is at most a day: what is older is as good as unknown.
func (d *decoder) age() time.Duration {
	return time.Duration(min(d.count(math.MaxInt64), int(24*time.Hour/time.Millisecond))) * time.Millisecond
}

func (d *decoder) flags(n int) (bits [8]bool) {
	x := d.bytes(1)
	if len(x) == 0 || x[0]>>n != 0 {
		d.fail()
		return bits
	}
	for i := range bits {
		bits[i] = x[0]>>i&1 != 0
	}
	return bits
}

// rateByte is a block request rate on a logarithmic scale, to within 3 %.
func rateByte(rate float32) byte {
	return byte(min(255, math.Round(16*math.Log2(1+float64(rate)))))
}

func rateOf(b byte) float32 { return float32(math.Exp2(float64(b)/16) - 1) }
