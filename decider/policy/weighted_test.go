//go:build ignore

package policy

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

func weighted(t testing.TB, scorers map[string]float64) *Weighted {
	t.Helper()
	p, err := NewWeighted(WeightedOptions{scorers, WeightedDefaults.LRUCapacityPerServer})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestWeightedSumsTheScores(t *testing.T) {
	p, _ := newTestPool(weighted(t, map[string]float64{"queue": 1, "kv_usage": 2}), 3, func(c *PoolConfig) { c.CacheTokens = 1000 })
	p.Engine("r0").Signals(Signals{Waiting: 0, KVUsage: .9}) // 1 + 2·0.1
	p.Engine("r1").Signals(Signals{Waiting: 1, KVUsage: .2}) // 0.5 + 2·0.8
	p.Engine("r2").Signals(Signals{Waiting: 2, KVUsage: .3}) // 0 + 2·0.7
	for _, c := range p.Explain(&Request{Pool: p, Input: 1}).Candidates {
		want := map[string][3]float64{"r0": {1, .1, 1.2}, "r1": {.5, .8, 2.1}, "r2": {0, .7, 1.4}}[c.Replica]
		for i, term := range []string{"queue", "kv_usage", "score"} {
			if math.Abs(c.Terms[term]-want[i]) > 1e-9 {
				t.Errorf("%s: %v, want %v", c.Replica, c.Terms, want)
			}
		}
	}
	d, _ := decide(p)
	if d.Server != "r1" || d.Fallbacks != [2]string{"r2", "r0"} {
		t.Errorf("order %s %v", d.Server, d.Fallbacks)
	}
}

func TestWeightedSpreadsTies(t *testing.T) {
	p, _ := newTestPool(weighted(t, WeightedDefaults.Scorers), 5)
	for s, c := range tally(p, draws/4, true) {
		if math.Abs(float64(c)-draws/20) > 5*math.Sqrt(draws/20*.8) {
			t.Errorf("%s had %d of %d", s, c, draws/4)
		}
	}
}

// A burst at one instant spreads, because each decision counts at once.
func TestWeightedBurst(t *testing.T) {
	p, _ := newTestPool(weighted(t, WeightedDefaults.Scorers), 8)
	for s, c := range tally(p, 1000, false) {
		if c < 100 || c > 150 {
			t.Errorf("%s holds %d of 1000", s, c)
		}
	}
}

// A replica that a scorer knows nothing of is neither preferred nor shunned
// for it.
func TestWeightedWithoutAnOpinion(t *testing.T) {
	p, clock := newTestPool(weighted(t, map[string]float64{"latency": 5, "queue": 1}), 3)
	p.replicas[0].ttft.add(time.Second, clock.now)
	p.replicas[1].ttft.add(2*time.Second, clock.now)
	d, _ := decide(p)
	if d.Server != "r0" || d.Fallbacks != [2]string{"r2", "r1"} {
		t.Errorf("order %s %v, want the unknown one in the middle", d.Server, d.Fallbacks)
	}
	// Where no candidate has an opinion, the other scorers decide alone.
	p, _ = newTestPool(weighted(t, map[string]float64{"lora": 5, "queue": 1}), 3)
	hold(p, 0, 2, 0)
	hold(p, 1, 1, 0)
	if d, _ := decide(p); d.Server != "r2" {
		t.Errorf("went to %s", d.Server)
	}
}

func TestWeightedSettlesScorersThatObserve(t *testing.T) {
	p, _ := newTestPool(weighted(t, map[string]float64{"no_hit_lru": 1}), 4)
	var turns []string
	for range 8 {
		d, id := decide(p)
		turns = append(turns, d.Server)
		p.FirstToken(id, []byte(d.Server))
		p.Finished(Outcome{ID: id, Server: []byte(d.Server)})
	}
	if got := strings.Join(turns, " "); got != "r0 r1 r2 r3 r0 r1 r2 r3" {
		t.Errorf("cold prompts went to %s", got)
	}
}

func TestWeightedOptionsAreChecked(t *testing.T) {
	for want, scorers := range map[string]map[string]float64{
		`scorers: unknown "prefxi"; want prefix, approximate_prefix, queue, `:  {"prefxi": 1},
		`scorers: queue has the weight -1; want 0 or more`:                     {"queue": -1},
		`scorers: queue has the weight +Inf; want 0 or more`:                   {"queue": math.Inf(1)},
		`scorers: want at least one with a weight above 0`:                     {"queue": 0},
		`scorers: want at least one with a weight above 0 `:                    {},
		`scorers: lora has the weight NaN; want 0 or more`:                     {"lora": math.NaN(), "queue": 1},
		"scorers: unknown \"a\\nb\"; want prefix, approximate_prefix, queue, ": {"a\nb": 1},
	} {
		_, err := NewWeighted(WeightedOptions{scorers, WeightedDefaults.LRUCapacityPerServer})
		if err == nil || !strings.HasPrefix(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("%v: %v, want %s", scorers, err, want)
		}
	}
	for _, n := range []int{-1, 0, 262_145} {
		_, err := NewWeighted(WeightedOptions{WeightedDefaults.Scorers, n})
		if want := fmt.Sprintf("lru_capacity_per_server: want 1 to 262144 blocks of 64 tokens, not %d", n); err == nil || err.Error() != want {
			t.Errorf("%d: %v, want %s", n, err, want)
		}
	}
	for uses, scorers := range map[bool]map[string]float64{true: {"prefix": 1, "queue": 1}, false: {"prefix": 0, "queue": 1}} {
		if weighted(t, scorers).UsesPrefix() != uses {
			t.Errorf("%v: prompts are hashed for nothing, or not at all", scorers)
		}
	}
}

// all are all scorers at once.
func allScorers() map[string]float64 {
	m := map[string]float64{}
	for _, name := range ScorerNames() {
		m[name] = 1
	}
	return m
}

func BenchmarkWeighted(b *testing.B) {
	for name, scorers := range map[string]map[string]float64{"default": WeightedDefaults.Scorers, "all": allScorers()} {
		for _, n := range []int{8, 64, 512} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) { benchRank(b, weighted(b, scorers), n) })
		}
	}
}

// benchRank measures a policy's choice alone, without reserving.
func benchRank(b *testing.B, policy Policy, n int) {
	p, clock := newTestPool(policy, n)
	for i, r := range p.replicas {
		r.inFlight, r.waiting, r.tokens = i%13, i%5, 100*i
		r.ttft.add(time.Duration(i)*time.Millisecond, clock.now)
	}
	r := &Request{ID: newID(), Pool: p, Input: 4000, Output: 100, Session: 7, HasSession: true, LoRA: "sql"}
	b.ReportAllocs()
	for b.Loop() {
		p.rank(r, clock.now)
	}
}

func TestWeightedDoesNotAllocate(t *testing.T) {
	p, clock := newTestPool(weighted(t, allScorers()), 64)
	r := &Request{ID: newID(), Pool: p, Input: 4000, Session: 7, HasSession: true, LoRA: "sql"}
	if n := testing.AllocsPerRun(100, func() { p.rank(r, clock.now) }); n > 0 {
		t.Errorf("%v allocations a decision", n)
	}
}
