package kvevents

import (
	"maps"
	"math/rand/v2"
	"pointsman/keyed"
	"testing"

	"pointsman/decider/kvcache"
)

// A table agrees with a map under random changes, with blocks stored before their
// parents: each key is that of the whole chain.
func TestTable(t *testing.T) {
	const n = 3000
	r := rand.New(rand.NewPCG(3, 3))
	var table table
	secret := keyed.New(nil)
	reported := map[uint64]bool{}
	held, named := map[uint64]bool{}, map[uint64]bool{}
	key := func(h uint64) uint64 { // each third block is the first of a prompt
		k := h - h%3
		for b := k + 1; b <= h; b++ {
			k = kvcache.Key(secret, k, b)
		}
		return k
	}
	placed := func(h uint64) bool {
		for ; h%3 > 0; h-- {
			if !named[h] {
				return false
			}
		}
		return named[h]
	}
	for step := range 200_000 {
		h := r.Uint64N(n)
		s := table.findOrAdd(h)
		if r.IntN(2) == 0 && !named[h] {
			named[h] = true
			if h%3 == 0 {
				s.key = h
				s.state |= slotIdentified | slotFirst | slotKeyed
			} else {
				table.setContent(secret, s, h-1, h)
			}
			if s.state&slotKeyed != 0 {
				if s.held[live] != 0 {
					reported[s.key] = true
				}
				table.keyChildren(secret, s, func(c *slot) { reported[c.key] = true })
			}
		}
		held[h] = r.IntN(2) == 0
		if table.set(table.find(h), live, kvcache.GPU, held[h]) {
			if held[h] {
				reported[table.find(h).key] = true
			} else {
				delete(reported, table.find(h).key)
			}
		}
		if step%10_000 > 0 {
			continue
		}
		known, want := 0, map[uint64]bool{}
		for h, is := range held {
			if is {
				known++
				if placed(h) {
					want[key(h)] = true
				}
			}
		}
		if table.liveBlocks != known || !maps.Equal(reported, want) {
			t.Fatalf("step %d: %d blocks, want %d; %d keys reported, want %d", step, table.liveBlocks, known, len(reported), len(want))
		}
	}
}

// Idle blocks are remembered up to a bound, others always.
func TestTableEvictsIdleBlocks(t *testing.T) {
	for _, unsure := range []bool{false, true} {
		var table table
		for h := range uint64(10 * minIdle) {
			s := table.findOrAdd(h)
			if h%10 == 0 {
				table.set(s, int(h/10)%2, kvcache.GPU, true)
			}
			if s = table.find(h); h%10 != 1 {
				table.setContent(keyed.New(nil), s, h+1_000_000, h) // its parent never gets a key
			}
			table.evictIdle(unsure)
		}
		if table.idle > minIdle || table.used > 2*minIdle+1 || table.orphans > table.used || len(table.children) != table.orphans {
			t.Errorf("%d idle of %d, %d orphans, %d parents", table.idle, table.used, table.orphans, len(table.children))
		}
		for h := uint64(0); h < 10*minIdle; h += 10 {
			if s := table.find(h); s == nil || !s.inUse() || s.key != h {
				t.Fatalf("block %d is lost: %+v", h, s)
			}
		}
	}
}
