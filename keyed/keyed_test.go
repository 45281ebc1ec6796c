package keyed

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
)

// sip32 is SipHash-1-3 of 32 bytes from 0 to 31.
const sip32 = "81157b6c16a7b60d"

// TestSipHash: chain is SipHash-1-3, whose values for 32 bytes under the keys of its
// authors' tests other implementations give too.
func TestSipHash(t *testing.T) {
	k := &Key{k0: 0x0706050403020100, k1: 0x0f0e0d0c0b0a0908}
	var b [32]byte
	for i := range b {
		b[i] = byte(i)
	}
	n := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	if got := fmt.Sprintf("%016x", k.chain(n(0), n(1), n(2), n(3))); got != sip32 {
		t.Errorf("%s, want %s", got, sip32)
	}
}

// TestPieces: a text has one hash however it is written, and another one for any change,
// another secret and another beginning.
func TestPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	k, other := New([]byte("a")), New([]byte("b"))
	seen := map[uint64]string{}
	add := func(h uint64, what string) {
		t.Helper()
		if was, ok := seen[h]; ok && was != what {
			t.Errorf("%s and %s have one hash", was, what)
		}
		seen[h] = what
	}
	text := make([]byte, 2000)
	for i := range text {
		text[i] = byte(r.Uint32())
	}
	var d Digest
	for _, n := range []int{0, 1, 7, 8, 15, 16, 17, 511, 512, 513, 1023, 1024, 1025, 2000} {
		want := k.Sum(3, text[:n])
		for range 50 {
			d.Reset(k, 3)
			for at := 0; at < n; {
				to := min(n, at+r.IntN(700))
				d.Write(text[at:to])
				at = to
			}
			if got := d.Sum64(); got != want {
				t.Fatalf("%d bytes in pieces: %x, want %x", n, got, want)
			}
		}
		add(want, fmt.Sprint(n, " bytes"))
		add(k.Sum(4, text[:n]), fmt.Sprint(n, " bytes after another hash"))
		add(other.Sum(3, text[:n]), fmt.Sprint(n, " bytes under another secret"))
		add(k.Sum(3, append(text[:n:n], 0)), fmt.Sprint(n, " bytes and a zero"))
		for range min(n, 20) {
			i, bit := r.IntN(n), byte(1)<<r.IntN(8)
			text[i] ^= bit
			add(k.Sum(3, text[:n]), fmt.Sprintf("%d bytes, byte %d changed by %d", n, i, bit))
			text[i] ^= bit
		}
	}
	if a := testing.AllocsPerRun(100, func() { d.Reset(k, 1); d.Write(text); d.Sum64() }); a != 0 {
		t.Errorf("%v allocations", a)
	}
}

func BenchmarkSum(b *testing.B) {
	k := New(nil)
	for _, n := range []int{16, 64, 2048, 32 << 10} {
		text := make([]byte, n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				k.Sum(1, text)
			}
		})
	}
}

// TestTellsFew: of many short texts under many secrets none collide: 64 bits do that by
// chance once in 10^10.
func TestTellsFew(t *testing.T) {
	for secret := range 20 {
		k := New([]byte{byte(secret)})
		seen := map[uint64]bool{}
		for i := range 20_000 {
			seen[k.Sum(0, fmt.Append(nil, i))] = true
		}
		if len(seen) != 20_000 {
			t.Errorf("secret %d: %d hashes of 20,000 texts", secret, len(seen))
		}
	}
}
