package kvevents

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/tinylib/msgp/msgp"

	"pointsman/decider"
	"pointsman/decider/kvcache"
	"pointsman/sim"
	"pointsman/sim/fakevllm"
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
	form   fakevllm.KVEventsOptions
	engine *sim.Engine
	log    *fakevllm.KVEvents
	now    time.Duration
	starts int // of engines

	pool     *decider.Pool
	spy      *spy
	follower *blockFollower
	kind     linkKind
	lossy    bool
	unsure   bool // the connection has been broken, and there is no replay
	prompts  [][]uint32

	making  []happened   // since the last batch
	batches [][]happened // of the present engine, by number
	got     []bool       // which of them have come
	floor   int          // those before it are not known to be of the present engine
	landed  bool         // a batch has come over the present connection
	names   map[uint64]happened
	fold    fold

	exact, of     int // quiet moments, and those at which all was known
	known, stored int // blocks, summed over them
}

// linkKind says what may go wrong on a link.
type linkKind int

const (
	lossless   linkKind = iota
	lossy               // batches are lost, and replays fail or break off now and then
	deadReplay          // batches are lost, and all replays
	noReplay            // batches are lost, and there is no replay
)

// fold is what the batches from one on tell.
type fold struct {
	from, upto int
	there      map[uint64]bool
	whole      bool // and all that is there
}

