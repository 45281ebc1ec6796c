package policy

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/decider/decidertest"
)

func expression(t testing.TB, formula string) *Expression {
	t.Helper()
	p, err := NewExpression(ExpressionOptions{formula})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestExpressionTakesTheLowest(t *testing.T) {
	p := decidertest.New(expression(t, "in_flight + 5 * kv_usage + (same_zone ? 0 : 2)"), 3, func(c *decider.PoolConfig) {
		c.Zone, c.Replicas[2].Zone = "a", "a"
	})
	p.SetInFlight("r2", 1)
	p.Engine("r1").Signals(decider.Signals{KVUsage: .5})
	d, _ := p.Send()
	if d.Server != "r2" || d.Fallbacks != [2]string{"r0", "r1"} {
		t.Errorf("order %s %v", d.Server, d.Fallbacks)
	}
	terms := p.Terms()["r1"]
	if terms["in_flight"] != 0 || terms["kv_usage"] != .5 || terms["same_zone"] != 0 || terms["cost"] != 4.5 || len(terms) != 4 {
		t.Errorf("terms %v", terms)
	}
}

// The two routers that Ray's guide shows how to write are formulas.
func TestRaysGuideRouters(t *testing.T) {
	decidertest.New(expression(t, "0"), 4).CheckTies(t, draws)
	for _, policy := range []decider.Policy{expression(t, "throughput"), ThroughputAware{}} {
		p := decidertest.New(policy, 4)
		for s, c := range p.OneByOne(100) {
			if c != 25 {
				t.Errorf("%s had %d of 100 in one second", s, c)
			}
		}
		for _, s := range []string{"r0", "r1", "r3"} {
			p.SetInFlight(s, 1)
		}
		if d, _ := p.Send(); d.Server != "r2" {
			t.Errorf("%T sent to %s", policy, d.Server)
		}
	}
}

func TestExpressionPutsReplicasWithoutANumberLast(t *testing.T) {
	p := decidertest.New(expression(t, "in_flight / in_flight - in_flight"), 3)
	p.SetInFlight("r1", 1)
	p.SetInFlight("r2", 2)
	d, _ := p.Send()
	if d.Server != "r2" || d.Fallbacks != [2]string{"r1", "r0"} {
		t.Errorf("order %s %v", d.Server, d.Fallbacks)
	}
}

func TestSessionRankAgreesWithThePolicySession(t *testing.T) {
	p := decidertest.New(expression(t, "session_rank"), 6)
	home := decidertest.New(must(NewSession(SessionOptions{Fallbacks: 2})), 6)
	for n := range 50 {
		a, _ := p.Send(decidertest.InSession(n))
		b, _ := home.Send(decidertest.InSession(n))
		if a.Server != b.Server || a.Fallbacks != b.Fallbacks {
			t.Fatalf("session %d: %v, the policy session has %v", n, a, b)
		}
	}
	for s, c := range p.OneByOne(draws / 10) {
		if c < draws/60-5*int(math.Sqrt(draws/60)) {
			t.Errorf("without a session %s had %d of %d", s, c, draws/10)
		}
	}
}

// sumOf is a formula that names these quantities.
func sumOf(names ...string) string {
	var terms []string
	for _, q := range quantities {
		for _, name := range names {
			switch {
			case name != q.name:
			case q.flag:
				terms = append(terms, "("+name+" ? 1 : 0)")
			default:
				terms = append(terms, name)
			}
		}
	}
	return strings.Join(terms, " + ")
}

func TestQuantities(t *testing.T) {
	near := func(c *decider.PoolConfig) {
		c.CacheTokens, c.BlockTokens = 10_000, 100
		c.Replicas[1].Weight = 3
		c.Node, c.Zone = "n", "z"
		c.Replicas[0].Node, c.Replicas[1].Zone = "n", "z"
	}
	p := decidertest.New(expression(t, sumOf("in_flight", "waiting", "running", "tokens", "queue_tokens", "speed", "kv_usage",
		"throughput", "latency", "weight", "capacity", "input", "output", "priority", "replicas", "mean_in_flight", "same_node", "same_zone",
		"has_lora", "loras", "session_rank")), 2, near)
	stream := func(tokens int) func(*decider.Request) {
		return func(r *decider.Request) { r.Input, r.Stream = tokens, true }
	}
	for range 3 { // running, after two seconds each
		id := p.SendTo("r1", stream(100))
		p.Clock.Advance(2 * time.Second)
		p.FirstToken(id, []byte("r1"))
	}
	p.Clock.Advance(2 * time.Second)
	p.SendTo("r1", stream(1000)) // waiting
	p.SendTo("r1", stream(1000), decidertest.WithLoRA("sql"))
	session := 0
	asked := func(r *decider.Request) {
		decidertest.InSession(session)(r)
		r.Input, r.Priority, r.LoRA = 700, -3, "sql"
	}
	for p.Terms(asked)["r0"]["session_rank"] != 0 {
		session++
	}
	got := p.Terms(asked)
	if q := got["r1"]["queue_tokens"]; q < 2000 || q > 3000 {
		t.Errorf("%v tokens are queued, of two prompts of 1000", q)
	}
	want := map[string]float64{
		"in_flight": 5, "waiting": 2, "running": 3, "tokens": 2300, "speed": p.Replica("r1").PrefillSpeed, "kv_usage": .23,
		"throughput": 2, "latency": 2, "weight": 3, "capacity": 10_000, "input": 700, "output": 0, "priority": -3, "replicas": 2, "mean_in_flight": 2.5,
		"same_node": 0, "same_zone": 1, "has_lora": 1, "loras": 1, "session_rank": 1,
	}
	if len(want)+4 != len(quantities) { // queue_tokens above, the rest below
		t.Errorf("%d of %d quantities are tested", len(want)+4, len(quantities))
	}
	for name, x := range want {
		if math.Abs(got["r1"][name]-x) > 1e-9 {
			t.Errorf("%s = %v, want %v", name, got["r1"][name], x)
		}
	}
	for name, x := range map[string]float64{"same_node": 1, "same_zone": 1, "has_lora": 0, "loras": 0, "latency": 0, "session_rank": 0} {
		if got["r0"][name] != x {
			t.Errorf("%s of r0 = %v, want %v", name, got["r0"][name], x)
		}
	}
	p.Engine("r1").Signals(decider.Signals{Waiting: 9, Running: 8, KVUsage: .7, Throughput: 6})
	got = p.Terms(asked)
	for name, x := range map[string]float64{"waiting": 9, "running": 8, "kv_usage": .7, "throughput": 6} {
		if math.Abs(got["r1"][name]-x) > 1e-9 {
			t.Errorf("%s = %v with a signal, want %v", name, got["r1"][name], x)
		}
	}

	p = decidertest.New(expression(t, sumOf("cached", "uncached", "best_cached")), 2, near)
	blocks := decidertest.Keys(nil, 1, 7)
	prompt := func(n int) func(*decider.Request) {
		return func(r *decider.Request) { r.Blocks, r.Input = blocks[:n], 100*n }
	}
	p.ServedBy("r0", prompt(1))
	p.ServedBy("r1", prompt(3))
	for server, want := range map[string][3]float64{"r0": {100, 600, 300}, "r1": {300, 400, 300}} {
		terms := p.Terms(prompt(7))[server]
		if [3]float64{terms["cached"], terms["uncached"], terms["best_cached"]} != want {
			t.Errorf("%s: %v, want cached, uncached and best_cached %v", server, terms, want)
		}
	}
}

func TestQuantitiesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/policies/expression.md")
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
	p := decidertest.New(expression(t, benchFormula+" + session_rank"), 64)
	p.CheckAllocations(t, 200, func(r *decider.Request, _ int) {
		r.Input, r.Session, r.HasSession = 4000, 7, true
	})
}
