package kvevents

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tinylib/msgp/msgp"

	"pointsman/decider"
	"pointsman/decider/kvcache"
	"pointsman/prompt"
	"pointsman/sim/fakevllm"
)

// Through ten minutes of random work with evictions, lost batches, restarts, and
// replays that fail or break off, the index has exactly the blocks that the batches
// prove to be cached. Without losses that is the whole cache.
func TestIndexMatchesTheEngine(t *testing.T) {
	seeds := uint64(4)
	if testing.Short() {
		seeds = 1 // for the race detector
	}
	for kind, name := range []string{"lossless", "lossy", "dead replay", "no replay"} {
		var sum rig
		for seed := range seeds {
			synctest.Test(t, func(t *testing.T) {
				l := newRig(t, rand.New(rand.NewPCG(seed, uint64(kind))))
				l.kind = faults(kind)
				l.lossy = l.kind != lossless
				if l.kind == noReplay {
					l.follower.replay = ""
				}
				l.submit()
				for l.now < 10*time.Minute {
					switch n := l.rand.IntN(1000); {
					case n < 600:
						l.submit()
					case n < 985:
						l.step(1 + l.rand.IntN(20))
					case n < 988 && l.lossy:
						l.restart()
					case n < 990:
						l.reconnect()
					case n < 991 && (!l.lossy || seed%2 == 1): // of the others all that is provable is asked
						l.restartAgent()
					case n < 992:
						l.clear()
					default:
						l.verify()
					}
				}
				l.verify()
				sum.exact, sum.of = sum.exact+l.exact, sum.of+l.of
				sum.known, sum.stored = sum.known+l.known, sum.stored+l.stored
			})
		}
		t.Logf("%s: the whole cache was known at %d of %d verifications, and %.1f %% of all blocks", name, sum.exact, sum.of, 100*float64(sum.known)/float64(sum.stored))
		if sum.of < 250*int(seeds) || faults(kind) == lossless && sum.exact != sum.of {
			t.Errorf("%s: the whole cache was known at %d of %d verifications", name, sum.exact, sum.of)
		}
	}
}

func TestRanksAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRig(t, rand.New(rand.NewPCG(1, 1)))
		m := l.follower.rank.index
		a, b := l.follower.rank, m.newRank("")
		tokens := []uint32{1, 2, 3, 4}
		batch := func(f func(e *fakevllm.KVEvents)) []byte {
			e := fakevllm.NewKVEvents(l.form)
			f(e)
			_, p, _ := e.Batch(0)
			return p
		}
		stored := batch(func(e *fakevllm.KVEvents) { e.Stored(7, 0, true, tokens, "", "") })
		removed := batch(func(e *fakevllm.KVEvents) { e.Removed(7) })
		cleared := batch(func(e *fakevllm.KVEvents) { e.Cleared() })
		believed := func() int {
			r := decider.Request{Pool: l.pool}
			r.Tokenized(kvcache.AppendKeys(nil, l.pool.Hashing(), prompt.Seed(l.pool.Hashing(), []byte(l.pool.Name()), nil, nil), tokens, testBlock), 9)
			var d decider.Decision
			l.pool.Decide(&r, &d)
			l.pool.Finished(decider.Outcome{ID: r.ID, End: decider.ClientGone})
			return l.spy.cached
		}
		for i, step := range []struct {
			rank    *rankIndex
			payload []byte
			want    int
		}{{a, stored, 4}, {b, stored, 4}, {a, stored, 4}, {a, removed, 4}, {b, removed, 0}, {b, stored, 4}, {a, stored, 4}, {a, cleared, 4}, {b, cleared, 0}} {
			if err := step.rank.applyLive(uint64(i), step.payload); err != nil {
				t.Fatal(err)
			}
			if got := believed(); got != step.want {
				t.Errorf("step %d: %d tokens are taken to be cached, want %d", i, got, step.want)
			}
		}
		if err := b.applyLive(20, stored); err != nil {
			t.Fatal(err)
		}
		if m.removeRank(b); believed() != 0 {
			t.Error("a rank that is gone still counts")
		}
	})
}

