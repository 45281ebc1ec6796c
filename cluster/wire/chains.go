package wire

// Chains remembers which block of a prompt follows which, so that a prompt whose beginning
// was sent before is sent as its last known block and the blocks after it. The sender and
// each receiver keep the same: both note the blocks of each event, in the same order. Its
// size is fixed, and a newer block takes the place of another.
type Chains struct{ slots []link }

type link struct{ key, before uint64 }

// chainSlots is how many blocks are remembered: 1 MiB.
const chainSlots = 1 << 16

// slot is where key is, if it is remembered.
func (c *Chains) slot(key uint64) *link {
	if c.slots == nil {
		c.slots = make([]link, chainSlots)
	}
	return &c.slots[key*0x9e3779b97f4a7c15>>48]
}

// Reset forgets all.
func (c *Chains) Reset() { clear(c.slots) }

// known is how many of the leading blocks can be sent as the last of them alone.
func (c *Chains) known(blocks []uint64) int {
	before := uint64(0)
	for n, key := range blocks {
		if *c.slot(key) != (link{key, before}) || key == 0 {
			return n
		}
		before = key
	}
	return len(blocks)
}

// note remembers blocks.
func (c *Chains) note(blocks []uint64) {
	before := uint64(0)
	for _, key := range blocks {
		*c.slot(key) = link{key, before}
		before = key
	}
}

// appendKnown appends the n blocks that end with last to dst. It reports false if
// they are not remembered.
func (c *Chains) appendKnown(dst []uint64, last uint64, n int) ([]uint64, bool) {
	from := len(dst)
	for range n {
		dst = append(dst, 0)
	}
	for i := n - 1; i >= 0; i-- {
		s := c.slot(last)
		if last == 0 || s.key != last {
			return dst[:from], false
		}
		dst[from+i], last = last, s.before
	}
	return dst, last == 0
}
