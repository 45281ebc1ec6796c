package kvcache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// naive is a Cache in plain lists, everything recomputed.
type naive struct {
	capacity, unkeyed int
	lru               []uint64 // evictable, the first to go first
	reserved, pinned  map[uint64]int
}

func (n *naive) has(k uint64) bool {
	return n.reserved[k] > 0 || n.pinned[k] > 0 || slices.Contains(n.lru, k)
}

func (n *naive) held() int {
	keys := map[uint64]bool{}
	for _, k := range n.lru {
		keys[k] = true
	}
	for _, of := range []map[uint64]int{n.reserved, n.pinned} {
		for k, c := range of {
			if c > 0 {
				keys[k] = true
			}
		}
	}
	return len(keys)
}

func (n *naive) running() (c int) {
	for _, p := range n.pinned {
		if p > 0 {
			c++
		}
	}
	return c
}

func (n *naive) evict() {
	for len(n.lru) > 0 && n.held()+n.unkeyed > n.capacity {
		n.lru = n.lru[1:]
	}
}

func (n *naive) remove(k uint64) {
	if i := slices.Index(n.lru, k); i >= 0 {
		n.lru = slices.Delete(n.lru, i, i+1)
	}
}

type naiveRequest struct {
	blocks  []uint64
	slot    int
	unkeyed int
	pinned  bool
}

// Whatever requests do, caches and index agree with plain lists.
func TestModelAgainstPlainLists(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{1, 3, 70}).Draw(t, "replicas")
		capacity := rapid.IntRange(1, 12).Draw(t, "capacity")
		x := new(Model)
		models := make([]*naive, n)
		for i := range models {
			x.Add(i, capacity)
			models[i] = &naive{capacity: capacity, reserved: map[uint64]int{}, pinned: map[uint64]int{}}
		}
		var live []naiveRequest
		chain := rapid.Custom(func(t *rapid.T) []uint64 {
			var b []uint64
			k := uint64(rapid.IntRange(0, 2).Draw(t, "root"))
			for range rapid.IntRange(0, 6).Draw(t, "length") {
				b = append(b, k)
				k = k*3 + 3 + uint64(rapid.IntRange(0, 2).Draw(t, "branch"))
			}
			return b
		})
		slot := func() int { return rapid.IntRange(0, min(n, 5)-1).Draw(t, "slot") * (n - 1) / max(1, min(n, 5)-1) }
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				blocks := chain.Draw(t, "asked")
				depth, best := x.Match(blocks, nil)
				most := int32(0)
				for i, m := range models {
					d := int32(0)
					for int(d) < len(blocks) && m.has(blocks[d]) {
						d++
					}
					if depth[i] != d || x.At(i).Match(blocks) != int(d) {
						t.Fatalf("replica %d has %d blocks of %v, its lists say %d", i, depth[i], blocks, d)
					}
					most = max(most, d)
					if c := x.At(i); m.held() != c.Len() || m.running() != c.running {
						t.Fatalf("replica %d: %d blocks held and %d running, its lists say %d and %d", i, c.Len(), c.running, m.held(), m.running())
					}
				}
				if best != most {
					t.Fatalf("best %d, want %d", best, most)
				}
			},
			"reserve": func(t *rapid.T) {
				q := naiveRequest{blocks: chain.Draw(t, "blocks"), slot: slot(), unkeyed: rapid.IntRange(0, 2).Draw(t, "unkeyed")}
				x.At(q.slot).Reserve(q.blocks, 0, 0)
				for _, k := range q.blocks {
					models[q.slot].reserved[k]++
				}
				models[q.slot].evict()
				live = append(live, q)
			},
			"touch": func(t *rapid.T) {
				// Caches that are touched are never pinned; here both meet.
				blocks, s := chain.Draw(t, "blocks"), slot()
				m := models[s]
				for _, k := range blocks {
					if m.pinned[k] > 0 || m.reserved[k] > 0 {
						return
					}
				}
				x.At(s).Touch(blocks, 0)
				for _, k := range slices.Backward(blocks) {
					m.remove(k)
					m.lru = append(m.lru, k)
				}
				m.evict()
			},
			"go on": func(t *rapid.T) {
				if len(live) == 0 {
					return
				}
				i := rapid.IntRange(0, len(live)-1).Draw(t, "request")
				q := &live[i]
				m, c := models[q.slot], x.At(q.slot)
				switch {
				case q.pinned:
					c.Unpin(q.blocks, q.unkeyed)
					m.unkeyed -= q.unkeyed
					for _, k := range slices.Backward(q.blocks) {
						if m.pinned[k]--; m.pinned[k] == 0 {
							m.lru = append(m.lru, k)
						}
					}
				case rapid.Bool().Draw(t, "cancel"):
					c.Cancel(q.blocks)
					for _, k := range q.blocks {
						m.reserved[k]--
					}
				default:
					c.Pin(q.blocks, q.unkeyed)
					m.unkeyed += q.unkeyed
					for _, k := range q.blocks {
						m.reserved[k]--
						m.pinned[k]++
						m.remove(k)
					}
					m.evict()
					q.pinned = true
					return
				}
				m.evict()
				live = slices.Delete(live, i, i+1)
			},
			"restart": func(t *rapid.T) {
				s := slot()
				x.At(s).Clear()
				models[s].lru = nil
			},
			"replace": func(t *rapid.T) {
				s := slot()
				old := x.At(s)
				x.Remove(old)
				if !old.Closed() {
					t.Fatal("a removed cache is not closed")
				}
				x.Add(s, capacity)
				models[s] = &naive{capacity: capacity, reserved: map[uint64]int{}, pinned: map[uint64]int{}}
				live = slices.DeleteFunc(live, func(q naiveRequest) bool { return q.slot == s })
			},
		})
		x.Close()
		for _, index := range x.indexes {
			for s := range index.shards {
				if used := index.shards[s].used; used != 0 {
					t.Fatalf("%d blocks are left in the index of nobody", used)
				}
			}
		}
	})
}