// Blocks of an adapter or with a cache_salt have keys of their own. Blocks that cannot
// be keyed are counted.
func TestKeysDistinguishAdaptersAndSalts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRig(t, rand.New(rand.NewPCG(2, 2)))
		tokens := []uint32{1, 2, 3, 4, 5, 6, 7, 8}
		keys := func(f func(e *fakevllm.KVEvents)) map[uint64]bool {
			m := &Index{pool: l.pool, replica: "r0", blockTokens: testBlock}
			r := m.newRank("")
			e := fakevllm.NewKVEvents(l.form)
			f(e)
			_, p, _ := e.Batch(0)
			if err := r.applyLive(0, p); err != nil {
				t.Fatal(err)
			}
			out := map[uint64]bool{}
			r.table.keys(func(k uint64, _ kvcache.Tier) { out[k] = true })
			return out
		}
		for _, c := range []struct{ lora, salt string }{{}, {"sql", ""}, {"", "tenant"}, {"sql", "tenant"}} {
			got := keys(func(e *fakevllm.KVEvents) {
				e.Stored(1, 0, true, tokens[:4], c.lora, c.salt)
				e.Stored(2, 1, false, tokens[4:], c.lora, c.salt)
			})
			for _, k := range kvcache.AppendKeys(nil, l.pool.Hashing(), prompt.Seed(l.pool.Hashing(), []byte(l.pool.Name()), []byte(c.lora), []byte(c.salt)), tokens, testBlock) {
				if !got[k] {
					t.Errorf("%+v: the index lacks a key of the prompt", c)
				}
			}
		}
		m := &Index{pool: l.pool, replica: "r0", blockTokens: 16}
		r := m.newRank("")
		e := fakevllm.NewKVEvents(fakevllm.KVEventsOptions{BlockSize: 2})
		e.Stored(1, 0, true, tokens[:2], "", "")
		_, p, _ := e.Batch(0)
		if err := r.applyLive(0, p); err != nil || m.Status().Strange != 1 || m.Status().Blocks != 0 {
			t.Errorf("blocks of another size: %v %+v", err, m.Status())
		}
		m.blockTokens = testBlock
		e = fakevllm.NewKVEvents(l.form)
		e.Stored(9, 8, false, tokens[:4], "", "")
		_, p, _ = e.Batch(0)
		if err := r.applyLive(1, p); err != nil || m.Status().Orphans != 1 {
			t.Errorf("a block after an unknown one: %v %+v", err, m.Status())
		}
		if err := r.applyLive(2, []byte("nonsense")); err == nil || m.Status().Rebuilt != 1 {
			t.Errorf("a malformed batch: %v %+v", err, m.Status())
		}
	})
}

