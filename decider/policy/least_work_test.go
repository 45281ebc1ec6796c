package policy

import (
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/decider/decidertest"
)

// block is the number of tokens in a block of a document.
const block = decidertest.BlockTokens

// firstSpeed is the prefill speed, in tokens/s, that a pool starts from.
const firstSpeed = 10_000

var document = decidertest.Document

func TestLeastWorkSpreadsTies(t *testing.T) {
	decidertest.New(LeastWork{}, 5).CheckTies(t, draws)
}

func TestLeastWorkFollowsTheCacheUntilAQueueCostsMore(t *testing.T) {
	p := decidertest.New(LeastWork{}, 4)
	home := p.Served(document(1, 40, 10))
	again := p.Served(document(1, 40, 10))
	if again.Server != home.Server {
		t.Fatalf("the second turn went to %s, the first to %s", again.Server, home.Server)
	}
	// 10,250 tokens are cached there; 100 times as many queue.
	p.Clock.Advance(time.Minute)
	for n := range 10 {
		p.SendTo(home.Server, func(r *decider.Request) { r.Input, r.Stream, r.Blocks = 100_000, true, []uint64{uint64(n)} })
	}
	if d, _ := p.Send(document(1, 40, 10)); d.Server == home.Server {
		t.Error("a request queued behind a million tokens to save ten thousand")
	}
}

// Requests that come at once with one prefix, as those of one task, are no demand that
// lasts: one that computes the prefix again pays all of it. Where they go on, the
// others that will find it pay their part.
func TestLeastWorkTakesATaskForNoDemand(t *testing.T) {
	for _, policy := range []decider.Policy{LeastWork{}, LeastWorkLate{}} {
		p := decidertest.New(policy, 4)
		own := func() float64 { return p.Terms(document(1, 80, 10))["r1"]["own"] }
		p.SendTo("r0", document(1, 80, 10))
		p.End(p.SendTo("r0", document(1, 80, 10)), "r0")
		whole := own()
		if policy == (LeastWorkLate{}) {
			whole = 80*block + 10 // it counts attention only while nobody else asks
		}
		for range 30 {
			p.SendTo("r0", document(1, 80, 10))
			p.Clock.Advance(time.Millisecond)
		}
		if got := own(); got < 0.95*whole {
			t.Errorf("30 requests at once: a copy counts %.0f tokens, want %.0f", got, whole)
		}
		for range 60 {
			p.Clock.Advance(500 * time.Millisecond)
			p.Serve(p.SendTo("r0", document(1, 80, 10)), "r0")
		}
		if got := own(); got > 0.7*whole {
			t.Errorf("requests for half a minute: a copy counts %.0f tokens of %.0f", got, whole)
		}
	}
}

// One hot replica leaves the affinity of all others as it was.
func TestLeastWorkKeepsAffinityBesideAHotReplica(t *testing.T) {
	p := decidertest.New(LeastWork{}, 8)
	homes := map[int]string{}
	for n := range 40 {
		homes[n] = p.Served(document(n, 20, 10)).Server
	}
	for range 500 {
		id := p.SendTo("r0", decidertest.Tokens(200))
		p.FirstToken(id, []byte("r0"))
	}
	kept := 0
	for n := range 40 {
		if p.Served(document(n, 20, 10)).Server == homes[n] {
			kept++
		}
	}
	if kept < 30 {
		t.Errorf("%d of 40 conversations kept their replica while one of eight was hot", kept)
	}
}

func TestLeastWorkSpreadsABurstOfEqualPrompts(t *testing.T) {
	p := decidertest.New(LeastWork{}, 8)
	counts := p.Burst(1000, document(1, 20, 10))
	for s, c := range counts {
		if c > 250 {
			t.Errorf("%s has %d of 1000 equal prompts that came at once", s, c)
		}
	}
	if len(counts) != 8 {
		t.Errorf("only %d of 8 replicas have any", len(counts))
	}
}

// A prefix that all requests share does not stay where it was first: with more
// requests than four replicas can serve, most take their part.
func TestLeastWorkSpreadsAHotPrefix(t *testing.T) {
	const decoding = 5 * time.Second
	p := decidertest.New(LeastWork{}, 8)
	type event struct {
		at     time.Duration
		id     decider.ID
		server string
	}
	firsts, ends := map[string][]event{}, []event{} // in order of time
	free := map[string]time.Duration{}              // when a replica has computed all it was sent
	counts := map[string]int{}
	for n := range 4000 {
		p.Clock.Advance(10 * time.Millisecond)
		now := p.Clock.Read()
		for s, list := range firsts {
			for len(list) > 0 && list[0].at <= now {
				p.FirstToken(list[0].id, []byte(s))
				list = list[1:]
			}
			firsts[s] = list
		}
		for len(ends) > 0 && ends[0].at <= now {
			p.End(ends[0].id, ends[0].server)
			ends = ends[1:]
		}
		var own int
		d, id := p.Send(document(1, 20, 0), func(r *decider.Request) {
			r.Blocks = append(r.Blocks, uint64(n))
			r.Input += block + 200
			own = r.Input
		})
		counts[d.Server]++
		if counts[d.Server] > 1 {
			own = block + 200
		}
		at := max(now, free[d.Server]) + time.Duration(own)*time.Second/firstSpeed
		free[d.Server] = at
		firsts[d.Server] = append(firsts[d.Server], event{at, id, d.Server})
		ends = append(ends, event{now + decoding, id, d.Server})
	}
	part := 0
	for _, c := range counts {
		if c >= 250 {
			part++
		}
		if c > 1000 {
			t.Errorf("a hot prefix stayed where it was: %v of 4000 requests", counts)
		}
	}
	if part < 8 {
		t.Errorf("%d replicas of 8 take part in serving a hot prefix: %v", part, counts)
	}
}

