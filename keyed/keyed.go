// Package keyed hashes what others may choose, under a secret. Without the secret nobody
// constructs two texts of one hash, whatever they choose: a hash whose secret is only its
// seed, such as XXH64's, has pairs of texts that collide under half of all seeds.
//
// Pieces of a text are compressed by NH, the universal hash of UMAC (Black, Halevi,
// Krawczyk, Krovetz and Rogaway, 1999): two different pieces are equal for one of 2^64
// secrets. SipHash-1-3 (Aumasson and Bernstein, 2012) chains the pieces.
package keyed

import (
	"crypto/sha3"
	"encoding/binary"
	"math/bits"
)

// piece is how many bytes NH compresses at once.
const piece = 512

// Key is a secret, ready for use. It is immutable.
type Key struct {
	nh     [piece / 8]uint64
	k0, k1 uint64
}

// New returns the key of a secret of any length.
func New(secret []byte) *Key {
	h := sha3.NewSHAKE256()
	_, _ = h.Write([]byte("pointsman keyed\x00")) // it never fails
	_, _ = h.Write(secret)
	next := func() uint64 {
		var b [8]byte
		_, _ = h.Read(b[:])
		return binary.LittleEndian.Uint64(b[:])
	}
	k := new(Key)
	for i := range k.nh {
		k.nh[i] = next()
	}
	k.k0, k.k1 = next(), next()
	return k
}

// Sum is the hash of p, chained to the hash before, or to a number that identifies its use.
func (k *Key) Sum(before uint64, p []byte) uint64 {
	var d Digest
	d.Reset(k, before)
	d.Write(p)
	return d.Sum64()
}

// Pair is the hash of two numbers.
func (k *Key) Pair(a, b uint64) uint64 { return k.chain(a, b, 0, 8) }

// Digest hashes what is written to it. It is meant to be reused, and not for concurrent
// use.
type Digest struct {
	key   *Key
	state uint64
	n     int
	buf   [piece]byte
}

// Reset begins a hash under k that follows the hash before.
func (d *Digest) Reset(k *Key, before uint64) { d.key, d.state, d.n = k, before, 0 }

// Write adds p.
func (d *Digest) Write(p []byte) {
	if d.n > 0 {
		n := copy(d.buf[d.n:], p)
		d.n += n
		if p = p[n:]; d.n < piece {
			return
		}
		d.state, d.n = d.key.compress(d.state, d.buf[:]), 0
	}
	for ; len(p) >= piece; p = p[piece:] {
		d.state = d.key.compress(d.state, p[:piece])
	}
	d.n = copy(d.buf[:], p)
}

// Sum64 is the hash of what was written so far.
func (d *Digest) Sum64() uint64 {
	end := (d.n + 15) &^ 15
	clear(d.buf[d.n:end])
	lo, hi := d.key.universal(d.buf[:end])
	return d.key.chain(d.state, lo, hi, uint64(d.n))
}

// compress adds a whole piece to the state.
func (k *Key) compress(state uint64, p []byte) uint64 {
	lo, hi := k.universal(p)
	return k.chain(state, lo, hi, piece)
}

// universal is NH of p, whose length is a multiple of 16 and at most that of a piece.
func (k *Key) universal(p []byte) (lo, hi uint64) {
	nh := k.nh[:]
	var c uint64
	for len(p) >= 32 && len(nh) >= 4 {
		h0, l0 := bits.Mul64(binary.LittleEndian.Uint64(p)+nh[0], binary.LittleEndian.Uint64(p[8:])+nh[1])
		h1, l1 := bits.Mul64(binary.LittleEndian.Uint64(p[16:])+nh[2], binary.LittleEndian.Uint64(p[24:])+nh[3])
		lo, c = bits.Add64(lo, l0, 0)
		hi, _ = bits.Add64(hi, h0, c)
		lo, c = bits.Add64(lo, l1, 0)
		hi, _ = bits.Add64(hi, h1, c)
		p, nh = p[32:], nh[4:]
	}
	if len(p) >= 16 && len(nh) >= 2 {
		h, l := bits.Mul64(binary.LittleEndian.Uint64(p)+nh[0], binary.LittleEndian.Uint64(p[8:])+nh[1])
		lo, c = bits.Add64(lo, l, 0)
		hi, _ = bits.Add64(hi, h, c)
	}
	return lo, hi
}

// chain is SipHash-1-3 of four numbers.
func (k *Key) chain(a, b, c, d uint64) uint64 {
	v0, v1 := k.k0^0x736f6d6570736575, k.k1^0x646f72616e646f6d
	v2, v3 := k.k0^0x6c7967656e657261, k.k1^0x7465646279746573
	for _, m := range [...]uint64{a, b, c, d, 32 << 56} {
		v3 ^= m
		v0, v1, v2, v3 = round(v0, v1, v2, v3)
		v0 ^= m
	}
	v2 ^= 0xff
	for range 3 {
		v0, v1, v2, v3 = round(v0, v1, v2, v3)
	}
	return v0 ^ v1 ^ v2 ^ v3
}

func round(v0, v1, v2, v3 uint64) (a, b, c, d uint64) {
	v0 += v1
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v3
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 += v3
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 += v1
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v2 = bits.RotateLeft64(v2, 32)
	return v0, v1, v2, v3
}
