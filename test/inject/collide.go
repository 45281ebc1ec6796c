package inject

import "math/bits"

// The primes of XXH64.
const (
	prime1 = 0x9e3779b185ebca87
	prime2 = 0xc2b2ae3d27d4eb4f
)

// Colliding returns two texts of 64 bytes, in plain ASCII, that XXH64 does not tell apart
// under a good part of all seeds: a lane of it is acc = rotl(acc+x*prime2, 31) * prime1,
// so that a difference of a power of two after the first multiplication is one of a power
// of two after the rotation, unless a carry spoils it, and the next word of that lane
// takes it back.
func Colliding() (a, b string, ok bool) {
	inverse := uint64(prime2)
	for range 6 { // Newton's method
		inverse *= 2 - prime2*inverse
	}
	for j := range 64 {
		for _, sign := range []uint64{1, ^uint64(0)} {
			first := sign << j * inverse
			second := -(sign * bits.RotateLeft64(1, j+31) * prime1) * inverse
			x, ok1 := word(first)
			y, ok2 := word(second)
			if !ok1 || !ok2 {
				continue
			}
			text := []byte("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")
			put := func(x, y uint64) string {
				for i := range 8 {
					text[i], text[32+i] = byte(x>>(8*i)), byte(y>>(8*i))
				}
				return string(text)
			}
			return put(x, y), put(x+first, y+second), true
		}
	}
	return "", "", false
}

// word finds eight letters or the like that are such again when difference is added.
func word(difference uint64) (uint64, bool) {
	plain := func(c byte) bool { return c >= ' ' && c <= '~' && c != '"' && c != '\\' }
	var hopeless [9][2]bool // from byte i on, with such a carry
	var find func(i int, x, carry uint64) (uint64, bool)
	find = func(i int, x, carry uint64) (uint64, bool) {
		if i == 8 || hopeless[i][carry] {
			return x, i == 8
		}
		for c := uint64(' '); c <= '~'; c++ {
			sum := c + difference>>(8*i)&0xff + carry
			if plain(byte(c)) && plain(byte(sum)) {
				if x, ok := find(i+1, x|c<<(8*i), sum>>8); ok {
					return x, true
				}
			}
		}
		hopeless[i][carry] = true
		return 0, false
	}
	return find(0, 0, 0)
}