func TestLeastWorkAvoidsAFullCache(t *testing.T) {
	p := decidertest.New(LeastWork{}, 2, func(c *decider.PoolConfig) { c.CacheTokens = 20_000 })
	home, id := p.Send(document(1, 20, 10))
	p.FirstToken(id, []byte(home.Server))
	// Output that is only asked for takes no memory.
	next := func() string {
		d, id := p.Send(document(1, 20, 10), func(r *decider.Request) { r.Output = 1 << 20 })
		p.Finished(decider.Outcome{ID: id, End: decider.ClientGone})
		return d.Server
	}
	if s := next(); s != home.Server {
		t.Errorf("with room for more, sent to %s", s)
	}
	p.Engine(home.Server).Signals(decider.Signals{CacheTokens: 20_000, KVUsage: 0.3})
	for n := range 5 { // decoding: no queue, but memory
		id := p.SendTo(home.Server, document(100+n, 25, 0))
		p.FirstToken(id, []byte(home.Server))
	}
	if s := next(); s == home.Server {
		t.Error("a request was sent where its cache would be evicted")
	}
}

// Idle replicas that are alike are ties, whatever noise is in their learned
// speeds.
func TestLeastWorkSpreadsOverIdleReplicas(t *testing.T) {
	p := decidertest.New(LeastWork{}, 8)
	for range 20 {
		for i := range 8 {
			server := decidertest.Name(i)
			id := p.SendTo(server, func(r *decider.Request) { r.Input, r.Stream = 2000, true })
			p.Clock.Advance(time.Duration(190+3*i) * time.Millisecond)
			p.Serve(id, server)
			p.Clock.Advance(time.Second)
		}
	}
	counts := map[string]int{}
	for n := range 400 {
		counts[p.Served(document(n, 8, 0)).Server]++
		p.Clock.Advance(time.Second)
	}
	for i := range 8 {
		if c := counts[decidertest.Name(i)]; c < 20 || c > 100 {
			t.Fatalf("400 requests, one after the other, went to %v", counts)
		}
	}
}

// busy is a pool of that many replicas that run 80 short requests, after 320 others.
func busy(replicas int) *decidertest.Pool {
	p := decidertest.New(LeastWork{}, replicas)
	for n := range 400 {
		d, id := p.Send(document(n, 1, 100))
		p.FirstToken(id, []byte(d.Server))
		if n < 320 {
			p.End(id, d.Server)
		}
		p.Clock.Advance(20 * time.Millisecond)
	}
	return p
}

// In a busy pool, a prompt that is long for it goes where the fewest requests are, even
// behind another long one: elsewhere it would delay all that come.
func TestLeastWorkKeepsLongPromptsTogether(t *testing.T) {
	p := busy(4)
	long := func(n int) string { d, _ := p.Send(document(1000+n, 400, 0)); return d.Server }
	first := long(0)
	for n := range 200 { // the others avoid it
		d, id := p.Send(document(2000+n, 1, 100))
		if d.Server == first {
			t.Fatal("a short prompt was sent behind a long one")
		}
		p.FirstToken(id, []byte(d.Server))
	}
	if second := long(1); second != first {
		t.Errorf("the second long prompt went to %s, the first to %s", second, first)
	}
}

// Where shorter requests have enough replicas, no long prompt waits behind another one.
func TestLeastWorkSpreadsLongPromptsOverSparedReplicas(t *testing.T) {
	p := busy(16)
	var running []decider.ID
	short := func(n int) {
		d, id := p.Send(document(n, 1, 0))
		p.Clock.Advance(20 * time.Millisecond)
		p.FirstToken(id, []byte(d.Server))
		if running = append(running, id); len(running) > 80 {
			p.Finished(decider.Outcome{ID: running[0]})
			running = running[1:]
		}
	}
	for n := range 30 {
		for k := range 50 { // these avoid the long ones
			short(1000 + 50*n + k)
		}
		long := document(n, 400, 0)
		terms := p.Terms(long)
		blocked := 0
		for _, x := range terms {
			if x["queue"] > x["own"]/2 {
				blocked++
			}
		}
		if blocked > 12 {
			t.Fatalf("long prompts left %d replicas of 16 to short ones", 16-blocked)
		}
		d, _ := p.Send(long)
		if x := terms[d.Server]; n < 6 && x["queue"] > x["own"]/2 {
			t.Errorf("long prompt %d waits behind another one, on %s of 16", n+1, d.Server)
		}
	}
}