// happened is one thing that happened to a block, as the engine knows it.
type happened struct {
	key, parent            uint64
	stored, first, cleared bool // else the block was removed
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
	l := &link{t: t, rand: r, form: fakevllm.KVEventsOptions{
		BlockSize: testBlock, Maps: r.IntN(2) == 0, ByteHashes: r.IntN(2) == 0, Keep: 1 << (3 + r.IntN(10)),
	}}
	l.spy = &spy{KVAware: kvAware(testBlock)}
	start := time.Now()
	d := decider.New(func() time.Duration { return time.Since(start) }, func() uint64 { return 1 })
	d.Apply(decider.Config{Pools: []decider.PoolConfig{{Name: "llama", Policy: l.spy, Replicas: []decider.ReplicaConfig{{Name: "r0"}}}}})
	l.pool = d.Pool("llama")
	m := &Index{pool: l.pool, replica: "r0", blockTokens: testBlock}
	l.follower = &blockFollower{rank: m.newRank(), replay: "there is one", log: func(string, error) {}, ask: l.replay}
	l.names = map[uint64]happened{}
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

// startEngine begins with an engine whose cache is empty.
func (l *link) startEngine() {
	l.log = fakevllm.NewKVEvents(l.form)
	l.making, l.batches, l.got, l.floor, l.landed, l.fold = nil, nil, nil, 0, false, fold{}
	l.starts++
	l.emptyEngine()
}

func (l *link) emptyEngine() {
	e, err := sim.NewEngine(sim.EngineOptions{
		Profile: sim.Profile8B, BlockSize: testBlock, CacheTokens: 80 * testBlock,
		Stored: func(j *sim.Job, i int) {
			parent := uint64(0)
			if i > 0 {
				parent = j.Blocks[i-1]
			}
			l.making = append(l.making, happened{key: j.Blocks[i], parent: parent, stored: true, first: i == 0})
			l.log.Stored(j.Blocks[i], parent, i == 0, j.Owner.([]uint32)[i*testBlock:(i+1)*testBlock], "", "")
		},
		Removed: func(key uint64) {
			l.making = append(l.making, happened{key: key})
			l.log.Removed(key)
		},
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.engine = e
}

// clear empties the engine's cache.
func (l *link) clear() {
	l.step(1 << 20)
	l.emptyEngine()
	l.making = append(l.making, happened{cleared: true})
	l.log.Cleared()
	l.publish()
}

var errLost = errors.New("lost")

// replay is what the engine answers when it is asked for past batches.
func (l *link) replay(context.Context) error {
	if l.lossy && l.rand.IntN(3) == 0 || l.kind == deadReplay {
		return errLost
	}
	p := l.follower.rank.replay()
	var err error
	stop := ^uint64(0)
	if l.lossy && l.rand.IntN(5) == 0 {
		stop = p.from + l.rand.Uint64N(4) // it breaks off
	}
	l.log.Replay(p.from, func(n uint64, payload []byte) {
		if err == nil && n >= stop {
			err = errLost
		}
		if err == nil {
			err = p.batch(n, payload)
		}
		if err != nil {
			return
		}
		l.came(n)
		if int(n) < l.floor {
			l.floor = 0 // one from before the connection broke
		}
	})
	if err != nil {
		return err
	}
	return p.end()
}

// came notes that the follower has been given a batch.
func (l *link) came(number uint64) {
	l.got[number] = true
	for _, h := range l.batches[number] {
		if h.stored {
			l.names[h.key] = h
		}
	}
}

// publish sends what happened, unless it is lost. It reports whether something
// came.
func (l *link) publish() bool {
	number, payload, ok := l.log.Batch(float64(l.starts))
	if !ok {
		return false
	}
	l.batches, l.got = append(l.batches, l.making), append(l.got, false)
	l.making = nil
	if l.lossy && l.rand.IntN(20) == 0 {
		return false
	}
	l.follower.live(context.Background(), number, payload, l.unsure)
	l.unsure = false
	l.landed = true
	l.came(number)
	l.follower.complete(context.Background())
	return true
}

// step lets the engine compute until it is idle, or only for a while. It
// reports whether something came.
func (l *link) step(most int) (came bool) {
	for range most {
		next, busy := l.engine.Next()
		if !busy {
			break
		}
		if next > l.now {
			time.Sleep(next - l.now)
			l.now = next
		}
		l.engine.Step(l.now)
		came = l.publish() || came
	}
	return came
}

func (l *link) submit() {
	l.submitPrompt(l.prompts[l.rand.IntN(len(l.prompts))])
}

func (l *link) submitPrompt(p []uint32) {
	j := &sim.Job{Input: len(p), Output: 1 + l.rand.IntN(8), Owner: p, Blocks: kvcache.AppendKeys(nil, l.pool.PromptSeed(nil, nil), p, testBlock)}
	if err := l.engine.Submit(l.now, j); err != nil {
		l.t.Fatal(err)
	}
}

// restart is a new engine process: an empty cache, batches from 0 on.
func (l *link) restart() {
	l.startEngine()
	l.reconnect()
}

// reconnect breaks the follower's connection, which stands again at once.
func (l *link) reconnect() {
	if l.landed {
		clear(l.got[:l.floor]) // not known to be of this engine, and never will be
		l.floor, l.landed = len(l.got), false
		for l.floor > 0 && !l.got[l.floor-1] {
			l.floor--
		}
	}
	l.unsure = l.follower.connected(context.Background())
	if l.kind == noReplay {
		l.floor = 0 // it goes by the numbers alone
	}
}

// tellable are the keys of the blocks that are there for sure by all that has
// come: those stored, and those that another one was stored after, since the
// last batch that has not come, and not removed again.
func (l *link) tellable() (keys map[uint64]bool, whole bool) {
	from := l.floor
	for n, got := range l.got {
		if !got {
			from = max(from, n+1)
		}
	}
	if f := &l.fold; f.there == nil || f.from != from {
		*f = fold{from: from, upto: from, there: map[uint64]bool{}, whole: from == 0}
	}
	there := l.fold.there
	for ; l.fold.upto < len(l.batches); l.fold.upto++ {
		for _, h := range l.batches[l.fold.upto] {
			switch {
			case h.cleared:
				clear(there)
				l.fold.whole = true
			case !h.stored:
				delete(there, h.key)
			default:
				there[h.key] = true
				for p := h; !p.first; {
					there[p.parent] = true
					var named bool
					if p, named = l.names[p.parent]; !named {
						break
					}
				}
			}
		}
	}
	// The key of a block is known where all before it have been named.
	keys = map[uint64]bool{}
	for key := range there {
		h, named := l.names[key]
		for named && !h.first {
			h, named = l.names[h.parent]
		}
		if named {
			keys[key] = true
		}
	}
	return keys, l.fold.whole
}

// quiet lets all come to rest and compares what is believed with what can be
// told, and that with what is there.
func (l *link) quiet() {
	l.step(1 << 20)
	before := l.lossy
	l.lossy = false
	time.Sleep(max(quiet, lastRetry))
	_ = l.follower.catchUp(context.Background())
	if l.kind >= deadReplay { // only a batch can tell that the one before it was lost
		for came := false; !came; came = l.step(1 << 20) {
			l.submitPrompt([]uint32{l.rand.Uint32(), 1, 2, 3})
		}
	}
	l.lossy = before
	tellable, whole := l.tellable()
	known := map[uint64]bool{}
	l.follower.rank.table.keys(func(key uint64) { known[key] = true })
	for key := range known {
		if !tellable[key] {
			l.t.Fatalf("a block is believed cached of which nothing told (cached: %v): from %d floor %d of %d whole %v", l.engine.Holds(key), l.fold.from, l.floor, len(l.got), whole)
		}
	}
	if len(known) != len(tellable) {
		r := l.follower.rank
		l.t.Fatalf("%d blocks are known to be cached, %d could be: %+v behind=%v adrift=%v from %d of %d keep %d floor %d ", len(known), len(tellable), r.accounts, r.behind, r.adrift, l.fold.from, len(l.batches), l.form.Keep, l.floor)
	}
	for key := range tellable {
		if !l.engine.Holds(key) {
			l.t.Fatal("what is told is not so")
		}
	}
	stored := l.engine.Stats().StoredBlocks
	if whole && stored != len(known) {
		l.t.Fatalf("%d blocks are known to be cached, %d are, and all was told", len(known), stored)
	}
	l.of++
	if stored == len(known) {
		l.exact++
	}
	l.known, l.stored = l.known+len(known), l.stored+stored
	// The pool goes by it.
	var d decider.Decision
	for _, p := range l.prompts {
		r := decider.Request{Pool: l.pool}
		keys := kvcache.AppendKeys(nil, l.pool.PromptSeed(nil, nil), p, testBlock)
		r.Tokenized(keys, len(p)+1)
		l.pool.Decide(&r, &d)
		l.pool.Finished(decider.Outcome{ID: r.ID, End: decider.ClientGone})
		want := 0
		for want < len(keys) && tellable[keys[want]] {
			want++
		}
		if believed := l.spy.cached / testBlock; believed != want {
			l.t.Fatalf("%d of %d blocks of a prompt are believed cached, not %d", believed, len(keys), want)
		}
	}
}

// Over ten minutes of random work with gaps, restarts, replays that fail or
// break off, and evictions all the time, what is believed cached is at every
// quiet moment exactly what can be told by what has come, no more and no less;
// and that is all of the engine's cache where no batch is lost for good.
func TestBlocksAreThoseOfTheEngine(t *testing.T) {
	for kind, name := range []string{"lossless", "lossy", "dead replay", "no replay"} {
		var sum link
		for seed := range uint64(4) {
			synctest.Test(t, func(t *testing.T) {
				l := newLink(t, rand.New(rand.NewPCG(seed, uint64(kind))))
				l.kind = linkKind(kind)
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
					case n < 991:
						l.reconnect()
					case n < 992:
						l.clear()
					default:
						l.quiet()
					}
				}
				l.quiet()
				sum.exact, sum.of = sum.exact+l.exact, sum.of+l.of
				sum.known, sum.stored = sum.known+l.known, sum.stored+l.stored
			})
		}
		t.Logf("%s: all was known at %d of %d quiet moments, and %.1f %% of all blocks", name, sum.exact, sum.of, 100*float64(sum.known)/float64(sum.stored))
		if sum.of < 1000 || linkKind(kind) == lossless && sum.exact != sum.of {
			t.Errorf("%s: all was known at %d of %d quiet moments", name, sum.exact, sum.of)
		}
	}
}

func TestRanksOfOneReplicaAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLink(t, rand.New(rand.NewPCG(1, 1)))
		m := l.follower.rank.of
		a, b := l.follower.rank, m.newRank()
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
			r.Tokenized(kvcache.AppendKeys(nil, l.pool.PromptSeed(nil, nil), tokens, testBlock), 9)
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
		keys := func(f func(e *fakevllm.KVEvents)) map[uint64]bool {
			m := &Index{pool: l.pool, replica: "r0", blockTokens: testBlock}
			r := m.newRank()
			e := fakevllm.NewKVEvents(l.form)
			f(e)
			_, p, _ := e.Batch(0)
			if err := r.take(0, p); err != nil {
				t.Fatal(err)
			}
			out := map[uint64]bool{}
			r.table.keys(func(k uint64) { out[k] = true })
			return out
		}
		for _, c := range []struct{ lora, salt string }{{}, {"sql", ""}, {"", "tenant"}, {"sql", "tenant"}} {
			got := keys(func(e *fakevllm.KVEvents) {
				e.Stored(1, 0, true, tokens[:4], c.lora, c.salt)
				e.Stored(2, 1, false, tokens[4:], c.lora, c.salt)
			})
			for _, k := range kvcache.AppendKeys(nil, l.pool.PromptSeed([]byte(c.lora), []byte(c.salt)), tokens, testBlock) {
				if !got[k] {
					t.Errorf("%+v: the key of the prompt is not there", c)
				}
			}
		}
		m := &Index{pool: l.pool, replica: "r0", blockTokens: 16}
		r := m.newRank()
		e := fakevllm.NewKVEvents(l.form)
		e.Stored(1, 0, true, tokens[:4], "", "")
		_, p, _ := e.Batch(0)
		if err := r.take(0, p); err != nil || m.Status().Strange != 1 || m.Status().Blocks != 0 {
			t.Errorf("blocks of another size: %v %+v", err, m.Status())
		}
		m.blockTokens = testBlock
		e.Stored(9, 8, false, tokens[:4], "", "")
		_, p, _ = e.Batch(0)
		if err := r.take(1, p); err != nil || m.Status().Orphans != 1 {
			t.Errorf("a block after one that nobody knows: %v %+v", err, m.Status())
		}
		if err := r.take(2, []byte("nonsense")); err == nil || m.Status().Rebuilt != 1 {
			t.Errorf("nonsense: %v %+v", err, m.Status())
		}
	})
}

