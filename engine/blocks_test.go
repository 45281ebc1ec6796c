package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"pointsman/decider"
	"pointsman/sim"
)

// spy tells how many tokens of a prompt are believed to be on a replica.
type spy struct {
	*decider.KVAware
	replica, cached int
}

func (s *spy) Rank(_ *decider.Request, v *decider.View, dst []int) []int {
	s.cached = v.Cached(s.replica)
	return dst
}

// link is an engine and its follower, in virtual time and without sockets.
type link struct {
	t      *testing.T
	rand   *rand.Rand
	form   sim.BlockEventsOptions
	engine *sim.Engine
	log    *sim.BlockEvents
	now    time.Duration

	pool     *decider.Pool
	spy      *spy
	follower *blockFollower

	lossy     bool
	prompts   [][]uint32
	exact, of int // quiet moments at which all was known
}

const testBlock = 4 // tokens

func kvAware(blockTokens int) *decider.KVAware {
	o := decider.TokenDefaults
	o.BlockTokens = blockTokens
	p, err := decider.NewKVAware(o)
	if err != nil {
		panic(err)
	}
	return p
}

func newLink(t *testing.T, r *rand.Rand) *link {
	l := &link{t: t, rand: r, form: sim.BlockEventsOptions{
		BlockSize: testBlock, Maps: r.IntN(2) == 0, ByteHashes: r.IntN(2) == 0, Keep: 1 << (3 + r.IntN(10)),
	}}
	l.spy = &spy{KVAware: kvAware(testBlock)}
	start := time.Now()
	d := decider.New(func() time.Duration { return time.Since(start) }, func() uint64 { return 1 })
	d.Apply(decider.Config{Pools: []decider.PoolConfig{{Name: "llama", Policy: l.spy, Replicas: []decider.ReplicaConfig{{Name: "r0"}}}}})
	l.pool = d.Pool("llama")
	m := &blockImage{pool: l.pool, replica: "r0", blockTokens: testBlock}
	l.follower = &blockFollower{rank: m.newRank(), replay: "there is one", log: func(string, error) {}, ask: l.replay}
	m.begin()
	l.startEngine()
	// Prompts are branches of one another.
	for i := range 40 {
		var p []uint32
		if i > 0 {
			from := l.prompts[r.IntN(i)]
			p = append(p, from[:r.IntN(len(from)+1)]...)
		}
		for range 1 + r.IntN(40) {
			p = append(p, r.Uint32N(100_000))
		}
		l.prompts = append(l.prompts, p)
	}
	return l
}

