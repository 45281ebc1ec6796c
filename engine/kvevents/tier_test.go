package kvevents

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pointsman/decider/kvcache"
	"pointsman/prompt"
	"pointsman/sim/fakevllm"
)

// The words of engines and connectors for where a block is.
func TestTiersByMedium(t *testing.T) {
	for medium, want := range map[string]kvcache.Tier{
		"": kvcache.GPU, "GPU": kvcache.GPU, "gpu": kvcache.GPU, "DEVICE": kvcache.GPU, "GPU:0": kvcache.GPU,
		"CPU": kvcache.CPU, "cpu": kvcache.CPU, "CPU_PINNED": kvcache.CPU, "CPU_TIER1": kvcache.CPU, "LocalCPUBackend": kvcache.CPU,
		"STORAGE": kvcache.Disk, "DISK": kvcache.Disk, "CPU_TIER2": kvcache.Disk, "NVME": kvcache.Disk, "EXTERNAL": kvcache.Disk,
	} {
		if got, ok := (&event{medium: []byte(medium)}).tier(); !ok || got != want {
			t.Errorf("%q is %v, %v; want %v", medium, got, ok, want)
		}
	}
	if got, ok := (&event{medium: []byte("CPU"), remote: true}).tier(); !ok || got != kvcache.Disk {
		t.Errorf("the memory of another host is %v, %v", got, ok)
	}
	for _, medium := range []string{"TAPE", "CPUX", "a medium whose name is longer than any that engines use"} {
		if got, ok := (&event{medium: []byte(medium)}).tier(); ok {
			t.Errorf("%q is %v", medium, got)
		}
	}
}

// tierRig is one rank whose events a test writes.
type tierRig struct {
	t      *testing.T
	rank   *rankIndex
	index  *Index
	number uint64
	form   fakevllm.KVEventsOptions
	keys   []uint64 // of the blocks of tokens
	tokens []uint32
}

func newTierRig(t *testing.T, form fakevllm.KVEventsOptions, blocks int) *tierRig {
	pool := newRig(t, rand.New(rand.NewPCG(2, 2))).pool
	x := &Index{pool: pool, replica: "r0", blockTokens: testBlock}
	r := &tierRig{t: t, rank: x.newRank("events"), index: x, form: form}
	for i := range blocks * testBlock {
		r.tokens = append(r.tokens, uint32(i+1))
	}
	r.keys = kvcache.AppendKeys(nil, pool.Hashing(), prompt.Seed(pool.Hashing(), []byte(pool.Name()), nil, nil), r.tokens, testBlock)
	return r
}

// apply applies a batch of events.
func (r *tierRig) apply(f func(e *fakevllm.KVEvents)) {
	r.t.Helper()
	e := fakevllm.NewKVEvents(r.form)
	f(e)
	_, p, ok := e.Batch(0)
	if !ok {
		return
	}
	if err := r.rank.applyLive(r.number, p); err != nil {
		r.t.Fatal(err)
	}
	r.number++
}

// store stores block i on a medium, described.
func (r *tierRig) store(e *fakevllm.KVEvents, medium string, i int) {
	size := r.form.BlockSize
	e.StoredOn(medium, uint64(i+1), uint64(i), i == 0, r.tokens[i*size:(i+1)*size], "", "")
}

// on lists which of the blocks are on a tier.
func (r *tierRig) on(tier kvcache.Tier) (list []int) {
	r.rank.table.keys(func(key uint64, t kvcache.Tier) {
		if t == tier {
			list = append(list, slices.Index(r.keys, key))
		}
	})
	slices.Sort(list)
	return list
}

func (r *tierRig) want(what string, gpu, cpu, disk []int) {
	r.t.Helper()
	for tier, want := range [][]int{gpu, cpu, disk} {
		if got := r.on(kvcache.Tier(tier)); !slices.Equal(got, want) {
			r.t.Errorf("%s: %v on %v, want %v", what, got, kvcache.Tier(tier), want)
		}
	}
	if st := r.index.Status(); st.Blocks != len(gpu) || st.Offloaded != len(cpu)+len(disk) || st.Strange != 0 {
		r.t.Errorf("%s: %+v", what, st)
	}
}