// A block proves those before it, but not where layers look back no further than
// a window.
func TestABlockProvesThoseBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, window := range []bool{false, true} {
			l := newLink(t, rand.New(rand.NewPCG(4, 4)))
			r := l.follower.rank
			e := fakevllm.NewKVEvents(fakevllm.KVEventsOptions{BlockSize: testBlock})
			tokens := make([]uint32, testBlock)
			e.Stored(1, 0, true, tokens, "", "")
			e.Stored(2, 1, false, tokens, "", "")
			_, first, _ := e.Batch(0)
			if err := r.take(0, first); err != nil || r.table.known != 2 {
				t.Fatal(err, r.table.known)
			}
			if r.lose(2, true); r.table.known != 0 {
				t.Fatal("what may be gone is believed to be there")
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
			if err := r.take(2, b); err != nil || r.table.known != want {
				t.Errorf("window %v: %d blocks, want %d (%v)", window, r.table.known, want, err)
			}
		}
	})
}

// What is kept for a book is bounded, and when it is too much the book is given
// up, not what is known.
func TestKeepsNoMoreThanItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLink(t, rand.New(rand.NewPCG(5, 5)))
		r := l.follower.rank
		e := fakevllm.NewKVEvents(fakevllm.KVEventsOptions{BlockSize: testBlock, Keep: 1})
		r.lose(5, true)
		tokens := make([]uint32, testBlock)
		n := uint64(5)
		for key := uint64(1); r.behind; n++ {
			for i := range 1000 {
				e.Stored(key, key-1, i == 0, tokens, "", "")
				key++
			}
			_, p, _ := e.Batch(0)
			if err := r.take(n, p); err != nil {
				t.Fatal(err)
			}
			if r.bytes > maxKept || n > 10_000 {
				t.Fatalf("%d bytes are kept of %d batches", r.bytes, n)
			}
		}
		if len(r.kept) > 0 || r.bytes != 0 || r.table.known != int(n-5)*1000 {
			t.Errorf("%d batches and %d bytes are kept, %d blocks known of %d", len(r.kept), r.bytes, r.table.known, (n-5)*1000)
		}
	})
}

