package policy

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/decider/decidertest"
)

func weighted(t testing.TB, scorers map[string]float64) *Weighted {
	t.Helper()
	o := WeightedDefaults
	o.Scorers = scorers
	p, err := NewWeighted(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestWeightedSumsTheScores(t *testing.T) {
	p := decidertest.New(weighted(t, map[string]float64{"queue": 1, "kv_usage": 2}), 3, func(c *decider.PoolConfig) { c.CacheTokens = 1000 })
	p.Engine("r0").Signals(decider.Signals{Waiting: 0, KVUsage: .9}) // 1 + 2·0.1
	p.Engine("r1").Signals(decider.Signals{Waiting: 1, KVUsage: .2}) // 0.5 + 2·0.8
	p.Engine("r2").Signals(decider.Signals{Waiting: 2, KVUsage: .3}) // 0 + 2·0.7
	for replica, got := range p.Terms() {
		want := map[string][3]float64{"r0": {1, .1, 1.2}, "r1": {.5, .8, 2.1}, "r2": {0, .7, 1.4}}[replica]
		for i, term := range []string{"queue", "kv_usage", "score"} {
			if math.Abs(got[term]-want[i]) > 1e-9 {
				t.Errorf("%s: %v, want %v", replica, got, want)
			}
		}
	}
	d, _ := p.Send()
	if d.Server != "r1" || d.Fallbacks != [2]string{"r2", "r0"} {
		t.Errorf("order %s %v", d.Server, d.Fallbacks)
	}
}

func TestWeightedSpreadsTies(t *testing.T) {
	decidertest.New(must(NewWeighted(WeightedDefaults)), 5).CheckTies(t, draws/4)
}

// A burst at one instant spreads, because each decision counts at once.
func TestWeightedBurst(t *testing.T) {
	for s, c := range decidertest.New(must(NewWeighted(WeightedDefaults)), 8).Burst(1000) {
		if c < 100 || c > 150 {
			t.Errorf("%s has %d of 1000", s, c)
		}
	}
}

// A replica that a scorer has no opinion on is neither preferred nor avoided.
func TestWeightedWithoutAnOpinion(t *testing.T) {
	p := decidertest.New(weighted(t, map[string]float64{"latency": 5, "queue": 1}), 3)
	first, second := p.SendTo("r0"), p.SendTo("r1")
	p.Clock.Advance(time.Second)
	p.Serve(first, "r0")
	p.Clock.Advance(time.Second)
	p.Serve(second, "r1")
	d, _ := p.Send()
	if d.Server != "r0" || d.Fallbacks != [2]string{"r2", "r1"} {
		t.Errorf("order %s %v, want the unknown one in the middle", d.Server, d.Fallbacks)
	}
	// Where no candidate has an opinion, the other scorers decide alone.
	p = decidertest.New(weighted(t, map[string]float64{"lora": 5, "queue": 1}), 3)
	hold(p, 0, 2, 0)
	hold(p, 1, 1, 0)
	if d, _ := p.Send(); d.Server != "r2" {
		t.Errorf("sent to %s", d.Server)
	}
}

func TestWeightedReportsToScorersThatObserve(t *testing.T) {
	p := decidertest.New(weighted(t, map[string]float64{"no_hit_lru": 1}), 4)
	var turns []string
	for range 8 {
		turns = append(turns, p.Served().Server)
	}
	if got := strings.Join(turns, " "); got != "r0 r1 r2 r3 r0 r1 r2 r3" {
		t.Errorf("cold prompts went to %s", got)
	}
}

// always gives every candidate the same score.
type always float64

func (s always) Score(_ *decider.Request, _ *decider.View, out []float64) {
	for c := range out {
		out[c] = float64(s)
	}
}

func TestWeightedTakesScorersFromElsewhere(t *testing.T) {
	o := WeightedDefaults.With(NamedScorer{"half", func() decider.Scorer { return always(.5) }})
	o.Scorers = map[string]float64{"half": 2}
	terms := decidertest.New(must(NewWeighted(o)), 1).Terms()["r0"]
	if terms["half"] != .5 || terms["score"] != 1 {
		t.Errorf("terms %v", terms)
	}
	if text := fmt.Sprintf("%+v", o); !strings.Contains(text, " half]") {
		t.Errorf("the options print as %s", text)
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
		o := WeightedDefaults
		o.Scorers = scorers
		_, err := NewWeighted(o)
		if err == nil || !strings.HasPrefix(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("%v: %v, want %s", scorers, err, want)
		}
	}
	for _, n := range []int{-1, 0, 262_145} {
		o := WeightedDefaults
		o.LRUCapacityPerServer = n
		_, err := NewWeighted(o)
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

// allScorers gives all scorers the same weight.
func allScorers() map[string]float64 {
	m := map[string]float64{}
	for _, s := range Scorers {
		m[s.Name] = 1
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

func TestWeightedDoesNotAllocate(t *testing.T) {
	p := decidertest.New(weighted(t, allScorers()), 64)
	p.CheckAllocations(t, 500, func(r *decider.Request, _ int) {
		r.Input, r.Session, r.HasSession, r.LoRA = 4000, 7, true, "sql"
	})
}