// A stored block implies the blocks before it, except with a sliding window.
func TestInfersEarlierBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, window := range []bool{false, true} {
			l := newRig(t, rand.New(rand.NewPCG(4, 4)))
			r := l.follower.rank
			e := fakevllm.NewKVEvents(fakevllm.KVEventsOptions{BlockSize: testBlock})
			tokens := make([]uint32, testBlock)
			e.Stored(1, 0, true, tokens, "", "")
			e.Stored(2, 1, false, tokens, "", "")
			_, first, _ := e.Batch(0)
			if err := r.applyLive(0, first); err != nil || r.table.liveBlocks != 2 {
				t.Fatal(err, r.table.liveBlocks)
			}
			if r.lostBefore(2, true); r.table.liveBlocks != 0 {
				t.Fatal("a block that may be gone is in the index")
			}
			b := msgp.AppendString(msgp.AppendMapHeader(msgp.AppendArrayHeader(msgp.AppendFloat64(msgp.AppendArrayHeader(nil, 2), 0), 1), 6), "type")
			b = msgp.AppendString(b, "BlockStored")
			b = msgp.AppendUint64(msgp.AppendArrayHeader(msgp.AppendString(b, "block_hashes"), 1), 3)
			b = msgp.AppendUint64(msgp.AppendString(b, "parent_block_hash"), 2)
			b = msgp.AppendArrayHeader(msgp.AppendString(b, "token_ids"), testBlock)
			for _, x := range tokens {
				b = msgp.AppendUint32(b, x)
			}
			b = msgp.AppendInt(msgp.AppendString(b, "block_size"), testBlock)
			b = msgp.AppendString(b, "kv_cache_spec_sliding_window")
			want := 3
			if window {
				b, want = msgp.AppendInt(b, 128), 1
			} else {
				b = msgp.AppendNil(b)
			}
			if err := r.applyLive(2, b); err != nil || r.table.liveBlocks != want {
				t.Errorf("window %v: %d blocks, want %d (%v)", window, r.table.liveBlocks, want, err)
			}
		}
	})
}

// The buffer is bounded. Beyond the bound the confirmed snapshot is given up, not the
// live one.
func TestBufferIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRig(t, rand.New(rand.NewPCG(5, 5)))
		r := l.follower.rank
		e := fakevllm.NewKVEvents(fakevllm.KVEventsOptions{BlockSize: testBlock, Keep: 1})
		r.lostBefore(5, true)
		tokens := make([]uint32, testBlock)
		n := uint64(5)
		for key := uint64(1); r.confirming; n++ {
			for i := range 1000 {
				e.Stored(key, key-1, i == 0, tokens, "", "")
				key++
			}
			_, p, _ := e.Batch(0)
			if err := r.applyLive(n, p); err != nil {
				t.Fatal(err)
			}
			if r.bufferedBytes > maxBuffered || n > 10_000 {
				t.Fatalf("%d bytes are buffered after %d batches", r.bufferedBytes, n)
			}
		}
		if len(r.buffered) > 0 || r.bufferedBytes != 0 || r.table.liveBlocks != int(n-5)*1000 {
			t.Errorf("%d batches and %d bytes are buffered, %d live blocks of %d", len(r.buffered), r.bufferedBytes, r.table.liveBlocks, (n-5)*1000)
		}
	})
}

// An engine that never reports removals does not fill the memory: at the bound the
// index starts over.
func TestBlocksAreBounded(t *testing.T) {
	defer func(n int) { maxBlocks = n }(maxBlocks)
	maxBlocks = 5000
	synctest.Test(t, func(t *testing.T) {
		l := newRig(t, rand.New(rand.NewPCG(6, 6)))
		m := &Index{pool: l.pool, replica: "r1", blockTokens: testBlock}
		m.startFollowing()
		r := m.newRank("")
		e := fakevllm.NewKVEvents(fakevllm.KVEventsOptions{BlockSize: testBlock, Keep: 1})
		tokens := make([]uint32, testBlock)
		failed := 0
		for n := range uint64(100) {
			if n == 50 {
				r.lostBefore(n, true) // with a confirmed snapshot
			}
			for i := range uint64(100) {
				key := 1 + 100*n + i
				e.Stored(key, key-1, key == 1, tokens, "", "")
			}
			_, p, _ := e.Batch(0)
			if err := r.applyLive(n, p); err != nil {
				if err != errTooMany {
					t.Fatal(err)
				}
				failed++
			}
			if s := m.Status(); s.Blocks > maxBlocks || len(r.table.slots) > 4*maxBlocks {
				t.Fatalf("%d blocks in %d slots", s.Blocks, len(r.table.slots))
			}
		}
		if s := m.Status(); failed == 0 || failed > 2 || s.Blocks == 0 {
			t.Errorf("%d batches failed, %d blocks in the end", failed, s.Blocks)
		}
	})
}
