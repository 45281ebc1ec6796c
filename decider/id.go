package decider

import (
	"encoding/hex"

	"github.com/cespare/xxhash/v2"
)

// ID is a request's id, made by the proxy: HAProxy's uuid() and nginx's
// $request_id are 128 bits in hexadecimal; anything else is hashed.
type ID [16]byte

// ParseID reads an id as a proxy writes it. It does not allocate.
func ParseID(s []byte) (id ID) {
	n := 0
	for _, c := range s {
		if c == '-' {
			continue
		}
		v := nibble[c]
		if v > 15 || n == 32 {
			n = -1
			break
		}
		id[n/2] = id[n/2]<<4 | v
		n++
	}
	if n == 32 {
		return id
	}
	a := xxhash.Sum64(s)
	b := scramble(a ^ uint64(len(s)) ^ 0x9e3779b97f4a7c15)
	for i := range 8 {
		id[i], id[8+i] = byte(a>>(8*i)), byte(b>>(8*i))
	}
	return id
}

// String is the id in the form of a UUID.
func (id ID) String() string {
	var s [36]byte
	hex.Encode(s[0:8], id[0:4])
	hex.Encode(s[9:13], id[4:6])
	hex.Encode(s[14:18], id[6:8])
	hex.Encode(s[19:23], id[8:10])
	hex.Encode(s[24:36], id[10:16])
	s[8], s[13], s[18], s[23] = '-', '-', '-', '-'
	return string(s[:])
}

// Hash is 64 bits of the id, for choices that must be the same for the same request.
func (id ID) Hash() uint64 {
	var k uint64
	for i := range 8 {
		k = k<<8 | uint64(id[i]^id[8+i])
	}
	return scramble(k)
}

// scramble is the finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
func scramble(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

var nibble = func() (t [256]byte) {
	for i := range t {
		t[i] = 255
	}
	for i := range byte(16) {
		t["0123456789abcdef"[i]] = i
		t["0123456789ABCDEF"[i]] = i
	}
	return t
}()
