package kvevents

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

	"pointsman/decider"
	"pointsman/decider/kvcache"
)

// captured is a batch as a real engine sent it.
type captured struct {
	rank    int
	number  uint64
	payload []byte
}

// capture reads the batches in a file of testdata.
func capture(t *testing.T, name string) (list []captured) {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in := io.Reader(f)
	if strings.HasSuffix(name, ".gz") {
		if in, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		var line struct {
			Rank    int
			Seq     uint64
			Payload string
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		payload, err := hex.DecodeString(line.Payload)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, captured{line.Rank, line.Seq, payload})
	}
	if lines.Err() != nil || len(list) == 0 {
		t.Fatal(lines.Err(), len(list))
	}
	return list
}

// aPool is a pool of one replica, r0, that compares blocks of that many tokens.
func aPool(blockTokens int) *decider.Pool {
	d := decider.New(func() time.Duration { return 0 }, func() uint64 { return 1 })
	d.Apply(decider.Config{Pools: []decider.PoolConfig{{Name: "llama", Policy: kvAware(blockTokens), Replicas: []decider.ReplicaConfig{{Name: "r0"}}}}})
	return d.Pool("llama")
}

// vLLM reports blocks again that it holds already, when a client asks it to report
// all that a request uses, and removes each once. The size of its blocks is in its
// events: nobody has to configure it.
func TestFollowsARealVLLM(t *testing.T) {
	pool := aPool(16)
	x := NewIndex(t.Context(), pool, "r0", 16)
	x.startFollowing()
	r := x.newRank("")
	held, again := map[uint64]bool{}, 0
	for _, b := range capture(t, "vllm-0.32.0.jsonl.gz") {
		if err := r.applyLive(b.number, b.payload); err != nil {
			t.Fatal(err)
		}
		if err := readBatch(b.payload, new(event), func(e *event) {
			for _, h := range e.hashes {
				if e.kind == eventStored && held[h] {
					again++
				}
				held[h] = e.kind == eventStored
			}
			if e.kind == eventCleared {
				clear(held)
			}
		}); err != nil {
			t.Fatal(err)
		}
		want := 0
		for _, is := range held {
			if is {
				want++
			}
		}
		if r.table.liveBlocks != want {
			t.Fatalf("batch %d: %d blocks, the engine has reported %d", b.number, r.table.liveBlocks, want)
		}
		if x.CheckSize(800 * 32) {
			t.Fatalf("batch %d: %d blocks are taken for more than the cache holds", b.number, r.table.liveBlocks)
		}
	}
	if again < 60 {
		t.Errorf("only %d blocks were reported again: the test shows nothing", again)
	}
	s := x.Status()
	if s.Strange != 0 || s.Orphans != 0 || s.Gaps != 0 || s.BlockTokens != 32 || pool.Tokens().BlockTokens != 32 {
		t.Errorf("%+v, the pool compares blocks of %d tokens", s, pool.Tokens().BlockTokens)
	}
}

// Two ranks of one engine publish on ports of their own. What one drops, or has of the
// same prompt, says nothing of the other.
func TestFollowsTheRanksOfARealVLLM(t *testing.T) {
	list := capture(t, "vllm-0.32.0-ranks.jsonl.gz")
	var blocks [2][]int
	for rank := range blocks {
		x := NewIndex(t.Context(), aPool(16), "r0", 32)
		x.startFollowing()
		r := x.newRank("")
		for _, b := range list {
			if b.rank != rank {
				continue
			}
			if err := r.applyLive(b.number, b.payload); err != nil {
				t.Fatal(err)
			}
			blocks[rank] = append(blocks[rank], r.table.liveBlocks)
		}
		if s := x.Status(); s.Gaps != 0 || s.Strange != 0 || s.Orphans != 0 || s.BlockTokens != 32 {
			t.Errorf("rank %d: %+v", rank, s)
		}
	}
	// The same chat for the model and for an adapter; one long answer on rank 1; then
	// both caches are emptied, and the chat comes again.
	if n := blocks[0]; !slices.Equal(n, []int{7, 14, 7}) {
		t.Errorf("rank 0 had %v blocks", n)
	}
	if n := blocks[1]; len(n) != 22 || n[0] != 7 || n[1] != 14 || n[20] != 14+19 || n[21] != 7 {
		t.Errorf("rank 1 had %v blocks", n)
	}
}

// A simulator of vLLM counts its batches from 1, and a parent of 0 means none.
func TestFollowsEventsFrom1(t *testing.T) {
	list := capture(t, "llm-d-sim.jsonl")
	for _, replay := range []string{"", "there is one"} {
		x := NewIndex(t.Context(), aPool(16), "r0", 16)
		x.startFollowing()
		f := &subscriber{rank: x.newRank(""), replay: replay, log: func(string, error) {}}
		f.replayer = func(context.Context) error {
			p := f.rank.newReplay()
			for _, b := range list[:2] {
				if b.number >= p.from {
					if err := p.batch(b.number, b.payload); err != nil {
						return err
					}
				}
			}
			return p.end()
		}
		f.onConnect(t.Context())
		blocks := 0
		for _, b := range list {
			f.onBatch(t.Context(), b.number, b.payload, false)
		}
		f.rank.table.keys(func(uint64, kvcache.Tier) { blocks++ })
		if s := x.Status(); s.Gaps != 0 || s.Rebuilt != 0 || s.Orphans != 0 || s.Strange != 0 || s.Blocks < 10 || blocks != s.Blocks {
			t.Errorf("replay %q: %+v, %d blocks with keys", replay, s, blocks)
		}
	}
}

