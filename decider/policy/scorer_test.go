package policy

import (
	"math"
	"slices"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/decider/decidertest"
)

// scored is a policy that keeps the scores of a scorer and leaves the choice to
// the pool.
type scored struct {
	decider.Scorer
	out []float64
}

func (p *scored) Rank(r *decider.Request, v *decider.View, dst []int) []int {
	p.out = make([]float64, len(v.Candidates))
	p.Score(r, v, p.out)
	return dst
}

func (*scored) UsesPrefix() bool { return true }

func (p *scored) Members(replicas []*decider.Replica) {
	if m, ok := p.Scorer.(decider.MemberObserver); ok {
		m.Members(replicas)
	}
}

func (p *scored) Reserved(r *decider.Request, replica int) {
	if o, ok := p.Scorer.(decider.Observer); ok {
		o.Reserved(r, replica)
	}
}

func (p *scored) FirstToken(r *decider.Request, replica int) {
	if o, ok := p.Scorer.(decider.Observer); ok {
		o.FirstToken(r, replica)
	}
}

func (p *scored) Finished(r *decider.Request, replica int, o decider.Outcome) {
	if observer, ok := p.Scorer.(decider.Observer); ok {
		observer.Finished(r, replica, o)
	}
}

// scoring returns a pool whose decisions are made by chance, while s judges its
// candidates.
func scoring(s decider.Scorer, n int, change ...func(*decider.PoolConfig)) *decidertest.Pool {
	return decidertest.New(&scored{Scorer: s}, n, change...)
}

// score is what the scorer of the pool gives the candidates for a request of
// 1000 tokens, as changed.
func score(p *decidertest.Pool, change ...func(*decider.Request)) []float64 {
	p.Explain(p.Request(slices.Concat([]func(*decider.Request){decidertest.Tokens(1000)}, change)...))
	return p.Config.Policy.(*scored).out
}