// Prompts of a few times the usual length go by the work, and the longest ones go by
// whom they would delay. Where both shun busy replicas, half of the pool computes long
// prompts, and those in between wait behind them.
func TestLeastWorkSetsTheLongestApart(t *testing.T) {
	p := busy(2)
	delays := func(blocks int) float64 {
		x := p.Terms(document(5000+blocks, blocks, 0))["r0"]
		return x["blocking"] / x["own"]
	}
	if x := delays(4); x <= 0 || x > 0.2 {
		t.Errorf("a prompt of about three times the usual length delays others by %.2f times its own work", x)
	}
	if x := delays(40); x < 5 {
		t.Errorf("one of about thirty times delays them by %.2f times its own work", x)
	}
}

// Requests that the pool did not send count as the engine reports them.
func TestLeastWorkSeesForeignRequests(t *testing.T) {
	for _, policy := range []decider.Policy{LeastWork{}, LeastWorkLate{}} {
		p := decidertest.New(policy, 3)
		p.Served(document(1, 10, 0))
		for i, waiting := range []int{4, 0, 2} {
			p.Engine(decidertest.Name(i)).Signals(decider.Signals{Running: 5, Waiting: waiting})
		}
		d, _ := p.Send(document(2, 10, 0))
		if d.Server != "r1" || d.Fallbacks != [2]string{"r2", "r0"} {
			t.Errorf("sent to %s, then %v, want the fewest waiting first", d.Server, d.Fallbacks)
		}
	}
}

func TestLeastWorkGivesFastReplicasMore(t *testing.T) {
	p := decidertest.New(LeastWork{}, 2)
	for range 100 { // a cold prompt at a time, at 20,000 and 5,000 tokens/s
		for i, speed := range []time.Duration{20_000, 5_000} {
			server := decidertest.Name(i)
			id := p.SendTo(server, func(r *decider.Request) { r.Input, r.Stream = 10_000, true })
			cost := time.Duration(p.Terms()[server]["queue"])
			p.Clock.Advance(cost * time.Second / speed)
			p.Serve(id, server)
		}
	}
	counts := map[string]int{}
	for n := range 300 {
		d, _ := p.Send(document(n, 8, 0))
		counts[d.Server]++
	}
	if c := counts["r0"]; c < 180 || c > 260 {
		t.Errorf("the faster one of two got %d of 300 (learned %.0f and %.0f tokens/s)",
			c, p.Replica("r0").PrefillSpeed, p.Replica("r1").PrefillSpeed)
	}
}

func TestLeastWorkExplainsItself(t *testing.T) {
	p := decidertest.New(LeastWork{}, 3)
	p.Send(document(1, 8, 0))
	for replica, x := range p.Terms(document(1, 12, 0)) {
		sum := (x["queue"] + x["own"] + x["crowd"] + x["blocking"] + x["decode"] + x["space"] + x["pressure"]) / x["speed"]
		if len(x) != len(leastWorkTerms) || x["own"] == 0 || sum-x["cost"] > 1e-9 || x["cost"]-sum > 1e-9 {
			t.Errorf("%s: terms %v do not add up", replica, x)
		}
	}
}

// leastWorkQueues is LeastWork, and keeps the length of each replica's queue.
type leastWorkQueues struct {
	LeastWork
	n []int
}

func (p *leastWorkQueues) Rank(r *decider.Request, v *decider.View, dst []int) []int {
	dst = p.LeastWork.Rank(r, v, dst)
	p.n = p.n[:0]
	for i := range v.Replicas {
		p.n = append(p.n, v.PrefillQueueLen(i))
	}
	return dst
}

// The feed may report nothing at all, or die: the clock keeps the queues from
// growing without end, and load from piling up where a prefix once was.
func TestLeastWorkStaysSaneWithoutFeedback(t *testing.T) {
	for _, dies := range []bool{false, true} {
		queues := &leastWorkQueues{}
		p := decidertest.New(queues, 4)
		if dies {
			for n := range 100 {
				p.Served(document(n, 4, 0))
			}
			p.Clock.Advance(2 * time.Minute)
		}
		counts := map[string]int{}
		for n := range 2000 {
			d, _ := p.Send(document(n%200, 10, 100))
			counts[d.Server]++
			p.Clock.Advance(100 * time.Millisecond)
			p.Decider.Sweep()
		}
		p.Explain(p.Request())
		for i, r := range p.Config.Replicas {
			if c := counts[r.Name]; c < 300 || c > 700 {
				t.Errorf("feed died %v: %s was sent %d of 2000", dies, r.Name, c)
			}
			if n := queues.n[i]; n > 20 {
				t.Errorf("feed died %v: %d requests are believed to queue at %s", dies, n, r.Name)
			}
		}
	}
}
