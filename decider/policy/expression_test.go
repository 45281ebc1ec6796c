//go:build ignore

package policy

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func expression(t testing.TB, formula string) *Expression {
	t.Helper()
	p, err := NewExpression(ExpressionOptions{formula})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestFormulas(t *testing.T) {
	// Values by name, for all that the formulas below name.
	values := make([]float64, len(quantities))
	for k, q := range quantities {
		values[k] = map[string]float64{"in_flight": 6, "weight": 4, "same_zone": 1, "latency": math.NaN()}[q.name]
	}
	for text, want := range map[string]float64{
		"0":                       0,
		"1.5e3":                   1500,
		"in_flight / weight":      1.5,
		"1/2 + 7 % 4":             3.5,
		"-in_flight ** 2":         -36,
		"2 ^ 3 - +1":              7,
		"(in_flight + 2) * 3":     24,
		"in_flight > 5 ? 10 : 20": 10,
		"in_flight >= 7 || same_zone and not same_node ? 1 : 2": 1,
		"!same_zone or false ? 1 : 2":                           2,
		"true && in_flight == 6 ? 1 : 2":                        1,
		"in_flight != 6 ? 1 : 2":                                2,
		"in_flight < 6 ? 1 : in_flight <= 6 ? 2 : 3":            2,
		"min(in_flight, weight, 5) + max(1, 2)":                 6,
		"abs(-2) + ceil(1.2) + floor(1.8) + round(1.5)":         7,
		"sqrt(16) + log(exp(2))":                                6,
		"same_zone == same_node ? 1 : 0":                        0,
	} {
		f, used, err := parseFormula(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := f(values); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s = %v, want %v", text, got, want)
		}
		for _, k := range used {
			if !strings.Contains(text, quantities[k].name) {
				t.Errorf("%s is said to use %s", text, quantities[k].name)
			}
		}
	}
}

func TestFormulasAreRefusedWithTheirPlace(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "formula: want one, as in_flight / weight; the lowest wins",
		strings.Repeat("1+", 2047) + "100": "formula: want at most 4096 bytes",
		"in_flight + in_fligth":            "formula: line 1, column 13 of the formula: unknown name in_fligth; want one of in_flight, waiting, ",
		"1 +\n same_zone * 2":              "formula: line 2, column 12 of the formula: invalid operation: * (mismatched types bool and int)",
		"1 +":                              "formula: line 1, column 3 of the formula: unexpected token EOF",
		"same_zone":                        "formula: expected float64, but got bool",
		"1 + (in_flight ?? 2)":             "formula: line 1, column 16 of the formula: ?? is no part of a formula",
		"let x = 2; x":                     "formula: line 1, column 5 of the formula: let x = 2; x is no part of a formula",
		"len([1, 2])":                      "formula: line 1, column 5 of the formula: ",
		"in_flight in [1] ? 1 : 2":         "formula: line 1, column 14 of the formula: [1] is no part of a formula",
		"min([1, 2])":                      "formula: line 1, column 5 of the formula: [1, 2] is no part of a formula",
		"log()":                            "formula: line 1, column 1 of the formula: not enough arguments to call log",
		"now().Unix()":                     "formula: ",
		"sum(1..1000000000)":               "formula: ",
	} {
		_, err := NewExpression(ExpressionOptions{text})
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.40q: %v\nwant %s", text, err, want)
		}
	}
}

// Whatever is written as a formula is refused or computes; nothing panics, and
// the policy still orders the candidates.
func FuzzFormula(f *testing.F) {
	for _, s := range []string{"in_flight / weight", "same_zone ? 0 : 1/0", "min(cached, 2) ** -1", "1..2", "[1][0]", "'a'[0:1]", "{a: 1}.a", "-(-1)", "0/0", "x", "let a=1;a", "map(1..3, #)[0]", "nil", "if true {1} else {2}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		policy, err := NewExpression(ExpressionOptions{text})
		if err != nil {
			return
		}
		p, _ := newTestPool(policy, 3)
		if d, _ := decide(p, inSession(1)); d.Server == "" || d.Fallbacks[1] == "" {
			t.Errorf("%q chose %+v", text, d)
		}
	})
}

