package kvcache

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Whatever engines report, the blocks found on each tier are those of plain sets, and
// the index of a pool agrees with each replica's Cache.
func TestReportedTiersAgainstSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{1, 3, 70}).Draw(t, "replicas")
		m := new(Model)
		type sets [tiers]map[uint64]bool
		held := make([]sets, n)
		empty := func() (s sets) {
			for k := range s {
				s[k] = map[uint64]bool{}
			}
			return s
		}
		for s := range n {
			m.Add(s, 10)
			m.Reset(m.At(s), uint64(s+1))
			held[s] = empty()
		}
		var depth []int32
		var slow []Slow
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			s := rapid.IntRange(0, n-1).Draw(t, "slot")
			tier := Tier(rapid.IntRange(0, int(tiers)-1).Draw(t, "tier"))
			key := rapid.Uint64Range(1, 8).Draw(t, "key")
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				m.Reset(m.At(s), uint64(s+100))
				held[s] = empty()
			case 1, 2, 3:
				m.At(s).DropFrom(tier, key)
				delete(held[s][tier], key)
			default:
				m.At(s).StoreOn(tier, key, 0)
				held[s][tier][key] = true
			}
			prompt := []uint64{1, 2, 3, 4, 5, 6, 7, 8}[:rapid.IntRange(0, 8).Draw(t, "length")]
			depth, _, slow = m.MatchTiers(prompt, depth, slow)
			for s := range n {
				gpu := 0
				for gpu < len(prompt) && held[s][GPU][prompt[gpu]] {
					gpu++
				}
				var want Slow
				for _, key := range prompt[gpu:] {
					switch {
					case held[s][CPU][key]:
						want[0]++
						continue
					case held[s][Disk][key]:
						want[1]++
						continue
					}
					break
				}
				if own, ownSlow := m.At(s).MatchTiers(prompt); own != gpu || ownSlow != want || int(depth[s]) != gpu || slow[s] != want {
					t.Fatalf("replica %d: %d and %v, by itself %d and %v; want %d and %v", s, depth[s], slow[s], own, ownSlow, gpu, want)
				}
			}
		}
	})
}

// Blocks evicted from the GPU are kept below, as many as fit, until the engine restarts or
// the replica leaves.
func TestOffloadedPrediction(t *testing.T) {
	m := new(Model)
	c := m.Add(0, 4)
	if m.Tiered() {
		t.Fatal("tiers without any")
	}
	c.Offload(6)
	send := func(keys ...uint64) {
		c.Reserve(keys, 0, 0)
		c.Pin(keys, 0)
		c.Unpin(keys, 0)
	}
	for k := uint64(0); k < 5; k++ {
		send(10*k+1, 10*k+2, 10*k+3, 10*k+4)
	}
	for k, want := range []Slow{{}, {}, {2}, {4}, {}} {
		prompt := []uint64{uint64(10*k + 1), uint64(10*k + 2), uint64(10*k + 3), uint64(10*k + 4)}
		gpu, slow := c.MatchTiers(prompt)
		if slow != want || gpu != map[bool]int{true: 4}[k == 4] {
			t.Errorf("prompt %d: %d on the GPU, %v below, want %v", k, gpu, slow, want)
		}
	}
	c.Offload(2)
	if _, slow := c.MatchTiers([]uint64{21, 22, 23, 24}); slow != (Slow{}) {
		t.Errorf("%v in a smaller tier", slow)
	}
	c.Clear()
	if gpu, slow := c.MatchTiers([]uint64{31, 32, 33, 34}); gpu != 0 || slow != (Slow{}) {
		t.Errorf("%d and %v after a restart", gpu, slow)
	}
	send(1, 2, 3, 4)
	send(5, 6, 7, 8)
	m.Remove(c)
	c = m.Add(0, 4)
	if _, slow := c.MatchTiers([]uint64{1, 2, 3, 4}); slow != (Slow{}) {
		t.Errorf("%v of a replica that has left", slow)
	}
	if depth, _, slow := m.MatchTiers([]uint64{1, 2}, nil, nil); !slices.Equal(depth, []int32{0}) || slow[0] != (Slow{}) {
		t.Errorf("%v and %v of a replica that has left", depth, slow)
	}
}
