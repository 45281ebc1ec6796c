package prompt

import (
	"math"

	"pointsman/keyed"
)

// Blocks appends to dst the hash of every full block of blockBytes bytes of the
// canonical stream of the last Scan, whose data must still be unchanged. Each
// is the hash of its block after the hash before it, the first after seed, under
// b.Key, so equal hashes mean equal prompts up to there. A blockBytes that is not
// positive appends nothing. It does not allocate when dst has room.
func (b *Body) Blocks(dst []uint64, seed uint64, blockBytes int) []uint64 {
	return b.FirstBlocks(dst, seed, blockBytes, math.MaxInt)
}

// FirstBlocks is Blocks, up to so many blocks.
func (b *Body) FirstBlocks(dst []uint64, seed uint64, blockBytes, most int) []uint64 {
	if blockBytes <= 0 || most <= 0 {
		return dst
	}
	b.most = most
	if len(dst) < math.MaxInt-most {
		b.most += len(dst)
	}
	b.digest.Reset(b.secret(), seed)
	room := blockBytes
	for g := range b.groups {
		group := &b.groups[g]
		if group.hold > group.from {
			dst, room = b.hash(dst, room, blockBytes, b.separator(tagGroups+byte(g)))
		}
		for i := group.from; i < group.hold; i++ {
			s := &b.spans[i]
			dst, room = b.hash(dst, room, blockBytes, b.separator(s.tag))
			dst, room = b.hash(dst, room, blockBytes, b.bytes(s))
		}
		if group.cut || len(dst) >= b.most {
			break // what the stream has next is behind the cut
		}
	}
	return dst
}

func (b *Body) separator(tag byte) []byte {
	b.tag = [2]byte{0xFF, tag}
	return b.tag[:]
}

// hash adds p to the stream, of whose current block room bytes are missing.
func (b *Body) hash(dst []uint64, room, blockBytes int, p []byte) ([]uint64, int) {
	for len(p) >= room && len(dst) < b.most {
		b.digest.Write(p[:room])
		p = p[room:]
		h := b.digest.Sum64()
		dst = append(dst, h)
		b.digest.Reset(b.secret(), h)
		room = blockBytes
	}
	if len(dst) >= b.most {
		return dst, room
	}
	if len(p) > 0 {
		b.digest.Write(p)
	}
	return dst, room - len(p)
}

// Seed returns the seed of the chain of a model, an adapter and a cache salt:
// prompts share a prefix only under the same three. Nil and empty are the same.
func Seed(k *keyed.Key, model, lora, salt []byte) uint64 {
	var h uint64
	for _, p := range [...][]byte{model, lora, salt} {
		h = k.Sum(h, p)
	}
	return h
}

// Separate returns the seed of those prompts under seed that belong to part.
func Separate(k *keyed.Key, seed, part uint64) uint64 { return k.Pair(seed, part) }

// unkeyed is the key of a Body that has none.
var unkeyed = keyed.New(nil)

func (b *Body) secret() *keyed.Key {
	if b.Key == nil {
		return unkeyed
	}
	return b.Key
}