// rescore is score by another scorer, on the same pool.
func rescore(p *decidertest.Pool, s decider.Scorer, change ...func(*decider.Request)) []float64 {
	p.Config.Policy.(*scored).Scorer = s
	return score(p, change...)
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

var unscored = math.NaN()

// hold gives replica i requests of 1000 tokens that wait for their first token
// and others that have had it.
func hold(p *decidertest.Pool, i, waiting, running int) {
	name := decidertest.Name(i)
	for n := range waiting + running {
		id := p.SendTo(name, func(r *decider.Request) { r.Input, r.Stream = 1000, true })
		if n >= waiting {
			p.FirstToken(id, []byte(name))
		}
	}
}

func TestPrefixScorer(t *testing.T) {
	p := scoring(PrefixScorer{}, 3, func(c *decider.PoolConfig) { c.CacheTokens, c.BlockTokens = 1000, 250 })
	blocks := decidertest.Keys(nil, 1, 4)
	prompt := func(n int) func(*decider.Request) {
		return func(r *decider.Request) { r.Blocks, r.Input = blocks[:n], 250*n }
	}
	p.ServedBy("r1", prompt(2))
	p.ServedBy("r2", prompt(4))
	wantScores(t, "prefix", score(p, prompt(4)), 0, .5, .999) // the last token is always computed
	wantScores(t, "prefix without a prompt", score(p, decidertest.Tokens(0)), unscored, unscored, unscored)
}

func TestScorersOfLoad(t *testing.T) {
	p := scoring(QueueScorer{}, 3)
	p.Clock.Advance(time.Hour - p.Clock.Read())
	wantScores(t, "queue, all equal", score(p), 1, 1, 1)
	hold(p, 1, 0, 3)
	hold(p, 0, 4, 0)
	hold(p, 1, 1, 0)
	wantScores(t, "queue", score(p), 0, .75, 1)
	wantScores(t, "running", rescore(p, RunningScorer{}), 1, 0, 1)
	queueTokens := rescore(p, QueueTokensScorer{})
	if queueTokens[0] != 0 || queueTokens[1] <= 0 || queueTokens[1] >= 1 || queueTokens[2] != 1 {
		t.Errorf("queue_tokens: %v", queueTokens)
	}
	p.Engine("r2").Signals(decider.Signals{Waiting: 8, Running: 6})
	wantScores(t, "queue with a signal", rescore(p, QueueScorer{}), 4./7, 1, 0)
	wantScores(t, "running with a signal", rescore(p, RunningScorer{}), 1, .5, 0)
}

func TestKVUsageScorer(t *testing.T) {
	// A policy that does not use prefixes: then tokens in flight count.
	s := &scored{Scorer: KVUsageScorer{}}
	p := decidertest.New(struct{ decider.Policy }{s}, 3, func(c *decider.PoolConfig) { c.CacheTokens = 1000 })
	p.SendTo("r0", decidertest.Tokens(250))
	p.SendTo("r1", decidertest.Tokens(4000))
	p.Engine("r2").Signals(decider.Signals{KVUsage: .9})
	p.Explain(p.Request())
	wantScores(t, "kv_usage", s.out, .75, 0, .1)
}

func TestTokensScorer(t *testing.T) {
	p := scoring(TokensScorer{}, 3)
	p.SendTo("r0", decidertest.Tokens(250))
	p.SendTo("r1", decidertest.Tokens(tokensFull/4))
	p.SendTo("r2", decidertest.Tokens(tokensFull*2))
	wantScores(t, "tokens", score(p), 1-250./tokensFull, .75, 0)
}

func TestLocalityScorer(t *testing.T) {
	p := scoring(LocalityScorer{}, 3, func(c *decider.PoolConfig) {
		c.Node, c.Zone = "n1", "a"
		c.Replicas[0].Node, c.Replicas[0].Zone = "n1", "a"
		c.Replicas[1].Node, c.Replicas[1].Zone = "n2", "a"
	})
	wantScores(t, "locality", score(p), 1, .5, 0)
}

func TestThroughputScorer(t *testing.T) {
	p := scoring(ThroughputScorer{}, 3)
	p.SetInFlight("r0", 4)
	p.Engine("r2").Signals(decider.Signals{Throughput: 5})
	wantScores(t, "throughput", score(p), .2, 1, 0)
}

func TestLatencyScorer(t *testing.T) {
	p := scoring(LatencyScorer{}, 3)
	wantScores(t, "latency, nothing known", score(p), unscored, unscored, unscored)
	first, third := p.SendTo("r0"), p.SendTo("r1")
	p.Clock.Advance(time.Second)
	p.FirstToken(first, []byte("r0"))
	p.Clock.Advance(2 * time.Second)
	p.FirstToken(third, []byte("r1"))
	wantScores(t, "latency", score(p), 1, 0, unscored)
	p.Clock.Advance(30 * time.Second)
	wantScores(t, "latency, long ago", score(p), unscored, unscored, unscored)
}

func TestLoRAScorer(t *testing.T) {
	p := scoring(LoRAScorer{}, 4, func(c *decider.PoolConfig) { c.LoRASlots = 2 })
	p.FirstToken(p.SendTo("r0", decidertest.WithLoRA("sql")), []byte("r0"))
	p.SendTo("r1", decidertest.WithLoRA("sql"))
	p.SendTo("r2", decidertest.WithLoRA("a"))
	p.SendTo("r2", decidertest.WithLoRA("b"))
	wantScores(t, "lora", score(p, decidertest.WithLoRA("sql")), 1, .6, 0, .8)
	wantScores(t, "no adapter", score(p), unscored, unscored, unscored, unscored)
}

func TestSessionScorerAgreesWithThePolicySession(t *testing.T) {
	p := scoring(&SessionScorer{}, 6)
	home := decidertest.New(must(NewSession(SessionOptions{})), 6)
	for n := range 100 {
		d, _ := home.Send(decidertest.InSession(n))
		got := score(p, decidertest.InSession(n))
		for c, x := range got {
			if (decidertest.Name(c) == d.Server) != (x == 1) || x != 0 && x != 1 {
				t.Fatalf("session %d: %v, its home is %s", n, got, d.Server)
			}
		}
	}
	wantScores(t, "no session", score(p), unscored, unscored, unscored, unscored, unscored, unscored)
}

func TestNoHitLRUScorer(t *testing.T) {
	s := &NoHitLRUScorer{}
	p := scoring(s, 3)
	warm := decidertest.Document(1, 2, 0)
	wantScores(t, "at the start", score(p), 1, .5, 0)
	s.Reserved(nil, 0)
	wantScores(t, "after r0", score(p), 0, 1, .5)
	order := slices.Clone(s.order)
	p.ServedBy("r1", warm)
	s.order = order // whatever was chosen by chance for that
	wantScores(t, "a warm prompt", score(p, warm), unscored, unscored, unscored)
	s.Reserved(nil, 1) // was warm: does not count
	p.Drain("r1")
	wantScores(t, "without r1", score(p), 0, 1)
	p.Undrain("r1")
	first, last := s.order[1].replica, s.order[2].replica
	if first.Name() != "r2" || last.Name() != "r0" {
		t.Fatalf("the order is %s, %s", first.Name(), last.Name())
	}
	p.Apply(func(c *decider.PoolConfig) { c.Replicas = slices.Delete(c.Replicas, 1, 2) })
	if !slices.Equal(s.order, []coldTurn{{first, 1}, {last, 0}}) {
		t.Errorf("a replica that left is still there, or the others lost their order")
	}
}

// Every scorer keeps its promise: within [0,1] or no opinion, whatever there is
// to judge.
func TestScorersStayInRange(t *testing.T) {
	for _, x := range Scorers {
		p := scoring(x.New(), 5)
		try := func(what string, change ...func(*decider.Request)) {
			for _, y := range score(p, change...) {
				if !(y >= 0 && y <= 1 || math.IsNaN(y)) {
					t.Errorf("%s, %s: %v", x.Name, what, y)
				}
			}
		}
		try("idle")
		for i, n := range []int{1, 2, 3, 100} {
			p.ServedBy(decidertest.Name(i+1), decidertest.Document(1, n, 0))
		}
		try("cached", decidertest.Document(1, 100, 0), decidertest.InSession(1), decidertest.WithLoRA("sql"))
		p.Engine("r1").Signals(decider.Signals{KVUsage: 1.2, Waiting: -1, Running: -5, Throughput: -1})
		p.SendTo("r2", decidertest.Tokens(1<<40))
		p.SetInFlight("r2", 1<<14)
		p.Clock.Advance(100*time.Hour - p.Clock.Read())
		try("odd", decidertest.InSession(1), decidertest.WithLoRA("sql"))
		try("no prompt", decidertest.Tokens(0))
		p.Drain("r1", "r2", "r3", "r4")
		try("one left", decidertest.InSession(1), decidertest.WithLoRA("sql"))
	}
}

// With a model of the caches, prefixes that requests share count once.
func TestKVUsageCountsSharedBlocksOnce(t *testing.T) {
	p := decidertest.New(must(NewWeighted(WeightedDefaults)), 1, func(c *decider.PoolConfig) { c.CacheTokens, c.BlockTokens = 10_000, 100 })
	for range 5 {
		d, id := p.Send(func(r *decider.Request) { r.Blocks, r.Input = decidertest.Keys(nil, 0, 9), 1000 })
		p.FirstToken(id, []byte(d.Server))
	}
	if got := p.Terms()["r0"]["kv_usage"]; got < .8 || got > .9 {
		t.Errorf("%v of the cache is free; five requests share 900 tokens of 1000, of 10000", got)
	}
}