// fill gives each of 64 replicas n blocks; all have a share of them in common.
func fill(n int, shared float64) *Model {
	x := new(Model)
	for slot := range 64 {
		x.Add(slot, n)
	}
	chance := rand.New(rand.NewPCG(1, 2))
	blocks := make([]uint64, 100)
	for k := 0; k < n; k += len(blocks) {
		for _, m := range x.caches {
			for b := range blocks {
				blocks[b] = uint64(k+b) * golden
				if float64(k) >= shared*float64(n) {
					blocks[b] = chance.Uint64()
				}
			}
			m.Reserve(blocks, 0, 0)
			m.Pin(blocks, 0)
			m.Unpin(blocks, 0)
		}
	}
	return x
}

// A block that one replica holds takes at most 100 bytes all in, at the worst
// moment: when no two replicas share any, and whatever was last grown.
func TestModelMemory(t *testing.T) {
	for _, n := range []int{10_000, 35_000, 60_000} {
		x := fill(n, 0)
		held := 0
		for _, m := range x.caches {
			held += m.Len()
		}
		if held != 64*n {
			t.Fatalf("%d blocks held, want %d", held, 64*n)
		}
		per := float64(x.bytes()) / float64(held)
		t.Logf("64 replicas of %d blocks: %.1f bytes a block", n, per)
		if per > 100 {
			t.Errorf("64 replicas of %d blocks: %.1f bytes a block, want 100 at most", n, per)
		}
	}
}

