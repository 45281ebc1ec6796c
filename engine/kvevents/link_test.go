package kvevents

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/decider/kvcache"
	"pointsman/decider/policy"
	"pointsman/prompt"
	"pointsman/sim"
	"pointsman/sim/fakevllm"
)

// spy tells how many tokens of a prompt are believed to be on a replica.
type spy struct {
	*policy.KVAware
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
	follower *subscriber
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

func kvAware(blockTokens int) *policy.KVAware {
	o := decider.TokenDefaults
	o.BlockTokens = blockTokens
	p, err := policy.NewKVAware(o)
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
	l.follower = &subscriber{rank: m.newRank(), replay: "there is one", log: func(string, error) {}, replayer: l.replay}
	l.names = map[uint64]happened{}
	m.startFollowing()
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
	p := l.follower.rank.newReplay()
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
	l.follower.onBatch(context.Background(), number, payload, l.unsure)
	l.unsure = false
	l.landed = true
	l.came(number)
	l.follower.retryReplay(context.Background())
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
	j := &sim.Job{Input: len(p), Output: 1 + l.rand.IntN(8), Owner: p, Blocks: kvcache.AppendKeys(nil, prompt.Seed(l.pool.NameBytes(), nil, nil), p, testBlock)}
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
	l.unsure = l.follower.onConnect(context.Background())
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
	time.Sleep(max(replayAfter, lastRetry))
	_ = l.follower.requestReplay(context.Background())
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
		l.t.Fatalf("%d blocks are known to be cached, %d could be: %+v behind=%v adrift=%v from %d of %d keep %d floor %d ", len(known), len(tellable), r.snapshots, r.confirming, r.disconnected, l.fold.from, len(l.batches), l.form.Keep, l.floor)
	}
	for key := range tellable {
		if !l.engine.Holds(key) {
			l.t.Fatal("what is told is not so")
		}
	}
	stored := l.engine.Stats().CachedBlocks
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
		keys := kvcache.AppendKeys(nil, prompt.Seed(l.pool.NameBytes(), nil, nil), p, testBlock)
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
