package session

import (
	"math"

	"github.com/cespare/xxhash/v2"
)

// Member is one replica as a Table sees it. Weight is relative; a replica of
// weight 2 is home to twice the sessions of one of weight 1.
type Member struct {
	Name   string
	Weight int
}

// Table maps session keys to members by rendezvous hashing (Thaler and
// Ravishankar, "Using name-based mappings to increase hit rates", 1998): each
// member scores every key, the highest score is the key's home, the next ones
// are its fallbacks. When a member leaves, only its own keys move. Unequal
// weights use the logarithmic method (Schindelhauer and Schomaker, 2005).
//
// A Table is immutable and safe for concurrent use; it is rebuilt when the
// membership or a weight changes.
type Table struct {
	seeds   []uint64
	weights []float64 // nil when all are equal
}

// NewTable makes the table of members; positions in it are the positions in
// members.
func NewTable(members []Member) *Table {
	t := &Table{seeds: make([]uint64, len(members))}
	for i, m := range members {
		t.seeds[i] = xxhash.Sum64String(m.Name)
		if m.Weight != members[0].Weight {
			t.weights = make([]float64, len(members))
		}
	}
	for i := range t.weights {
		t.weights[i] = float64(members[i].Weight)
	}
	return t
}

// Len is the number of members.
func (t *Table) Len() int { return len(t.seeds) }

// Score is how much member i wants key; the highest score is the key's home.
func (t *Table) Score(key uint64, i int) float64 {
	h := mix(key ^ t.seeds[i])
	// The top 53 bits as a number in (0,1), never 0 so that its logarithm is finite.
	u := (float64(h>>11) + 0.5) / (1 << 53)
	if t.weights == nil {
		return u
	}
	return -t.weights[i] / math.Log(u)
}

// mix is the finaliser of MurmurHash3 (Appleby, public domain): every bit of
// the input changes every bit of the output with probability one half.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// MaxRanks is the most members that one Rank appends.
const MaxRanks = 8

// Rank appends to dst the members of among (positions) that come first for
// key, best first, at most n of them and at most MaxRanks. before is the
// number of members of the whole table that score higher than the first one
// appended: 0 means that the key is at home, 1 that its home was not among
// the candidates, and so on. Rank does not allocate when dst has room.
func (t *Table) Rank(key uint64, among []int, n int, dst []int) (ranked []int, before int) {
	var best [MaxRanks]float64
	start, found := len(dst), 0
	n = min(n, MaxRanks)
	if n <= 0 || len(among) == 0 {
		return dst, 0
	}
	for _, i := range among {
		s := t.Score(key, i)
		if found == n {
			if s <= best[n-1] {
				continue
			}
		} else {
			dst = append(dst, 0)
			found++
		}
		pos := found - 1
		for ; pos > 0 && s > best[pos-1]; pos-- {
			best[pos], dst[start+pos] = best[pos-1], dst[start+pos-1]
		}
		best[pos], dst[start+pos] = s, i
	}
	if len(among) == t.Len() {
		return dst, 0
	}
	for i := range t.seeds {
		if t.Score(key, i) > best[0] {
			before++
		}
	}
	return dst, before
}
