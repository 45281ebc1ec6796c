//go:build ignore

package policy

import (
	"math"
	"slices"
	"testing"
	"time"
)

// score runs one scorer over all replicas of a pool.
func score(p *Pool, s Scorer, change ...func(*Request)) []float64 {
	r := Request{ID: newID(), Pool: p, Input: 1000, Output: -1}
	for _, f := range change {
		f(&r)
	}
	v := &p.view
	v.Now, v.input, v.Candidates = p.clock(), r.Input, p.candidates(&r, p.clock())
	out := make([]float64, len(v.Candidates))
	s.Score(&r, v, out)
	return out
}

// hold gives replica i requests that wait for their first token and others
// that have had it.
func hold(p *Pool, i, waiting, running int) {
	for n := range waiting + running {
		r := Request{ID: newID(), Pool: p, Input: 1000, Output: -1, Stream: true}
		p.reserve(&r, p.replicas[i], p.clock())
		if n < running {
			p.FirstToken(r.ID, []byte(p.replicas[i].name))
		}
	}
}

// cache sets how many blocks of the next prompt each replica holds.
func cache(p *Pool, blocks ...int32) {
	p.view.depth, p.view.best = blocks, slices.Max(blocks)
}

func wantScores(t *testing.T, what string, got []float64, want ...float64) {
	t.Helper()
	for c := range want {
		if c >= len(got) || math.Abs(got[c]-want[c]) > 1e-9 && !(math.IsNaN(got[c]) && math.IsNaN(want[c])) {
			t.Errorf("%s: %v, want %v", what, got, want)
			return
		}
	}
}

var none = math.NaN()

func withLoRA(name string) func(*Request) { return func(r *Request) { r.LoRA = name } }

func TestScorers(t *testing.T) {
	p, clock := newTestPool(LeastRequests{}, 3, func(c *PoolConfig) {
		c.CacheTokens, c.BlockTokens = 1000, 250
		c.Filters = Filters{Node: "n1", Zone: "a", LoRASlots: 2}
		c.Replicas[0].Node, c.Replicas[0].Zone = "n1", "a"
		c.Replicas[1].Node, c.Replicas[1].Zone = "n2", "a"
	})
	clock.now = time.Hour
	r := p.replicas
	cache(p, 0, 2, 4)
	wantScores(t, "prefix", score(p, PrefixScorer{}), 0, .5, .999) // the last token is always computed
	wantScores(t, "prefix without a prompt", score(p, PrefixScorer{}, func(r *Request) { r.Input = 0 }), none, none, none)

	wantScores(t, "queue, all equal", score(p, QueueScorer{}), 1, 1, 1)
	hold(p, 0, 4, 0)
	hold(p, 1, 1, 3)
	wantScores(t, "queue", score(p, QueueScorer{}), 0, .75, 1)
	wantScores(t, "running", score(p, RunningScorer{}), 1, 0, 1)
	queueTokens := score(p, QueueTokensScorer{})
	if queueTokens[0] != 0 || queueTokens[1] <= 0 || queueTokens[1] >= 1 || queueTokens[2] != 1 {
		t.Errorf("queue_tokens: %v", queueTokens)
	}
	p.Engine("r2").Signals(Signals{Waiting: 8, Running: 6, KVUsage: .9, Throughput: 5})
	wantScores(t, "queue with a signal", score(p, QueueScorer{}), 4./7, 1, 0)
	wantScores(t, "running with a signal", score(p, RunningScorer{}), 1, .5, 0)

	r[0].tokens, r[1].tokens = 250, 4000
	wantScores(t, "kv_usage", score(p, KVUsageScorer{}), .75, 0, .1)
	r[1].tokens, r[2].tokens = tokensFull/4, tokensFull*2
	wantScores(t, "tokens", score(p, TokensScorer{}), 1-250./tokensFull, .75, 0)

	wantScores(t, "locality", score(p, LocalityScorer{}), 1, .5, 0)

	r[0].taken, r[1].taken = perSecond{}, perSecond{}
	for range 4 {
		r[0].taken.add(clock.now)
	}
	wantScores(t, "throughput", score(p, ThroughputScorer{}), .2, 1, 0)

	r[1].ttft = latency{}
	wantScores(t, "latency, nothing known", score(p, LatencyScorer{}), none, none, none)
	r[0].ttft.add(time.Second, clock.now)
	r[1].ttft.add(3*time.Second, clock.now)
	wantScores(t, "latency", score(p, LatencyScorer{}), 1, 0, none)
	clock.now += latencyKept
	wantScores(t, "latency, long ago", score(p, LatencyScorer{}), none, none, none)
}