// An engine that never tells what is gone does not fill the memory: all is
// forgotten at the bound, and what it tells then counts again.
func TestBlocksAreBounded(t *testing.T) {
	defer func(n int) { mostBlocks = n }(mostBlocks)
	mostBlocks = 5000
	synctest.Test(t, func(t *testing.T) {
		l := newLink(t, rand.New(rand.NewPCG(6, 6)))
		m := &Index{pool: l.pool, replica: "r1", blockTokens: testBlock}
		m.begin()
		r := m.newRank()
		e := fakevllm.NewKVEvents(fakevllm.KVEventsOptions{BlockSize: testBlock, Keep: 1})
		tokens := make([]uint32, testBlock)
		failed := 0
		for n := range uint64(100) {
			if n == 50 {
				r.lose(n, true) // there is a book, too
			}
			for i := range uint64(100) {
				key := 1 + 100*n + i
				e.Stored(key, key-1, key == 1, tokens, "", "")
			}
			_, p, _ := e.Batch(0)
			if err := r.take(n, p); err != nil {
				if err != errBlocks {
					t.Fatal(err)
				}
				failed++
			}
			if s := m.Status(); s.Blocks > mostBlocks || len(r.table.slots) > 4*mostBlocks {
				t.Fatalf("%d blocks in %d slots", s.Blocks, len(r.table.slots))
			}
		}
		if s := m.Status(); failed == 0 || failed > 2 || s.Blocks == 0 {
			t.Errorf("%d times too many, %d blocks in the end", failed, s.Blocks)
		}
	})
}

