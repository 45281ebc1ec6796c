package decider_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/sim"
)

// watcher is LeastWork, and records what each chosen replica was believed to have cached.
type watcher struct {
	policy.LeastWork
	cached   []int
	expected map[decider.ID]int
}

func (w *watcher) Rank(r *decider.Request, v *decider.View, dst []int) []int {
	w.cached = w.cached[:0]
	for i := range v.Replicas {
		w.cached = append(w.cached, v.Cached(i))
	}
	return w.LeastWork.Rank(r, v, dst)
}

func (w *watcher) Reserved(r *decider.Request, replica int)            { w.expected[r.ID] = w.cached[replica] }
func (*watcher) FirstToken(*decider.Request, int)                      {}
func (*watcher) Finished(_ *decider.Request, _ int, _ decider.Outcome) {}

// With first tokens and ends reported as they come, the cache model knows what the
// engines have: of nearly every prompt the very number of tokens that the
// engine finds in its cache, through evictions, shared prefixes, and
// conversations that come back after others have taken their place.
func TestCacheModelFollowsTheEngines(t *testing.T) {
	const (
		engines, block, cacheTokens = 4, 256, 150_000
		requests                    = 4000
	)
	now := time.Duration(0)
	watch := &watcher{expected: map[decider.ID]int{}}
	d := decider.New(func() time.Duration { return now }, func() uint64 { return 1 })
	c := decider.PoolConfig{Name: "p", Policy: watch, BlockTokens: block, CacheTokens: cacheTokens}
	fleet := make([]*sim.Engine, engines)
	names := make([]string, engines)
	for k := range fleet {
		var err error
		if fleet[k], err = sim.NewEngine(sim.EngineOptions{Profile: sim.Profile70B, BlockSize: block, CacheTokens: cacheTokens}); err != nil {
			t.Fatal(err)
		}
		names[k] = fmt.Sprint("r", k)
		c.Replicas = append(c.Replicas, decider.ReplicaConfig{Name: names[k]})
	}
	d.Apply(decider.Config{Pools: []decider.PoolConfig{c}})
	pool := d.Pools()[0]

	chance := rand.New(rand.NewPCG(7, 7))
	conversations := make([][]uint64, 120)
	system := []uint64{1, 2, 3, 4}
	exact, asked, found, missed, extra := 0, 0, 0, 0, 0
	run := func(until time.Duration) {
		for {
			next := -1
			for k, e := range fleet {
				at, busy := e.Next()
				if busy && at <= until {
					if best := next; best < 0 {
						next = k
					} else if other, _ := fleet[best].Next(); at < other {
						next = k
					}
				}
			}
			if next < 0 {
				return
			}
			now, _ = fleet[next].Next()
			for _, ev := range fleet[next].Step(now) {
				id := ev.Job.Owner.(decider.ID)
				switch ev.Kind {
				case sim.FirstToken:
					pool.FirstToken(id, []byte(names[next]))
					expected := watch.expected[id]
					if expected == ev.Job.Cached {
						exact++
					}
					missed += max(0, ev.Job.Cached-expected)
					extra += max(0, expected-ev.Job.Cached)
					found += ev.Job.Cached
					asked += ev.Job.Input
				case sim.Finished:
					pool.Finished(decider.Outcome{ID: id, Server: []byte(names[next])})
				}
			}
		}
	}
	arrival := time.Duration(0)
	for n := range requests {
		arrival += time.Duration(chance.ExpFloat64() * 0.55 * float64(time.Second))
		run(arrival)
		now = arrival
		k := chance.IntN(len(conversations))
		if len(conversations[k]) == 0 || len(conversations[k]) > 80 || chance.IntN(12) == 0 {
			conversations[k] = append([]uint64(nil), system...)
		}
		for range 4 + chance.IntN(16) { // a turn
			conversations[k] = append(conversations[k], chance.Uint64())
		}
		r := decider.Request{Pool: pool, Stream: true, Output: -1,
			Blocks: conversations[k], Input: len(conversations[k])*block + chance.IntN(block)}
		binary.BigEndian.PutUint64(r.ID[:], uint64(n+1))
		var dec decider.Decision
		pool.Decide(&r, &dec)
		for k, name := range names {
			if name == dec.Server {
				job := &sim.Job{Blocks: append([]uint64(nil), r.Blocks...), Input: r.Input, Output: 1 + chance.IntN(600), Owner: r.ID}
				if err := fleet[k].Submit(now, job); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	run(1 << 62)
	share := float64(exact) / requests
	t.Logf("%d of %d predictions exact; of %d prompt tokens %d were cached, %d of them not expected, %d expected but not cached",
		exact, requests, asked, found, missed, extra)
	if share < 0.9 {
		t.Errorf("%.1f %% of the predictions are exact, want 90 at least", 100*share)
	}
	if float64(missed+extra) > 0.03*float64(asked) {
		t.Errorf("wrong by %.1f %% of all prompt tokens, want 3 at most", 100*float64(missed+extra)/float64(asked))
	}
	if found < asked/10 {
		t.Errorf("only %d of %d tokens were cached: the test tests nothing", found, asked)
	}
}