// However long it runs, the model holds no more than the caches do.
func TestModelIsBounded(t *testing.T) {
	x := fill(1000, 0)
	before := x.bytes()
	chance := rand.New(rand.NewPCG(3, 4))
	blocks := make([]uint64, 50)
	for range 20_000 {
		m := x.caches[chance.IntN(len(x.caches))]
		for b := range blocks {
			blocks[b] = chance.Uint64()
		}
		m.Reserve(blocks, 0, 0)
		m.Pin(blocks, 1)
		m.Unpin(blocks, 1)
	}
	if after := x.bytes(); after > before*13/10 {
		t.Errorf("grew from %d to %d bytes", before, after)
	}
	for _, m := range x.caches {
		if m.Len() > 1000 {
			t.Errorf("a cache of 1000 blocks holds %d", m.Len())
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{2000, 60_000} {
		x := fill(n, .05)
		for _, l := range []int{16, 64} {
			b.Run(fmt.Sprintf("blocks=%d/prompt=%d", n, l), func(b *testing.B) {
				prompt := make([]uint64, l)
				for k := range prompt {
					prompt[k] = uint64(k) * golden
				}
				var depth []int32
				b.ReportAllocs()
				for b.Loop() {
					depth, _ = x.Match(prompt, depth)
				}
			})
		}
	}
}

// bytes is the memory held.
func (m *Model) bytes() (n int) {
	for _, index := range m.indexes {
		for s := range index.shards {
			n += int(unsafe.Sizeof(indexEntry{})) * cap(index.shards[s].slots)
		}
	}
	for _, c := range m.caches {
		if c != nil {
			n += int(unsafe.Sizeof(entry{}))*cap(c.entries) + 4*cap(c.table)
		}
	}
	return n
}

// TestAge: requests for a block are as old as the first of those that follow one
// another.
func TestAge(t *testing.T) {
	m := new(Model)
	c := m.Add(0, 10)
	ask := func(now uint32) { c.Reserve([]uint64{7}, 0, now) }
	age := func(now uint32) float64 { _, a := m.Requests(7, now); return a }
	ask(1000) // computes it
	ask(5000)
	ask(9000)
	if got := age(9000); got != 4000 {
		t.Errorf("asked again for 4 s: an age of %v ms", got)
	}
	const pause = 5 * decayTime
	ask(9000 + pause)
	if got := age(9500 + pause); got != 500 {
		t.Errorf("half a second after a long pause: an age of %v ms", got)
	}
	m.RaiseRate(7, 50, 10_000+pause)
	if got := age(10_000 + pause); got != decayTime {
		t.Errorf("what others report has an age of %v ms, want %v", got, decayTime)
	}
	if rate, got := m.Requests(8, 0); rate != 0 || got != 0 {
		t.Errorf("nobody asked for 8: %v, %v ms", rate, got)
	}
}

// TestAsk: a request that waits counts once for each leading block that some replica has,
// and no more when it is sent.
func TestAsk(t *testing.T) {
	m := new(Model)
	for slot := range groupSize + 1 {
		m.Add(slot, 10)
	}
	last := m.At(groupSize) // in the second index
	m.At(0).Reserve([]uint64{1, 2}, 0, 0)
	last.Reserve([]uint64{1}, 0, 0)
	asked := m.Ask([]uint64{1, 2, 3, 4}, 0)
	if asked != 2 {
		t.Errorf("counted for %d blocks, want 2", asked)
	}
	want := func(when string, rates ...float64) {
		t.Helper()
		for k, rate := range rates {
			if got := m.RequestRate(uint64(k+1), 0); got != rate {
				t.Errorf("%s: %v requests for block %d, want %v", when, got, k+1, rate)
			}
		}
	}
	want("it waits", 1, 1, 0, 0)
	last.Reserve([]uint64{3}, 0, 0)
	m.At(0).Reserve([]uint64{1, 2, 3, 4}, asked, 0)
	want("it is sent", 1, 1, 0, 0) // 3 is in the other index only
	m.At(0).Reserve([]uint64{1, 2, 3, 4}, 0, 0)
	want("one that did not wait", 2, 2, 1, 1)
}

// TestExpect: room for blocks that are to come changes nothing but that.
func TestExpect(t *testing.T) {
	for _, n := range []int{-1, 0, 1, 7, 1000, 5000} {
		var m, other Model
		c, plain := m.Add(0, 1000), other.Add(0, 1000)
		for _, x := range []*Cache{c, plain} {
			x.Reserve([]uint64{1, 2, 3}, 0, 0)
		}
		c.Expect(n)
		var keys []uint64
		for k := range uint64(2000) {
			keys = append(keys, 2+k)
		}
		for _, x := range []*Cache{c, plain} {
			x.Restore(keys, 0)
		}
		if c.Len() != 1000 || c.Len() != plain.Len() || c.Match([]uint64{1, 2, 3}) != 3 || c.Has(keys[500]) != plain.Has(keys[500]) || !c.Has(keys[1999]) {
			t.Errorf("room for %d: %d blocks, without it %d", n, c.Len(), plain.Len())
		}
	}
}