func TestExpressionTakesTheLowest(t *testing.T) {
	p, _ := newTestPool(expression(t, "in_flight + 5 * kv_usage + (same_zone ? 0 : 2)"), 3, func(c *PoolConfig) {
		c.Filters.Zone, c.Replicas[2].Zone = "a", "a"
	})
	p.replicas[2].inFlight = 1
	p.Engine("r1").Signals(Signals{KVUsage: .5})
	d, _ := decide(p)
	if d.Server != "r2" || d.Fallbacks != [2]string{"r0", "r1"} {
		t.Errorf("order %s %v", d.Server, d.Fallbacks)
	}
	p.replicas[2].inFlight = 1
	terms := p.Explain(&Request{Pool: p}).Candidates[1].Terms
	if terms["in_flight"] != 0 || terms["kv_usage"] != .5 || terms["same_zone"] != 0 || terms["cost"] != 4.5 || len(terms) != 4 {
		t.Errorf("terms %v", terms)
	}
}

// Ray's guide has two routers of its own making; both are formulas.
func TestRaysGuideRouters(t *testing.T) {
	p, _ := newTestPool(expression(t, "0"), 4)
	for s, c := range tally(p, draws, true) {
		near(t, "uniform: "+s, c, 1.0/4)
	}
	for _, policy := range []Policy{expression(t, "throughput"), ThroughputAware{}} {
		p, clock := newTestPool(policy, 4)
		for s, c := range tally(p, 100, true) {
			if c != 25 {
				t.Errorf("%s had %d of 100 in one second", s, c)
			}
		}
		p.replicas[0].taken.add(clock.now)
		p.replicas[1].taken.add(clock.now)
		p.replicas[3].taken.add(clock.now)
		if d, _ := decide(p); d.Server != "r2" {
			t.Errorf("%T went to %s", policy, d.Server)
		}
	}
}

func TestThroughputAwareFollowsWeights(t *testing.T) {
	p, _ := newTestPool(ThroughputAware{}, 3, func(c *PoolConfig) { c.Replicas[1].Weight = 2 })
	if c := tally(p, 400, true); c["r1"] < 198 || c["r1"] > 202 {
		t.Errorf("the replica of weight 2 of 4 had %d of 400", c["r1"])
	}
}

func TestExpressionWithoutANumberComesLast(t *testing.T) {
	p, _ := newTestPool(expression(t, "in_flight / in_flight - in_flight"), 3)
	p.replicas[1].inFlight = 1
	p.replicas[2].inFlight = 2
	d, _ := decide(p)
	if d.Server != "r2" || d.Fallbacks != [2]string{"r1", "r0"} {
		t.Errorf("order %s %v", d.Server, d.Fallbacks)
	}
}

func TestExpressionSessionRank(t *testing.T) {
	p, _ := newTestPool(expression(t, "session_rank"), 6)
	home, _ := newTestPool(session2(t, SessionOptions{Fallbacks: 2}), 6)
	for n := range 50 {
		a, _ := decide(p, inSession(n))
		b, _ := decide(home, inSession(n))
		if a.Server != b.Server || a.Fallbacks != b.Fallbacks {
			t.Fatalf("session %d: %v, the policy session has %v", n, a, b)
		}
	}
	for s, c := range tally(p, draws/10, true) {
		if c < draws/60-5*int(math.Sqrt(draws/60)) {
			t.Errorf("without a session %s had %d of %d", s, c, draws/10)
		}
	}
}