func TestLoRAScorer(t *testing.T) {
	p, _ := newTestPool(LeastRequests{}, 4, func(c *PoolConfig) { c.Filters.LoRASlots = 2 })
	r := p.replicas
	r[0].adapters.reserve("sql")
	r[0].adapters.started("sql")
	r[1].adapters.reserve("sql")
	r[2].adapters.reserve("a")
	r[2].adapters.reserve("b")
	wantScores(t, "lora", score(p, LoRAScorer{}, withLoRA("sql")), 1, .6, 0, .8)
	wantScores(t, "no adapter", score(p, LoRAScorer{}), none, none, none, none)
}

func TestSessionScorerAgreesWithThePolicy(t *testing.T) {
	s := &SessionScorer{}
	p, _ := newTestPool(session2(t, SessionOptions{}), 6)
	s.Members(p.replicas)
	for n := range 100 {
		d, _ := decide(p, inSession(n))
		got := score(p, s, inSession(n))
		for c, x := range got {
			if (p.replicas[c].name == d.Server) != (x == 1) || x != 0 && x != 1 {
				t.Fatalf("session %d: %v, its home is %s", n, got, d.Server)
			}
		}
	}
	wantScores(t, "no session", score(p, s), none, none, none, none, none, none)
}

func TestNoHitLRUScorer(t *testing.T) {
	s := &NoHitLRUScorer{}
	p, _ := newTestPool(LeastRequests{}, 3)
	s.Members(p.replicas)
	cache(p, 0, 0, 0)
	wantScores(t, "at the start", score(p, s), 1, .5, 0)
	s.Reserved(nil, 0)
	wantScores(t, "after r0", score(p, s), 0, 1, .5)
	cache(p, 0, 1, 0)
	wantScores(t, "a warm prompt", score(p, s), none, none, none)
	s.Reserved(nil, 1) // was warm: does not count
	cache(p, 0, 0, 0)
	p.replicas[1].down = true
	p.refresh()
	wantScores(t, "without r1", score(p, s), 0, 1)
	p.replicas[1].down = false
	p.refresh()
	left := []*Replica{p.replicas[0], p.replicas[2]}
	s.Members(left)
	if !slices.Equal(s.order, []coldTurn{{left[1], 1}, {left[0], 0}}) {
		t.Errorf("a replica that left is still there, or the others lost their order")
	}
}

// Every scorer keeps its promise: within [0,1] or no opinion, whatever there is
// to judge, and without allocation.
func TestScorersStayInRange(t *testing.T) {
	for _, x := range scorers {
		s := x.make()
		p, clock := newTestPool(LeastRequests{}, 5)
		if m, ok := s.(MemberObserver); ok {
			m.Members(p.replicas)
		}
		try := func(what string, change ...func(*Request)) {
			for _, y := range score(p, s, change...) {
				if !(y >= 0 && y <= 1 || math.IsNaN(y)) {
					t.Errorf("%s, %s: %v", x.name, what, y)
				}
			}
		}
		try("idle")
		cache(p, 0, 1, 2, 3, 100)
		try("cached", inSession(1), withLoRA("sql"))
		p.Engine("r1").Signals(Signals{KVUsage: 1.2, Waiting: -1, Running: -5, Throughput: -1})
		p.replicas[2].tokens, p.replicas[2].inFlight, p.replicas[2].cacheTokens = 1<<40, 1<<20, 0
		clock.now = 100 * time.Hour
		try("odd", inSession(1), withLoRA("sql"))
		try("no prompt", func(r *Request) { r.Input = 0 })
		for _, r := range p.replicas[1:] {
			r.down = true
		}
		p.refresh()
		try("one left", inSession(1), withLoRA("sql"))
	}
}

// With an image of the caches, prefixes that requests share count once.
func TestKVUsageCountsSharedBlocksOnce(t *testing.T) {
	p, _ := newTestPool(weighted(t, WeightedDefaults.Scorers), 1, func(c *PoolConfig) { c.CacheTokens, c.BlockTokens = 10_000, 100 })
	for range 5 {
		d, id := decide(p, func(r *Request) {
			r.Input = 1000
			for b := range uint64(9) {
				r.Blocks = append(r.Blocks, scramble(b))
			}
		})
		p.FirstToken(id, []byte(d.Server))
	}
	if got := score(p, KVUsageScorer{})[0]; got < .8 || got > .9 {
		t.Errorf("%v of the cache is free; five requests share 900 tokens of 1000, of 10000", got)
	}
}
