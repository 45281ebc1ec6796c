package decider

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// naive is an image told in words: plain lists, everything recomputed.
type naive struct {
	capacity, loose int
	lru             []uint64 // evictable, the first to go first
	awaited, pinned map[uint64]int
}

func (n *naive) has(k uint64) bool {
	return n.awaited[k] > 0 || n.pinned[k] > 0 || slices.Contains(n.lru, k)
}

func (n *naive) held() int {
	keys := map[uint64]bool{}
	for _, k := range n.lru {
		keys[k] = true
	}
	for _, of := range []map[uint64]int{n.awaited, n.pinned} {
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
	for len(n.lru) > 0 && n.held()+n.loose > n.capacity {
		n.lru = n.lru[1:]
	}
}

func (n *naive) remove(k uint64) {
	if i := slices.Index(n.lru, k); i >= 0 {
		n.lru = slices.Delete(n.lru, i, i+1)
	}
}

type naiveRequest struct {
	blocks []uint64
	slot   int
	loose  int
	pinned bool
}

// Whatever requests do, images and index say what plain lists say.
func TestPrefixesAgainstANaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{1, 3, 70}).Draw(t, "replicas")
		var list []*Replica
		for range n {
			list = append(list, &Replica{})
		}
		assignSlots(list, nil)
		capacity := rapid.IntRange(1, 12).Draw(t, "capacity")
		x := &prefixes{}
		x.members(list, func(*Replica) int { return capacity })
		models := make([]*naive, n)
		for i := range models {
			models[i] = &naive{capacity: capacity, awaited: map[uint64]int{}, pinned: map[uint64]int{}}
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
				depth, best := x.match(blocks, nil)
				most := int32(0)
				for i, m := range models {
					d := int32(0)
					for int(d) < len(blocks) && m.has(blocks[d]) {
						d++
					}
					if depth[list[i].slot] != d || x.images[list[i].slot].match(blocks) != int(d) {
						t.Fatalf("replica %d has %d blocks of %v, its lists say %d", i, depth[list[i].slot], blocks, d)
					}
					most = max(most, d)
					if image := x.images[list[i].slot]; m.held() != image.held || m.running() != image.running {
						t.Fatalf("replica %d: %d blocks held and %d running, its lists say %d and %d", i, image.held, image.running, m.held(), m.running())
					}
				}
				if best != most {
					t.Fatalf("best %d, want %d", best, most)
				}
			},
			"await": func(t *rapid.T) {
				q := naiveRequest{blocks: chain.Draw(t, "blocks"), slot: slot(), loose: rapid.IntRange(0, 2).Draw(t, "loose")}
				x.images[list[q.slot].slot].await(q.blocks, 0)
				for _, k := range q.blocks {
					models[q.slot].awaited[k]++
				}
				models[q.slot].evict()
				live = append(live, q)
			},
			"touch": func(t *rapid.T) {
				// Images that are touched are never pinned; here both meet.
				blocks, s := chain.Draw(t, "blocks"), slot()
				m := models[s]
				for _, k := range blocks {
					if m.pinned[k] > 0 || m.awaited[k] > 0 {
						return
					}
				}
				x.images[list[s].slot].touch(blocks, 0)
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
				m, image := models[q.slot], x.images[list[q.slot].slot]
				switch {
				case q.pinned:
					image.unpin(q.blocks, q.loose)
					m.loose -= q.loose
					for _, k := range slices.Backward(q.blocks) {
						if m.pinned[k]--; m.pinned[k] == 0 {
							m.lru = append(m.lru, k)
						}
					}
				case rapid.Bool().Draw(t, "cancel"):
					image.forsake(q.blocks)
					for _, k := range q.blocks {
						m.awaited[k]--
					}
				default:
					image.pin(q.blocks, q.loose)
					m.loose += q.loose
					for _, k := range q.blocks {
						m.awaited[k]--
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
				x.images[list[s].slot].clear()
				models[s].lru = nil
			},
			"replace": func(t *rapid.T) {
				s := slot()
				old := slices.Clone(list)
				list[s] = &Replica{}
				assignSlots(list, old)
				x.members(list, func(*Replica) int { return capacity })
				models[s] = &naive{capacity: capacity, awaited: map[uint64]int{}, pinned: map[uint64]int{}}
				live = slices.DeleteFunc(live, func(q naiveRequest) bool { return q.slot == s })
			},
		})
		for _, m := range x.images {
			m.close()
		}
		for _, index := range x.indexes {
			for s := range index.shards {
				if used := index.shards[s].used; used != 0 {
					t.Fatalf("%d blocks are left in the index of nobody", used)
				}
			}
		}
	})
}

// fill gives each of 64 replicas n blocks, a share of which all have.
func fill(n int, shared float64) *prefixes {
	list := make([]*Replica, 64)
	for i := range list {
		list[i] = &Replica{}
	}
	assignSlots(list, nil)
	x := &prefixes{}
	x.members(list, func(*Replica) int { return n })
	chance := rand.New(rand.NewPCG(1, 2))
	blocks := make([]uint64, 100)
	for k := 0; k < n; k += len(blocks) {
		for _, m := range x.images {
			for b := range blocks {
				blocks[b] = uint64(k+b) * golden
				if float64(k) >= shared*float64(n) {
					blocks[b] = chance.Uint64()
				}
			}
			m.await(blocks, 0)
			m.pin(blocks, 0)
			m.unpin(blocks, 0)
		}
	}
	return x
}

// A block that one replica holds takes at most 100 bytes all in, at the worst
// moment: when no two replicas share any, and whatever was last grown.
func TestMirrorMemory(t *testing.T) {
	for _, n := range []int{10_000, 35_000, 60_000} {
		x := fill(n, 0)
		held := 0
		for _, m := range x.images {
			held += m.held
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

// However long it runs, a mirror holds no more than the caches do.
func TestMirrorIsBounded(t *testing.T) {
	x := fill(1000, 0)
	before := x.bytes()
	chance := rand.New(rand.NewPCG(3, 4))
	blocks := make([]uint64, 50)
	for range 20_000 {
		m := x.images[chance.IntN(len(x.images))]
		for b := range blocks {
			blocks[b] = chance.Uint64()
		}
		m.await(blocks, 0)
		m.pin(blocks, 1)
		m.unpin(blocks, 1)
	}
	if after := x.bytes(); after > before*13/10 {
		t.Errorf("grew from %d to %d bytes", before, after)
	}
	for _, m := range x.images {
		if m.held > 1000 {
			t.Errorf("an image of 1000 blocks holds %d", m.held)
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
					depth, _ = x.match(prompt, depth)
				}
			})
		}
	}
}

// bytes is the memory held.
func (x *prefixes) bytes() (n int) {
	for _, index := range x.indexes {
		for s := range index.shards {
			n += 24 * cap(index.shards[s].slots)
		}
	}
	for _, m := range x.images {
		if m != nil {
			n += 24*cap(m.entries) + 4*cap(m.table)
		}
	}
	return n
}
