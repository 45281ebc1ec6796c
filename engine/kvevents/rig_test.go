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

// spy records how many tokens of a prompt the pool takes to be cached on a replica.
type spy struct {
	*policy.KVAware
	replica, cached int
}

func (s *spy) Rank(_ *decider.Request, v *decider.View, dst []int) []int {
	s.cached = v.Cached(s.replica)
	return dst
}

// rig is an engine and its subscriber, in virtual time and without sockets.
type rig struct {
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
	kind     faults
	lossy    bool
	unsure   bool // the connection broke, and there is no replay
	forgot   bool // the agent was restarted after a loss: it may know less than is provable
	prompts  [][]uint32

	unsent    []change   // changes since the last batch
	batches   [][]change // changes by batch, of the present run of the engine
	arrived   []bool     // which of them have arrived
	floor     int        // the batches below it are not known to be of this run
	receiving bool       // a batch has arrived over the present connection
	names     map[uint64]change
	history   history

	exact, of     int // verifications, and those at which the whole cache was known
	known, stored int // blocks, summed over all verifications
}

// faults are what goes wrong between engine and subscriber.
type faults int

const (
	lossless     faults = iota
	lossy               // batches are lost, and some replays fail or break off
	failedReplay        // batches are lost, and all replays fail
	noReplay            // batches are lost, and there is no replay
)

// history is what the batches from one on prove.
type history struct {
	from, upto int
	cached     map[uint64]bool
	complete   bool // cached is the whole cache
}

