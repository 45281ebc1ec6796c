package kvcache

import (
	"encoding/binary"
	"math/bits"

	"pointsman/keyed"
)

// AppendKeys appends to dst the keys of the full blocks of tokens under k. Each
// is a hash of its tokens and of the key before it (seed for the first), so that
// equal keys mean equal prompts up to there.
func AppendKeys(dst []uint64, k *keyed.Key, seed uint64, tokens []uint32, blockTokens int) []uint64 {
	for ; blockTokens > 0 && len(tokens) >= blockTokens; tokens = tokens[blockTokens:] {
		seed = Key(k, seed, Content(k, tokens[:blockTokens]))
		dst = append(dst, seed)
	}
	return dst
}

// Content is a hash of the tokens of one block, without what precedes it.
func Content(k *keyed.Key, tokens []uint32) uint64 {
	var d keyed.Digest
	d.Reset(k, 0)
	var buf [256]byte
	for len(tokens) > 0 {
		n := min(len(tokens), len(buf)/4)
		for i, t := range tokens[:n] {
			binary.LittleEndian.PutUint32(buf[4*i:], t)
		}
		d.Write(buf[:4*n])
		tokens = tokens[n:]
	}
	return d.Sum64()
}

// Mix adds to the content of a block whatever else distinguishes it besides its tokens,
// such as an image.
func Mix(k *keyed.Key, content uint64, other []byte) uint64 {
	return bits.RotateLeft64(content, 1) ^ k.Sum(1, other)
}

// Key is the key of a block of that content that follows the block with the key
// before.
func Key(k *keyed.Key, before, content uint64) uint64 { return k.Pair(before, content) }