// A block is on each tier by itself, described there or not, and cleared from all.
func TestBlocksOnTiers(t *testing.T) {
	for _, maps := range []bool{false, true} {
		r := newTierRig(t, fakevllm.KVEventsOptions{BlockSize: testBlock, Maps: maps, ByteHashes: true}, 4)
		r.apply(func(e *fakevllm.KVEvents) {
			for i := range 3 {
				r.store(e, fakevllm.MediumGPU, i)
			}
		})
		r.want("stored", []int{0, 1, 2}, nil, nil)
		r.apply(func(e *fakevllm.KVEvents) {
			e.Copied(fakevllm.MediumCPU, 1)
			e.Copied(fakevllm.MediumCPU, 2)
			e.Copied(fakevllm.MediumCPU, 2)
			e.Copied(fakevllm.MediumStorage, 2)
		})
		r.want("copied", []int{0, 1, 2}, []int{0, 1}, []int{1})
		r.apply(func(e *fakevllm.KVEvents) {
			e.Removed(1)
			e.Removed(2)
			e.RemovedFrom(fakevllm.MediumStorage, 2)
			e.RemovedFrom(fakevllm.MediumStorage, 3)
		})
		r.want("removed", []int{2}, []int{0, 1}, nil)
		r.apply(func(e *fakevllm.KVEvents) {
			r.store(e, fakevllm.MediumCPU, 3) // of which nothing was known
			e.RemovedFrom(fakevllm.MediumCPU, 1)
		})
		r.want("described", []int{2}, []int{1, 3}, nil)
		r.apply(func(e *fakevllm.KVEvents) { e.Copied("TAPE", 1) })
		r.want("on an unknown medium", []int{2}, []int{1, 3}, nil)
		next := &tierRig{t: t, index: &Index{pool: r.index.pool, replica: "r0", blockTokens: testBlock}, keys: r.keys}
		image, err := ReadImage(r.index.AppendImage(nil))
		if err != nil || !next.index.Restore(image) {
			t.Fatalf("the image of it: %v", err)
		}
		next.rank = next.index.newRank("events")
		next.want("after a restart", []int{2}, []int{1, 3}, nil)
		r.apply(func(e *fakevllm.KVEvents) { e.Cleared() })
		r.want("cleared", nil, nil, nil)
	}
}

// A copy whose block is described later counts from then on.
func TestCopiesBeforeTheyAreDescribed(t *testing.T) {
	r := newTierRig(t, fakevllm.KVEventsOptions{BlockSize: testBlock}, 2)
	r.apply(func(e *fakevllm.KVEvents) {
		e.Copied(fakevllm.MediumCPU, 1)
		e.Copied(fakevllm.MediumCPU, 2)
	})
	if got := r.on(kvcache.CPU); len(got) > 0 {
		t.Errorf("keys of unknown blocks: %v", got)
	}
	r.apply(func(e *fakevllm.KVEvents) {
		r.store(e, fakevllm.MediumGPU, 0)
		r.store(e, fakevllm.MediumGPU, 1)
	})
	r.want("described", []int{0, 1}, []int{0, 1}, nil)
}

// Chunks of several blocks, as LMCache stores them, are the blocks in them, and do not
// change the size that is compared.
func TestChunksOnSlowerTiers(t *testing.T) {
	r := newTierRig(t, fakevllm.KVEventsOptions{BlockSize: 3 * testBlock}, 6)
	r.apply(func(e *fakevllm.KVEvents) {
		r.store(e, "cpu", 0)
		r.store(e, "cpu", 1)
	})
	r.want("chunks", nil, []int{0, 1, 2, 3, 4, 5}, nil)
	r.apply(func(e *fakevllm.KVEvents) { e.RemovedFrom("cpu", 2) })
	r.want("removed", nil, []int{0, 1, 2}, nil)
	if r.index.BlockTokens() != testBlock {
		t.Errorf("blocks of %d tokens", r.index.BlockTokens())
	}
}

// The index of slower tiers is bounded, more so where no removal is reported, and what is
// on the GPU stays.
func TestSlowerTiersAreBounded(t *testing.T) {
	defer func(a, b int) { maxSlow, maxUnknown = a, b }(maxSlow, maxUnknown)
	maxSlow, maxUnknown = 800, 400
	r := newTierRig(t, fakevllm.KVEventsOptions{BlockSize: testBlock}, 1)
	r.apply(func(e *fakevllm.KVEvents) { r.store(e, fakevllm.MediumGPU, 0) })
	fill := func(from int) {
		for n := range 60 {
			r.apply(func(e *fakevllm.KVEvents) {
				for k := range 50 {
					e.Copied(fakevllm.MediumCPU, uint64(from+50*n+k))
				}
			})
		}
	}
	check := func(limit int) {
		t.Helper()
		if n := r.rank.table.slowBlocks; n > limit || n < limit/8*7-50 {
			t.Errorf("%d blocks below the GPU, want about %d", n, limit)
		}
		if r.rank.table.used > limit+2*minIdle+50 || r.index.Status().Blocks != 1 {
			t.Errorf("%d slots, %+v", r.rank.table.used, r.index.Status())
		}
	}
	fill(1)
	check(maxUnknown)
	r.apply(func(e *fakevllm.KVEvents) { e.RemovedFrom(fakevllm.MediumCPU, 3000) })
	fill(100_000)
	check(maxSlow)
}