// change is one change to the cache of the engine.
type change struct {
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

func newRig(t *testing.T, r *rand.Rand) *rig {
	l := &rig{t: t, rand: r, form: fakevllm.KVEventsOptions{
		BlockSize: testBlock, Maps: r.IntN(2) == 0, ByteHashes: r.IntN(2) == 0, Keep: 1 << (3 + r.IntN(10)),
	}}
	l.spy = &spy{KVAware: kvAware(testBlock)}
	start := time.Now()
	d := decider.New(func() time.Duration { return time.Since(start) }, func() uint64 { return 1 })
	d.Apply(decider.Config{Pools: []decider.PoolConfig{{Name: "llama", Policy: l.spy, Replicas: []decider.ReplicaConfig{{Name: "r0"}}}}})
	l.pool = d.Pool("llama")
	m := &Index{pool: l.pool, replica: "r0", blockTokens: testBlock}
	l.follower = &subscriber{rank: m.newRank("rank 0"), replay: "there is one", log: func(string, error) {}, replayer: l.replay}
	l.names = map[uint64]change{}
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

// startEngine starts an engine with an empty cache.
func (l *rig) startEngine() {
	l.log = fakevllm.NewKVEvents(l.form)
	l.unsent, l.batches, l.arrived, l.floor, l.receiving, l.history = nil, nil, nil, 0, false, history{}
	l.starts++
	l.emptyEngine()
}

func (l *rig) emptyEngine() {
	e, err := sim.NewEngine(sim.EngineOptions{
		Profile: sim.Profile8B, BlockSize: testBlock, CacheTokens: 80 * testBlock,
		Stored: func(j *sim.Job, i int) {
			parent := uint64(0)
			if i > 0 {
				parent = j.Blocks[i-1]
			}
			l.unsent = append(l.unsent, change{key: j.Blocks[i], parent: parent, stored: true, first: i == 0})
			l.log.Stored(j.Blocks[i], parent, i == 0, j.Owner.([]uint32)[i*testBlock:(i+1)*testBlock], "", "")
		},
		Removed: func(key uint64) {
			l.unsent = append(l.unsent, change{key: key})
			l.log.Removed(key)
		},
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.engine = e
}

// clear empties the engine's cache.
func (l *rig) clear() {
	l.step(1 << 20)
	l.emptyEngine()
	l.unsent = append(l.unsent, change{cleared: true})
	l.log.Cleared()
	l.publish()
}

var errLost = errors.New("lost")

// replay plays the role of subscriber.replayOnce.
func (l *rig) replay(context.Context) error {
	if l.lossy && l.rand.IntN(3) == 0 || l.kind == failedReplay {
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
		l.arrive(n)
		if int(n) < l.floor {
			l.floor = 0 // the engine still has a batch from before the connection broke
		}
	})
	if err != nil {
		return err
	}
	return p.end()
}

// arrive notes that the subscriber has got a batch.
func (l *rig) arrive(number uint64) {
	l.arrived[number] = true
	for _, h := range l.batches[number] {
		if h.stored {
			l.names[h.key] = h
		}
	}
}

// batch makes a batch of the changes since the last one, if there are any.
func (l *rig) batch() (number uint64, payload []byte, ok bool) {
	if number, payload, ok = l.log.Batch(float64(l.starts)); ok {
		l.batches, l.arrived = append(l.batches, l.unsent), append(l.arrived, false)
		l.unsent = nil
	}
	return number, payload, ok
}

// publish publishes the changes, unless the batch is lost. It reports whether a batch
// has arrived.
func (l *rig) publish() bool {
	number, payload, ok := l.batch()
	if !ok || l.lossy && l.rand.IntN(20) == 0 {
		return false
	}
	l.follower.onBatch(context.Background(), number, payload, l.unsure)
	l.unsure = false
	l.receiving = true
	l.arrive(number)
	l.follower.retryReplay(context.Background())
	return true
}

// step runs up to most steps of the engine. It reports whether a batch has arrived.
func (l *rig) step(most int) (came bool) {
	for range most {
		if !l.advance() {
			break
		}
		came = l.publish() || came
	}
	return came
}

// advance runs one step of the engine at its time. It reports whether there was one.
func (l *rig) advance() bool {
	next, busy := l.engine.Next()
	if !busy {
		return false
	}
	if next > l.now {
		time.Sleep(next - l.now)
		l.now = next
	}
	l.engine.Step(l.now)
	return true
}

func (l *rig) submit() {
	l.submitPrompt(l.prompts[l.rand.IntN(len(l.prompts))])
}

func (l *rig) submitPrompt(p []uint32) {
	j := &sim.Job{Input: len(p), Output: 1 + l.rand.IntN(8), Owner: p, Blocks: kvcache.AppendKeys(nil, l.pool.Hashing(), prompt.Seed(l.pool.Hashing(), []byte(l.pool.Name()), nil, nil), p, testBlock)}
	if err := l.engine.Submit(l.now, j); err != nil {
		l.t.Fatal(err)
	}
}

// restart starts a new engine process: an empty cache, batches from 0 on.
func (l *rig) restart() {
	l.startEngine()
	l.reconnect()
}

// reconnect breaks the connection and makes it again at once.
func (l *rig) reconnect() {
	if l.receiving {
		clear(l.arrived[:l.floor]) // never known to be of this run
		l.floor, l.receiving = len(l.arrived), false
		for l.floor > 0 && !l.arrived[l.floor-1] {
			l.floor--
		}
	}
	l.unsure = l.follower.onConnect(context.Background())
	if l.kind == noReplay {
		l.floor = 0 // without replay the numbers decide
	}
}

// provable returns the keys of the blocks that the batches prove to be cached: since
// the last one that has not arrived, those stored and those before them, without those
// removed. complete means that this is the whole cache.
func (l *rig) provable() (keys map[uint64]bool, complete bool) {
	from := l.floor
	for n, got := range l.arrived {
		if !got {
			from = max(from, n+1)
		}
	}
	if f := &l.history; f.cached == nil || f.from != from {
		*f = history{from: from, upto: from, cached: map[uint64]bool{}, complete: from == 0}
	}
	there := l.history.cached
	for ; l.history.upto < len(l.batches); l.history.upto++ {
		for _, h := range l.batches[l.history.upto] {
			switch {
			case h.cleared:
				clear(there)
				l.history.complete = true
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
	// The key of a block is known if the content of all before it is.
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
	return keys, l.history.complete
}

// verify lets the engine finish and the subscriber catch up. Then the index must have
// exactly the blocks that are provable, all of them cached, and the pool must use them.
func (l *rig) verify() {
	l.step(1 << 20)
	before := l.lossy
	l.lossy = false
	time.Sleep(max(replayAfter, lastRetry))
	_ = l.follower.requestReplay(context.Background())
	if l.kind >= failedReplay { // only a batch shows that the one before it was lost
		for came := false; !came; came = l.step(1 << 20) {
			l.submitPrompt([]uint32{l.rand.Uint32(), 1, 2, 3})
		}
	}
	l.lossy = before
	provable, complete := l.provable()
	known := map[uint64]bool{}
	l.follower.rank.table.keys(func(key uint64, _ kvcache.Tier) { known[key] = true })
	for key := range known {
		if !provable[key] {
			l.t.Fatalf("the index has a block that nothing proves (cached: %v): from %d floor %d of %d complete %v", l.engine.Holds(key), l.history.from, l.floor, len(l.arrived), complete)
		}
	}
	if l.forgot {
		provable = known
	}
	if len(known) != len(provable) {
		r := l.follower.rank
		l.t.Fatalf("the index has %d blocks, %d are provable: %+v confirming=%v disconnected=%v from %d of %d keep %d floor %d ", len(known), len(provable), r.snapshots, r.confirming, r.disconnected, l.history.from, len(l.batches), l.form.Keep, l.floor)
	}
	for key := range provable {
		if !l.engine.Holds(key) {
			l.t.Fatal("a provable block is not cached")
		}
	}
	stored := l.engine.Stats().CachedBlocks
	if complete && stored != len(known) {
		l.t.Fatalf("the index has %d blocks of %d, and all are provable", len(known), stored)
	}
	l.of++
	if stored == len(known) {
		l.exact++
	}
	l.known, l.stored = l.known+len(known), l.stored+stored
	// The pool uses the index.
	var d decider.Decision
	for _, p := range l.prompts {
		r := decider.Request{Pool: l.pool}
		keys := kvcache.AppendKeys(nil, l.pool.Hashing(), prompt.Seed(l.pool.Hashing(), []byte(l.pool.Name()), nil, nil), p, testBlock)
		r.Tokenized(keys, len(p)+1)
		l.pool.Decide(&r, &d)
		l.pool.Finished(decider.Outcome{ID: r.ID, End: decider.ClientGone})
		want := 0
		for want < len(keys) && provable[keys[want]] {
			want++
		}
		if believed := l.spy.cached / testBlock; believed != want {
			l.t.Fatalf("the pool takes %d of %d blocks of a prompt to be cached, not %d", believed, len(keys), want)
		}
	}
}