// A table under the same changes as a map, with blocks that come before those
// that they follow: its keys are those of the whole chains.
func TestBlockTable(t *testing.T) {
	const n = 3000
	r := rand.New(rand.NewPCG(3, 3))
	var table blockTable
	told := map[uint64]bool{}
	counts, named := map[uint64]uint16{}, map[uint64]bool{}
	key := func(h uint64) uint64 { // each third block is the first of a prompt
		k := h - h%3
		for b := k + 1; b <= h; b++ {
			k = kvcache.Key(k, b)
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
		s := table.at(h)
		if r.IntN(2) == 0 && !named[h] {
			named[h] = true
			if h%3 == 0 {
				s.key = h
				s.state |= slotNamed | slotFirst | slotPlaced
			} else {
				table.name(s, h-1, h)
			}
			if s.state&slotPlaced != 0 {
				if s.count[present] > 0 {
					told[s.key] = true
				}
				table.adopt(s, func(k uint64) { told[k] = true })
			}
		}
		c := counts[h]
		if r.IntN(2) == 0 {
			c++
		} else if c > 0 {
			c--
		}
		counts[h] = c
		if table.set(table.find(h), present, c) {
			if c > 0 {
				told[table.find(h).key] = true
			} else {
				delete(told, table.find(h).key)
			}
		}
		if step%10_000 > 0 {
			continue
		}
		known, want := 0, map[uint64]bool{}
		for h, c := range counts {
			if c > 0 {
				known++
				if placed(h) {
					want[key(h)] = true
				}
			}
		}
		if table.known != known || !maps.Equal(told, want) {
			t.Fatalf("step %d: %d blocks, want %d; %d keys told, want %d", step, table.known, known, len(told), len(want))
		}
	}
}

// Blocks that are not there are remembered up to a bound, and those that are
// there never forgotten.
func TestBlockTableForgets(t *testing.T) {
	for _, unsure := range []bool{false, true} {
		var table blockTable
		for h := range uint64(10 * leastIdle) {
			s := table.at(h)
			if h%10 == 0 {
				table.set(s, int(h/10)%2, 1)
			}
			if s = table.find(h); h%10 != 1 {
				table.name(s, h+1_000_000, h) // waits for ever
			}
			table.tidy(unsure)
		}
		if table.idle > leastIdle || table.used > 2*leastIdle+1 || table.orphans > table.used || len(table.waiting) != table.orphans {
			t.Errorf("%d idle of %d, %d orphans, %d waited for", table.idle, table.used, table.orphans, len(table.waiting))
		}
		for h := uint64(0); h < 10*leastIdle; h += 10 {
			if s := table.find(h); s == nil || s.count == [2]uint16{} || s.key != h {
				t.Fatalf("block %d is lost: %+v", h, s)
			}
		}
	}
}

func FuzzReadBatch(f *testing.F) {
	for _, form := range []fakevllm.KVEventsOptions{{BlockSize: 2}, {BlockSize: 2, Maps: true}, {BlockSize: 2, ByteHashes: true}} {
		e := fakevllm.NewKVEvents(form)
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
	m := &Index{pool: d.Pool("llama"), replica: "r0", blockTokens: 16}
	rank := m.newRank()
	m.begin()
	e := fakevllm.NewKVEvents(fakevllm.KVEventsOptions{BlockSize: 16, Keep: 1})
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
	b.ReportMetric(float64(len(rank.table.slots))*float64(unsafe.Sizeof(tableSlot{}))/float64(rank.table.known), "table-B/block")
	if rank.table.known < cache/2 {
		b.Fatal(fmt.Sprint("the cache holds only ", rank.table.known))
	}
}
