package kvevents

import (
	"encoding/binary"
	"errors"

	"pointsman/decider/kvcache"
	"pointsman/prompt"
)

// An image is the memory of an Index for its next life, after a restart of the agent: for
// each rank, the blocks of the snapshot that no missing batch precedes, and the number and
// hash of its last batch. The next life continues with the batches after that one, if the
// engine's replay still has it. Otherwise it starts over, as after a broken connection.
const imageVersion = 1

// Flags of a rank in an image.
const (
	imageFresh = 1 << iota
	imageComplete
	imagePartial
	imageGrouped
	imageRemovesSlow
)

// imageTiers is the shift of a block's tiers beside its state; the GPU is 0.
const imageTiers = 5

// maxRankName bounds the name of a rank in an image.
const maxRankName = 300

// errImage is the error of an image that cannot be read.
var errImage = errors.New("not an image of KV-cache blocks, or a damaged one")

// AppendImage appends an image of x to dst. It takes the lock for each rank separately.
func (x *Index) AppendImage(dst []byte) []byte {
	x.mu.Lock()
	ranks := append([]*rankIndex(nil), x.ranks...)
	dst = append(dst, imageVersion)
	dst = binary.AppendUvarint(dst, uint64(x.blockTokens))
	x.mu.Unlock()
	dst = binary.LittleEndian.AppendUint64(dst, x.meaning())
	for _, r := range ranks {
		x.mu.Lock()
		if r.name != "" && r.hasBatches() {
			dst = r.appendImage(dst)
		}
		x.mu.Unlock()
	}
	return dst
}

// meaning is equal for indexes with the same keys.
func (x *Index) meaning() uint64 {
	k := x.pool.Hashing()
	return kvcache.Key(k, prompt.Seed(k, []byte(x.pool.Name()), nil, nil), kvcache.Content(k, []uint32{1, 2, 3, 4}))
}

// appendImage appends an image of the rank: its name, its place in the sequence of
// batches, and its blocks. A block with a key needs nothing but its hash.
func (r *rankIndex) appendImage(dst []byte) []byte {
	which, a := live, &r.snapshots[live]
	if r.confirming {
		which, a = confirmed, &r.snapshots[confirmed]
	}
	dst = binary.AppendUvarint(dst, uint64(len(r.name)))
	dst = append(dst, r.name...)
	flags := byte(0)
	for flag, set := range map[byte]bool{imageFresh: a.fresh, imageComplete: a.complete, imagePartial: r.partial, imageGrouped: r.grouped, imageRemovesSlow: r.removesSlow} {
		if set {
			flags |= flag
		}
	}
	dst = append(dst, flags)
	dst = binary.AppendVarint(dst, int64(r.group))
	dst = binary.AppendUvarint(dst, a.next)
	dst = binary.LittleEndian.AppendUint64(dst, a.sum)
	size := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	r.table.each(func(s *slot) {
		if s.held[which] == 0 {
			return
		}
		dst = append(dst, s.state&(slotIdentified|slotKeyed)|byte(s.held[which]^bit(kvcache.GPU))<<imageTiers)
		dst = binary.LittleEndian.AppendUint64(dst, s.hash)
		if s.state&slotIdentified != 0 {
			dst = binary.LittleEndian.AppendUint64(dst, s.key)
		}
		if s.state&(slotIdentified|slotKeyed) == slotIdentified {
			dst = binary.LittleEndian.AppendUint64(dst, s.parent)
		}
	})
	binary.LittleEndian.PutUint32(dst[size:], uint32(len(dst)-size-4))
	return dst
}

// Image is what an earlier life of an Index knew.
type Image struct {
	BlockTokens int
	meaning     uint64
	ranks       map[string]rankImage
}

// rankImage is that of one rank.
type rankImage struct {
	flags  byte
	group  int
	next   uint64
	sum    uint64
	blocks []byte // not read yet
}

