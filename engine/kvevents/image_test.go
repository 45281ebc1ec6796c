package kvevents

import (
	"maps"
	"math/rand/v2"
	"pointsman/decider/kvcache"
	"testing"
	"testing/synctest"
	"time"

	"pointsman/decider"
	"pointsman/sim/fakevllm"
)

// keys are those that the index has.
func (l *rig) keys() map[uint64]bool {
	known := map[uint64]bool{}
	l.follower.rank.table.keys(func(key uint64, _ kvcache.Tier) { known[key] = true })
	return known
}

// restartAgent gives the place of the index to one that begins with its image, and connects
// anew.
func (l *rig) restartAgent() {
	l.t.Helper()
	before := l.keys()
	old := l.follower
	m, err := ReadImage(old.rank.index.AppendImage(nil))
	if err != nil {
		l.t.Fatal(err)
	}
	x := NewIndex(l.t.Context(), l.pool, "r0", testBlock)
	if !x.Restore(m) {
		l.t.Fatal("the image cannot be used")
	}
	l.follower = &subscriber{rank: x.newRank("rank 0"), replay: old.replay, log: old.log, replayer: l.replay}
	x.startFollowing()
	if after := l.keys(); !old.rank.confirming && !maps.Equal(before, after) {
		l.t.Fatalf("%d blocks after a restart, %d before it", len(after), len(before))
	}
	// The image has neither the predecessors of a block nor removed blocks: after losses
	// they may matter.
	l.forgot = l.forgot || l.kind != lossless
	l.reconnect()
}

// An agent that restarts knows at once what it knew before, also what the engine's replay
// does not have any more, and is right again when it has asked for what it missed.
func TestKnownAtOnceAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRig(t, rand.New(rand.NewPCG(7, 7)))
		l.form = fakevllm.KVEventsOptions{BlockSize: testBlock, Keep: 8}
		l.startEngine()
		for range 200 {
			l.submit()
			l.step(3)
		}
		l.verify()
		if len(l.batches) < 10*l.form.Keep || len(l.keys()) < 60 {
			t.Fatalf("%d batches, %d blocks", len(l.batches), len(l.keys()))
		}
		image := l.follower.rank.index.AppendImage(nil)
		for range 2 { // while the agent is not there
			l.submit()
			l.engineAlone(2)
		}
		if most := 20 * len(l.keys()); len(image) > most+100 {
			t.Errorf("an image of %d bytes for %d blocks", len(image), len(l.keys()))
		}
		m, err := ReadImage(image)
		if err != nil {
			t.Fatal(err)
		}
		before := l.keys()
		x := NewIndex(t.Context(), l.pool, "r0", testBlock)
		if !x.Restore(m) {
			t.Fatal("the image cannot be used")
		}
		l.follower = &subscriber{rank: x.newRank("rank 0"), replay: "there is one", log: func(string, error) {}, replayer: l.replay}
		x.startFollowing()
		if !maps.Equal(before, l.keys()) || x.Status().Blocks != len(before) {
			t.Errorf("%d blocks before any connection, %d before the restart", len(l.keys()), len(before))
		}
		l.reconnect()
		if s := x.Status(); s.Rebuilt > 0 || s.Gaps > 0 {
			t.Errorf("learned anew: %+v", s)
		}
		l.verify()

		// Without the image nearly all of it is lost.
		bare := NewIndex(t.Context(), l.pool, "r0", testBlock)
		l.follower = &subscriber{rank: bare.newRank("rank 0"), replay: "there is one", log: func(string, error) {}, replayer: l.replay}
		bare.startFollowing()
		l.reconnect()
		if n := bare.Status().Blocks - bare.Status().Orphans; n > len(before)/2 {
			t.Errorf("the replay alone restores %d of %d blocks: the test shows nothing", n, len(before))
		}
	})
}

// engineAlone runs the engine while nobody listens.
func (l *rig) engineAlone(steps int) {
	for range steps {
		if !l.advance() {
			return
		}
		l.batch()
	}
}