func (l *link) startEngine() {
	l.log = sim.NewBlockEvents(l.form)
	e, err := sim.NewEngine(sim.EngineOptions{
		Profile: sim.Profile8B, BlockSize: testBlock, CacheTokens: 80 * testBlock,
		Stored: func(j *sim.Job, i int) {
			parent := uint64(0)
			if i > 0 {
				parent = j.Blocks[i-1]
			}
			l.log.Stored(j.Blocks[i], parent, i == 0, j.Owner.([]uint32)[i*testBlock:(i+1)*testBlock], "", "")
		},
		Removed: func(key uint64) { l.log.Removed(key) },
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.engine = e
}

var errLost = errors.New("lost")

// replay is what the engine answers when it is asked for past batches.
func (l *link) replay(context.Context) error {
	if l.lossy && l.rand.IntN(3) == 0 {
		return errLost
	}
	from := uint64(0)
	if l.follower.rank.seen {
		from = l.follower.rank.last
	}
	p := replayed{rank: l.follower.rank}
	var err error
	stop := ^uint64(0)
	if l.lossy && l.rand.IntN(5) == 0 {
		stop = from + l.rand.Uint64N(4) // it breaks off
	}
	l.log.Replay(from, func(n uint64, payload []byte) {
		switch {
		case err != nil:
		case n >= stop:
			err = errLost
		default:
			err = p.batch(n, payload)
		}
	})
	if err != nil {
		return err
	}
	return p.end()
}

// publish sends what happened, unless it is lost.
func (l *link) publish() {
	number, payload, ok := l.log.Batch(0)
	if !ok || l.lossy && l.rand.IntN(20) == 0 {
		return
	}
	l.follower.live(context.Background(), number, payload, false)
	l.follower.complete(context.Background())
}

// step lets the engine compute until it is idle, or only for a while.
func (l *link) step(most int) {
	for range most {
		next, busy := l.engine.Next()
		if !busy {
			return
		}
		if next > l.now {
			time.Sleep(next - l.now)
			l.now = next
		}
		l.engine.Step(l.now)
		l.publish()
	}
}

func (l *link) submit() {
	p := l.prompts[l.rand.IntN(len(l.prompts))]
	j := &sim.Job{Input: len(p), Output: 1 + l.rand.IntN(8), Owner: p, Blocks: decider.AppendTokenBlocks(nil, l.pool.PromptSeed(nil, nil), p, testBlock)}
	if err := l.engine.Submit(l.now, j); err != nil {
		l.t.Fatal(err)
	}
}

// restart is a new engine process: an empty cache, batches from 0 on. The
// follower's connection breaks, and stands again.
func (l *link) restart() {
	l.startEngine()
	l.follower.connected(context.Background())
}

// quiet compares what is believed with what is there.
func (l *link) quiet() {
	l.step(1 << 20)
	lossy := l.lossy
	l.lossy = false
	time.Sleep(quiet + again)
	if err := l.follower.catchUp(context.Background()); err != nil {
		l.t.Fatal(err)
	}
	l.follower.complete(context.Background())
	l.lossy = lossy
	l.of++
	whole := l.follower.rank.whole
	if whole {
		l.exact++
	}
	var d decider.Decision
	for _, p := range l.prompts {
		r := decider.Request{Pool: l.pool}
		keys := decider.AppendTokenBlocks(nil, l.pool.PromptSeed(nil, nil), p, testBlock)
		r.Tokenized(keys, len(p)+1)
		l.pool.Decide(&r, &d)
		l.pool.Finished(decider.Outcome{ID: r.ID, End: decider.ClientGone})
		there := 0
		for there < len(keys) && l.engine.Holds(keys[there]) {
			there++
		}
		believed := l.spy.cached / testBlock
		if believed > there || whole && believed != there {
			l.t.Fatalf("%d of %d blocks are believed cached, %d are (everything known: %v)", believed, len(keys), there, whole)
		}
	}
	table := &l.follower.rank.table
	stored := l.engine.Stats().StoredBlocks
	if table.used > stored || whole && table.used != stored {
		l.t.Fatalf("%d blocks in the table, %d in the cache (everything known: %v)", table.used, stored, whole)
	}
}

// Over ten minutes of random work with gaps, restarts, replays that fail or
// break off, and evictions all the time, nothing is believed that is not so,
// and all that is so once nothing is missing.
func TestBlocksAreThoseOfTheEngine(t *testing.T) {
	exact, of := 0, 0
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			l := newLink(t, rand.New(rand.NewPCG(seed, 9)))
			l.lossy = seed%3 != 0
			l.submit()
			for l.now < 10*time.Minute {
				switch n := l.rand.IntN(1000); {
				case n < 600:
					l.submit()
				case n < 990:
					l.step(1 + l.rand.IntN(20))
				case n < 993 && l.lossy:
					l.restart()
				default:
					l.quiet()
				}
			}
			l.quiet()
			if !l.lossy && l.exact != l.of {
				t.Errorf("without losses all was known at %d of %d quiet moments", l.exact, l.of)
			}
			exact, of = exact+l.exact, of+l.of
		})
	}
	if exact < of/3 {
		t.Errorf("all was known at %d of %d quiet moments alone", exact, of)
	}
	t.Logf("all was known at %d of %d quiet moments", exact, of)
}

func TestRanksOfOneReplicaAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLink(t, rand.New(rand.NewPCG(1, 1)))
		m := l.follower.rank.of
		a, b := l.follower.rank, m.newRank()
		tokens := []uint32{1, 2, 3, 4}
		batch := func(f func(e *sim.BlockEvents)) []byte {
			e := sim.NewBlockEvents(l.form)
			f(e)
			_, p, _ := e.Batch(0)
			return p
		}
		stored := batch(func(e *sim.BlockEvents) { e.Stored(7, 0, true, tokens, "", "") })
		removed := batch(func(e *sim.BlockEvents) { e.Removed(7) })
		cleared := batch(func(e *sim.BlockEvents) { e.Cleared() })
		believed := func() int {
			r := decider.Request{Pool: l.pool}
			r.Tokenized(decider.AppendTokenBlocks(nil, l.pool.PromptSeed(nil, nil), tokens, testBlock), 9)
			var d decider.Decision
			l.pool.Decide(&r, &d)
			l.pool.Finished(decider.Outcome{ID: r.ID, End: decider.ClientGone})
			return l.spy.cached
		}
		for i, step := range []struct {
			rank    *blockRank
			payload []byte
			want    int
		}{{a, stored, 4}, {b, stored, 4}, {a, stored, 4}, {a, removed, 4}, {a, removed, 4}, {b, removed, 0}, {b, stored, 4}, {a, cleared, 4}, {b, cleared, 0}} {
			if err := step.rank.take(uint64(i), step.payload); err != nil {
				t.Fatal(err)
			}
			if got := believed(); got != step.want {
				t.Errorf("step %d: %d tokens believed cached, want %d", i, got, step.want)
			}
		}
		if err := b.take(20, stored); err != nil {
			t.Fatal(err)
		}
		if m.forget(b); believed() != 0 {
			t.Error("a rank that is gone still counts")
		}
	})
}

// What is not to be matched by a prompt of text alone gets a key of its own,
// and what cannot be understood is counted.
func TestKeysTellApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLink(t, rand.New(rand.NewPCG(2, 2)))
		tokens := []uint32{1, 2, 3, 4, 5, 6, 7, 8}
		keys := func(f func(e *sim.BlockEvents)) map[uint64]bool {
			m := &blockImage{pool: l.pool, replica: "r0", blockTokens: testBlock}
			r := m.newRank()
			e := sim.NewBlockEvents(l.form)
			f(e)
			_, p, _ := e.Batch(0)
			if err := r.take(0, p); err != nil {
				t.Fatal(err)
			}
			out := map[uint64]bool{}
			r.table.each(func(k uint64) { out[k] = true })
			return out
		}
		for _, c := range []struct{ lora, salt string }{{}, {"sql", ""}, {"", "tenant"}, {"sql", "tenant"}} {
			got := keys(func(e *sim.BlockEvents) {
				e.Stored(1, 0, true, tokens[:4], c.lora, c.salt)
				e.Stored(2, 1, false, tokens[4:], c.lora, c.salt)
			})
			for _, k := range decider.AppendTokenBlocks(nil, l.pool.PromptSeed([]byte(c.lora), []byte(c.salt)), tokens, testBlock) {
				if !got[k] {
					t.Errorf("%+v: the key of the prompt is not there", c)
				}
			}
		}
		m := &blockImage{pool: l.pool, replica: "r0", blockTokens: 16}
		r := m.newRank()
		e := sim.NewBlockEvents(l.form)
		e.Stored(1, 0, true, tokens[:4], "", "")
		_, p, _ := e.Batch(0)
		if err := r.take(0, p); err != nil || m.status().Strange != 1 || m.status().Blocks != 0 {
			t.Errorf("blocks of another size: %v %+v", err, m.status())
		}
		m.blockTokens = testBlock
		e.Stored(9, 8, false, tokens[:4], "", "")
		_, p, _ = e.Batch(0)
		if err := r.take(1, p); err != nil || m.status().Orphans != 1 {
			t.Errorf("a block after one that nobody knows: %v %+v", err, m.status())
		}
		if err := r.take(2, []byte("nonsense")); err == nil || m.status().Rebuilt != 1 {
			t.Errorf("nonsense: %v %+v", err, m.status())
		}
	})
}