// stored is an event of vLLM for one block of a group of layers.
func stored(b []byte, hash, parent uint64, size, group int, kind string) []byte {
	b = msgp.AppendString(msgp.AppendMapHeader(b, 7), "type")
	b = msgp.AppendString(b, "BlockStored")
	b = msgp.AppendUint64(msgp.AppendArrayHeader(msgp.AppendString(b, "block_hashes"), 1), hash)
	b = msgp.AppendUint64(msgp.AppendString(b, "parent_block_hash"), parent)
	b = msgp.AppendArrayHeader(msgp.AppendString(b, "token_ids"), uint32(size))
	for i := range size {
		b = msgp.AppendUint32(b, uint32(hash)<<8+uint32(i))
	}
	b = msgp.AppendInt(msgp.AppendString(b, "block_size"), size)
	b = msgp.AppendInt(msgp.AppendString(b, "group_idx"), group)
	return msgp.AppendString(msgp.AppendString(b, "kv_cache_spec_kind"), kind)
}

// removed is the event that a block of a group has left.
func removed(b []byte, hash uint64, group int) []byte {
	b = msgp.AppendString(msgp.AppendMapHeader(b, 3), "type")
	b = msgp.AppendString(b, "BlockRemoved")
	b = msgp.AppendUint64(msgp.AppendArrayHeader(msgp.AppendString(b, "block_hashes"), 1), hash)
	return msgp.AppendInt(msgp.AppendString(b, "group_idx"), group)
}

// batchOf is a batch of n events.
func batchOf(n int, events []byte) []byte {
	return append(msgp.AppendArrayHeader(msgp.AppendFloat64(msgp.AppendArrayHeader(nil, 2), 0), uint32(n)), events...)
}

// Of a model with several groups of layers the one that keeps whole prompts counts,
// whichever comes first: blocks that leave a sliding window do not end a prefix.
func TestFollowsTheGroupThatKeepsPrompts(t *testing.T) {
	for _, c := range []struct {
		name   string
		kinds  []string // by group
		blocks int      // left when the first group has lost two of four
	}{
		{"sliding window first", []string{"sliding_window", "full_attention"}, 4},
		{"sliding window last", []string{"full_attention", "sliding_window"}, 2},
		{"state space first", []string{"mamba", "mla_attention"}, 4},
		{"windows only", []string{"sliding_window", "chunked_local_attention"}, 2},
	} {
		x := NewIndex(t.Context(), aPool(4), "r0", 4)
		r := x.newRank("")
		var events []byte
		for block := range uint64(4) {
			for group, kind := range c.kinds {
				// Groups may have blocks of different sizes.
				events = stored(events, 1+block, block, 4+4*(group&len(c.kinds[0])&1), group, kind)
			}
		}
		if err := r.applyLive(0, batchOf(4*len(c.kinds), events)); err != nil || r.table.liveBlocks != 4 {
			t.Fatalf("%s: %v, %d blocks", c.name, err, r.table.liveBlocks)
		}
		if err := r.applyLive(1, batchOf(2, removed(removed(nil, 1, 0), 2, 0))); err != nil || r.table.liveBlocks != c.blocks {
			t.Errorf("%s: %v, %d blocks, want %d", c.name, err, r.table.liveBlocks, c.blocks)
		}
	}
}

// An index that holds more than the engine can hold is emptied, at first at once, and
// then ever more rarely: the size may be wrong.
func TestOverfullIndexIsEmptied(t *testing.T) {
	x := NewIndex(t.Context(), aPool(4), "r0", 4)
	r := x.newRank("")
	n := uint64(0)
	emptied := []int{}
	for check := range 1000 {
		var events []byte
		for block := range uint64(20) {
			events = stored(events, 1+block, block, 4, 0, "full_attention")
		}
		if err := r.applyLive(n, batchOf(20, events)); err != nil || r.table.liveBlocks != 20 {
			t.Fatal(err, r.table.liveBlocks)
		}
		if n++; x.CheckSize(80) || x.CheckSize(0) {
			t.Fatal("as many blocks as the cache holds are taken for too many")
		}
		if x.CheckSize(40) {
			emptied = append(emptied, check)
			if r.table.liveBlocks != 0 {
				t.Fatal("it was not emptied")
			}
		}
	}
	if len(emptied) < 3 || len(emptied) > 10 || emptied[0] != 0 || x.Status().Overfull != uint64(len(emptied)) {
		t.Errorf("emptied at %v, %+v", emptied, x.Status())
	}
}

// The pool goes by the size that its engines report, and follows when they change it.
func TestFollowsAnotherBlockSize(t *testing.T) {
	pool := aPool(16)
	x := NewIndex(t.Context(), pool, "r0", 16)
	x.startFollowing()
	r := x.newRank("")
	for i, size := range []int{32, 8} {
		if err := r.applyLive(uint64(i), batchOf(1, stored(nil, 1+uint64(i), 0, size, 0, "full_attention"))); err != nil {
			t.Fatal(err)
		}
		if pool.Tokens().BlockTokens != size {
			t.Errorf("the pool compares blocks of %d tokens, want %d", pool.Tokens().BlockTokens, size)
		}
	}
	if s := x.Status(); s.BlockTokens != 32 || s.Blocks != 1 {
		t.Errorf("an index that has blocks goes by another size: %+v", s)
	}
	next := NewIndex(t.Context(), pool, "r0", 8)
	next.startFollowing()
	again := next.newRank("")
	if err := again.applyLive(0, batchOf(1, stored(nil, 7, 0, 8, 0, "full_attention"))); err != nil {
		t.Fatal(err)
	}
	before := next.followID
	x.removeRank(r)
	x.flush()
	if next.followID != before || x.followID == 0 && pool.Engine("r0").ChangeBlocks(before, nil) == false {
		t.Error("the index that was replaced has taken the place of the new one")
	}
}