// ReadImage reads what AppendImage has made. The image refers to b.
func ReadImage(b []byte) (*Image, error) {
	d := imageReader{b: b}
	if v := d.bytes(1); v == nil || v[0] != imageVersion {
		return nil, errImage
	}
	m := &Image{BlockTokens: int(min(d.uvarint(), 1<<20)), ranks: map[string]rankImage{}}
	m.meaning = d.fixed()
	for !d.bad && len(d.b) > 0 {
		name := string(d.bytes(int(min(d.uvarint(), maxRankName+1))))
		if len(name) > maxRankName {
			return nil, errImage
		}
		var r rankImage
		if flags := d.bytes(1); flags != nil {
			r.flags = flags[0]
		}
		r.group, r.next, r.sum = int(d.varint()), d.uvarint(), d.fixed()
		if size := d.bytes(4); size != nil {
			r.blocks = d.bytes(int(binary.LittleEndian.Uint32(size)))
		}
		m.ranks[name] = r
	}
	if d.bad {
		return nil, errImage
	}
	return m, nil
}

// Restore makes x use the image of an earlier life for the ranks that are followed from now
// on. It reports whether the image can be used.
func (x *Index) Restore(m *Image) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if m.BlockTokens != x.blockTokens || m.meaning != x.meaning() {
		return false
	}
	x.restored = m.ranks
	return true
}

// load restores what an earlier life knew about the rank, if anything.
func (r *rankIndex) load() {
	x := r.index
	m, ok := x.restored[r.name]
	if !ok || r.name == "" {
		return
	}
	delete(x.restored, r.name)
	d := imageReader{b: m.blocks}
	r.table.slots = make([]slot, max(16, min(len(m.blocks)/imageBlock, maxBlocks)*3/2))
	for len(d.b) > 0 && !d.bad && r.table.used < maxBlocks {
		r.loadBlock(&d)
	}
	if d.bad {
		r.reset()
		r.table = table{}
	} else {
		r.snapshots[live] = snapshot{next: m.next, sum: m.sum, fresh: m.flags&imageFresh != 0, complete: m.flags&imageComplete != 0}
		r.removesSlow = m.flags&imageRemovesSlow != 0
		r.group, r.partial, r.grouped = m.group, m.flags&imagePartial != 0, m.flags&imageGrouped != 0
	}
	x.flush()
}

// imageBlock is the size of most blocks in an image.
const imageBlock = 17

// loadBlock reads one block.
func (r *rankIndex) loadBlock(d *imageReader) {
	state := d.bytes(1)
	hash := d.fixed()
	if d.bad || r.table.find(hash) != nil {
		d.bad = true
		return
	}
	s := r.table.findOrAdd(hash)
	held := tiers(state[0]>>imageTiers) ^ bit(kvcache.GPU)
	switch state[0] & (1<<imageTiers - 1) {
	case slotIdentified | slotKeyed:
		// The block before it is no longer known: it counts as a first one.
		s.key = d.fixed()
		s.state |= slotIdentified | slotKeyed | slotFirst
	case slotIdentified:
		s.key = d.fixed()
		s.parent = d.fixed()
		s.state |= slotIdentified
		if r.table.children == nil {
			r.table.children = map[uint64][]uint64{}
		}
		r.table.children[s.parent] = append(r.table.children[s.parent], hash)
		r.table.orphans++
	case 0:
	default:
		d.bad = true
	}
	d.bad = d.bad || held == 0
	held.each(func(t kvcache.Tier) {
		if r.table.set(s, live, t, true) {
			r.recordStored(s.key, t)
		}
	})
}

// imageReader reads an image. After a failure it returns zeros.
type imageReader struct {
	b   []byte
	bad bool
}

func (d *imageReader) bytes(n int) []byte {
	if d.bad || n < 0 || n > len(d.b) {
		d.bad = true
		return nil
	}
	part := d.b[:n]
	d.b = d.b[n:]
	return part
}

func (d *imageReader) fixed() uint64 {
	if b := d.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (d *imageReader) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if d.bytes(max(n, 0)); n <= 0 {
		d.bad = true
	}
	return v
}

func (d *imageReader) varint() int64 {
	v, n := binary.Varint(d.b)
	if d.bytes(max(n, 0)); n <= 0 {
		d.bad = true
	}
	return v
}