func TestBlockTable(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	var table blockTable
	want := map[uint64][2]uint64{} // hash: key, count
	for i := range 200_000 {
		h := r.Uint64N(3000)
		if r.IntN(2) == 0 {
			w := want[h]
			if fresh := table.add(h, h+7); fresh != (w[1] == 0) {
				t.Fatalf("step %d: fresh %v of %v", i, fresh, w)
			}
			want[h] = [2]uint64{h + 7, w[1] + 1}
		} else {
			w := want[h]
			if _, last := table.remove(h); last != (w[1] == 1) {
				t.Fatalf("step %d: last %v of %v", i, last, w)
			}
			if w[1] <= 1 {
				delete(want, h)
			} else {
				want[h] = [2]uint64{w[0], w[1] - 1}
			}
		}
		if table.used != len(want) {
			t.Fatalf("step %d: %d, want %d", i, table.used, len(want))
		}
	}
	table.each(func(key uint64) {
		if _, ok := want[key-7]; !ok {
			t.Errorf("%d is not gone", key)
		}
	})
}

func FuzzReadBatch(f *testing.F) {
	for _, form := range []sim.BlockEventsOptions{{BlockSize: 2}, {BlockSize: 2, Maps: true}, {BlockSize: 2, ByteHashes: true}} {
		e := sim.NewBlockEvents(form)
		e.Stored(1, 0, true, []uint32{1, 2}, "sql", "tenant")
		e.Stored(2, 1, false, []uint32{3, 4}, "sql", "tenant")
		e.Removed(1)
		e.Cleared()
		_, p, _ := e.Batch(1)
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		var e blockEvent
		n := 0
		_ = readBatch(payload, &e, func(e *blockEvent) {
			n++
			for _, x := range e.extra {
				otherKeys(x, e.lora)
			}
			if len(e.hashes) > len(payload) || len(e.tokens) > len(payload) {
				t.Fatal("more than there can be")
			}
		})
		if n > len(payload) {
			t.Fatal("more events than bytes")
		}
	})
}

// BenchmarkBlockEvents takes in batches as of a busy replica: each stores the
// four blocks of one event and removes as many, in a cache of 60,000.
func BenchmarkBlockEvents(b *testing.B) {
	d := decider.New(func() time.Duration { return 0 }, func() uint64 { return 1 })
	d.Apply(decider.Config{Pools: []decider.PoolConfig{{Name: "llama", Policy: kvAware(16), Replicas: []decider.ReplicaConfig{{Name: "r0"}}}}})
	m := &blockImage{pool: d.Pool("llama"), replica: "r0", blockTokens: 16}
	rank := m.newRank()
	m.begin()
	e := sim.NewBlockEvents(sim.BlockEventsOptions{BlockSize: 16, Keep: 1})
	var payloads [][]byte
	tokens := make([]uint32, 16)
	const cache = 60_000
	for i := range uint64(2 * cache / 4) {
		for k := range uint64(4) {
			key := 1 + i*4 + k
			tokens[0], tokens[1] = uint32(key), uint32(key>>32)
			e.Stored(key, key-1, k == 0, tokens, "", "")
		}
		if i >= cache/4 {
			for k := range uint64(4) {
				e.Removed(1 + (i-cache/4)*4 + k)
			}
		}
		_, p, _ := e.Batch(0)
		payloads = append(payloads, append([]byte(nil), p...))
	}
	for i, p := range payloads {
		if err := rank.take(uint64(i), p); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	i := cache / 4
	for b.Loop() {
		if err := rank.take(uint64(i), payloads[i]); err != nil {
			b.Fatal(err)
		}
		if i++; i == len(payloads) {
			i = cache / 4
		}
	}
	b.ReportMetric(5/(b.Elapsed().Seconds()/float64(b.N)), "events/s")
	b.ReportMetric(float64(len(rank.table.slots))*24/float64(rank.table.used), "table-B/block")
	if rank.table.used < cache/2 {
		b.Fatal(fmt.Sprint("the cache holds only ", rank.table.used))
	}
}