func TestQuantities(t *testing.T) {
	p, clock := newTestPool(LeastRequests{}, 2, func(c *PoolConfig) {
		c.CacheTokens, c.BlockTokens = 1000, 100
		c.Replicas[1].Weight = 3
		c.Filters = Filters{Node: "n", Zone: "z"}
		c.Replicas[0].Node, c.Replicas[1].Zone = "n", "z"
	})
	clock.now = time.Minute
	cache(p, 1, 3)
	r := p.replicas[1]
	hold(p, 1, 2, 3)
	r.tokens, r.taken = 400, perSecond{}
	r.taken.add(clock.now)
	r.ttft = latency{}
	r.ttft.add(2*time.Second, clock.now)
	r.adapters.reserve("sql")
	p.view.Now, p.view.input, p.view.Candidates = clock.now, 700, []int{0, 1}
	queue := p.view.PrefillBacklog(1)
	if queue < 2000 { // of two prompts of 1000 tokens
		t.Errorf("%v tokens queued", queue)
	}
	e := evaluation{view: &p.view, index: 1, replica: r, home: []int{0, 1},
		request: &Request{Input: 700, Output: -1, Priority: -3, LoRA: "sql"}}
	want := map[string]float64{
		"in_flight": 5, "waiting": 2, "running": 3, "tokens": 400, "queue_tokens": queue, "speed": p.view.PrefillSpeed(1), "kv_usage": .4, "throughput": 1,
		"latency": 2, "weight": 3, "capacity": 1000, "cached": 300, "uncached": 400, "best_cached": 300, "input": 700,
		"output": 0, "priority": -3, "replicas": 2, "same_node": 0, "same_zone": 1, "has_lora": 1, "loras": 1, "session_rank": 1,
	}
	for _, q := range quantities {
		if got := q.get(&e); got != want[q.name] {
			t.Errorf("%s = %v, want %v", q.name, got, want[q.name])
		}
	}
	p.Engine("r1").Signals(Signals{Waiting: 9, Running: 8, KVUsage: .7, Throughput: 6})
	for k, x := range map[string]float64{"waiting": 9, "running": 8, "kv_usage": .7, "throughput": 6} {
		for _, q := range quantities {
			if got := q.get(&e); q.name == k && math.Abs(got-x) > 1e-9 {
				t.Errorf("%s = %v with a signal, want %v", k, got, x)
			}
		}
	}
}

func TestQuantitiesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/policies/expression.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range quantities {
		if !strings.Contains(string(page), "| `"+q.name+"` |") {
			t.Errorf("docs/policies/expression.md does not explain %s", q.name)
		}
	}
}

const benchFormula = "queue_tokens + uncached + 0.02 * tokens + (same_zone ? 0 : 500) + max(0, kv_usage - 0.9) * 10000"

func BenchmarkExpression(b *testing.B) { benchRank(b, expression(b, benchFormula), 64) }

func TestExpressionDoesNotAllocate(t *testing.T) {
	p, clock := newTestPool(expression(t, benchFormula+" + session_rank"), 64)
	r := &Request{ID: newID(), Pool: p, Input: 4000, Session: 7, HasSession: true}
	if n := testing.AllocsPerRun(100, func() { p.rank(r, clock.now) }); n > 0 {
		t.Errorf("%v allocations a decision", n)
	}
}

// A formula means what the same arithmetic means in Go.
func TestFormulaProperty(t *testing.T) {
	f, _, err := parseFormula("in_flight * 2 - waiting / (1 + abs(tokens)) < 3 ? min(in_flight, tokens) : -waiting")
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	for k, q := range quantities {
		at[q.name] = k
	}
	rapid.Check(t, func(t *rapid.T) {
		x, y, z := rapid.Float64Range(-9, 9).Draw(t, "x"), rapid.Float64Range(-9, 9).Draw(t, "y"), rapid.Float64Range(-9, 9).Draw(t, "z")
		v := make([]float64, len(quantities))
		v[at["in_flight"]], v[at["waiting"]], v[at["tokens"]] = x, y, z
		want := -y
		if x*2-y/(1+math.Abs(z)) < 3 {
			want = math.Min(x, z)
		}
		if got := f(v); got != want {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}
