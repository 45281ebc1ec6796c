package prompt

import (
	"encoding/binary"
	"math"

	"github.com/cespare/xxhash/v2"
)

// Blocks appends to dst the hash of every full block of blockBytes bytes of the
// canonical stream of the last Scan, whose data must still be unchanged. Each
// is the XXH64 of its block with the hash before it as the seed, the first with
// seed, so equal hashes mean equal prompts up to there. A blockBytes that is not
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
	b.digest.ResetWithSeed(seed)
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
		b.digest.ResetWithSeed(h)
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
func Seed(model, lora, salt []byte) uint64 {
	var h uint64
	for _, p := range [...][]byte{model, lora, salt} {
		h = chain(h, p)
	}
	return h
}

// Separate returns the seed of those prompts under seed that belong to part.
func Separate(seed, part uint64) uint64 {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], part)
	return chain(seed, n[:])
}

// chain hashes p, with its length so that no two lists of values run together.
func chain(seed uint64, p []byte) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(seed)
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(p)))
	d.Write(n[:])
	d.Write(p)
	return d.Sum64()
}