// An engine that has restarted while the agent was away is known from nothing, whether it
// has a replay or not; and an image of other keys, or of blocks of another size, is not used.
func TestImageOfAnotherRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRig(t, rand.New(rand.NewPCG(8, 8)))
		for range 50 {
			l.submit()
			l.step(3)
		}
		l.startEngine()
		for range 3 {
			l.submit()
			l.engineAlone(5)
		}
		l.restartAgent()
		l.verify()

		m, err := ReadImage(l.follower.rank.index.AppendImage(nil))
		if err != nil {
			t.Fatal(err)
		}
		if NewIndex(t.Context(), l.pool, "r0", 2*testBlock).Restore(m) {
			t.Error("an image of blocks of another size is used")
		}
		d := decider.New(func() time.Duration { return 0 }, func() uint64 { return 1 })
		d.Secret = []byte("another secret")
		d.Apply(decider.Config{Pools: []decider.PoolConfig{{Name: "llama", Policy: l.spy, Replicas: []decider.ReplicaConfig{{Name: "r0"}}}}})
		if NewIndex(t.Context(), d.Pool("llama"), "r0", testBlock).Restore(m) {
			t.Error("an image of keys under another secret is used")
		}
	})
}

// FuzzImage reads arbitrary bytes as an image.
func FuzzImage(f *testing.F) {
	pool := newPool(kvAware(testBlock))
	x := NewIndex(f.Context(), pool, "r0", testBlock)
	r := x.newRank("rank 0")
	e := fakevllm.NewKVEvents(fakevllm.KVEventsOptions{BlockSize: testBlock})
	e.Stored(1, 0, true, []uint32{1, 2, 3, 4}, "", "")
	e.Stored(2, 1, false, []uint32{1, 2, 3, 4}, "", "")
	e.Stored(9, 8, false, []uint32{1, 2, 3, 4}, "", "")
	_, payload, _ := e.Batch(0)
	if err := r.applyLive(0, payload); err != nil {
		f.Fatal(err)
	}
	f.Add(x.AppendImage(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ReadImage(b)
		if err != nil {
			return
		}
		y := NewIndex(t.Context(), pool, "r0", testBlock)
		if !y.Restore(m) {
			return
		}
		r := y.newRank("rank 0")
		if held := r.table.liveBlocks; held > len(b) || r.table.used != held || r.table.orphans > held {
			t.Errorf("%d blocks in use, %d held, %d orphans of %d bytes", r.table.used, held, r.table.orphans, len(b))
		}
		_ = r.applyLive(r.snapshots[live].next, payload)
		y.removeRank(r)
	})
}

// BenchmarkImage writes and reads the image of one engine with 500,000 tokens in blocks of
// 16.
func BenchmarkImage(b *testing.B) {
	pool := newPool(kvAware(16))
	x := NewIndex(b.Context(), pool, "r0", 16)
	x.startFollowing()
	r := x.newRank("rank 0")
	e := fakevllm.NewKVEvents(fakevllm.KVEventsOptions{BlockSize: 16, Keep: 1})
	tokens := make([]uint32, 16)
	const blocks = 500_000 / 16
	for key := range uint64(blocks) {
		tokens[0] = uint32(key)
		e.Stored(key+1, key, key%50 == 0, tokens, "", "")
	}
	_, payload, _ := e.Batch(0)
	if err := r.applyLive(0, payload); err != nil || x.Status().Blocks != blocks {
		b.Fatal(err, x.Status())
	}
	var image []byte
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			image = x.AppendImage(image[:0])
		}
		b.ReportMetric(float64(len(image))/blocks, "B/block")
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			m, err := ReadImage(image)
			if err != nil {
				b.Fatal(err)
			}
			y := NewIndex(b.Context(), pool, "r0", 16)
			if y.Restore(m); y.newRank("rank 0").table.liveBlocks != blocks {
				b.Fatal("not all is there")
			}
		}
	})
}
