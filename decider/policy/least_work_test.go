//go:build ignore

package policy

import (
	"testing"
	"time"
)

func TestLeastWorkSpreadsTies(t *testing.T) {
	p, _ := newTestPool(LeastWork{}, 5)
	for s, c := range tally(p, draws, true) {
		near(t, s, c, 1.0/5)
	}
}

func TestLeastWorkFollowsTheCacheUntilAQueueCostsMore(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 4)
	home, id := decide(p, document(1, 40, 10))
	serve(p, id, home.Server)
	again, id := decide(p, document(1, 40, 10))
	if again.Server != home.Server {
		t.Fatalf("the second turn went to %s, the first to %s", again.Server, home.Server)
	}
	serve(p, id, again.Server)
	// 10,250 tokens are cached there; 100 times as many queue.
	clock.now += time.Minute
	for n := range 10 {
		v := p.account.add(newID())
		v.started, v.tokens, v.input = false, 100_000, 100_000
		v.request.keep(&Request{Stream: true, Blocks: []uint64{uint64(n)}})
		p.account.book(v, p.byName[home.Server], clock.now)
	}
	if d, _ := decide(p, document(1, 40, 10)); d.Server == home.Server {
		t.Error("a request queued behind a million tokens to save ten thousand")
	}
}

// That a conversation was asked for once does not make its prefix a hot one: a
// copy of it costs all that a copy costs, until others ask for it.
func TestLeastWorkTakesATurnForNoDemand(t *testing.T) {
	p, _ := newTestPool(LeastWork{}, 4)
	duplicate := func() (most float64) {
		r := Request{Pool: p}
		document(1, 20, 10)(&r)
		for _, c := range p.Explain(&r).Candidates {
			most = max(most, c.Terms["duplicate"])
		}
		return most
	}
	home, id := decide(p, document(1, 20, 10))
	serve(p, id, home.Server)
	if got, want := duplicate(), workRoom*20*testBlock; got != want {
		t.Errorf("after one turn a copy costs %v tokens, want %v", got, want)
	}
	for range 2 {
		d, id := decide(p, document(1, 20, 10))
		serve(p, id, d.Server)
	}
	if got := duplicate(); got > workRoom*20*testBlock/2 {
		t.Errorf("after three requests at once a copy still costs %v tokens", got)
	}
}

// One hot replica leaves the affinity of all others as it was.
func TestLeastWorkKeepsAffinityBesideAHotReplica(t *testing.T) {
	p, _ := newTestPool(LeastWork{}, 8)
	homes := map[int]string{}
	for n := range 40 {
		d, id := decide(p, document(n, 20, 10))
		serve(p, id, d.Server)
		homes[n] = d.Server
	}
	for range 500 {
		v := p.account.add(newID())
		v.started, v.tokens, v.input = true, 200, 200
		v.request.keep(&Request{})
		p.account.book(v, p.byName["r0"], 0)
	}
	kept := 0
	for n := range 40 {
		d, id := decide(p, document(n, 20, 10))
		serve(p, id, d.Server)
		if d.Server == homes[n] {
			kept++
		}
	}
	if kept < 30 {
		t.Errorf("%d of 40 conversations kept their replica while one of eight was hot", kept)
	}
}

func TestLeastWorkSpreadsABurstOfEqualPrompts(t *testing.T) {
	p, _ := newTestPool(LeastWork{}, 8)
	counts := tally(p, 1000, false, document(1, 20, 10))
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
// requests than one replica can serve, all take their part.
func TestLeastWorkSpreadsAHotPrefix(t *testing.T) {
	const decoding = 5 * time.Second
	p, clock := newTestPool(LeastWork{}, 8)
	type event struct {
		at     time.Duration
		id     ID
		server string
	}
	firsts, ends := map[string][]event{}, []event{} // in order of time
	free := map[string]time.Duration{}              // when a replica has computed all it was sent
	counts := map[string]int{}
	for n := range 4000 {
		clock.now += 10 * time.Millisecond
		for s, list := range firsts {
			for len(list) > 0 && list[0].at <= clock.now {
				p.FirstToken(list[0].id, []byte(s))
				list = list[1:]
			}
			firsts[s] = list
		}
		for len(ends) > 0 && ends[0].at <= clock.now {
			p.Finished(Outcome{ID: ends[0].id, Server: []byte(ends[0].server)})
			ends = ends[1:]
		}
		var own int
		d, id := decide(p, document(1, 20, 0), func(r *Request) {
			r.Blocks = append(r.Blocks, uint64(n))
			r.Input += testBlock + 200
			own = r.Input
		})
		counts[d.Server]++
		if counts[d.Server] > 1 {
			own = testBlock + 200
		}
		at := max(clock.now, free[d.Server]) + time.Duration(own)*time.Second/initialSpeed
		free[d.Server] = at
		firsts[d.Server] = append(firsts[d.Server], event{at, id, d.Server})
		ends = append(ends, event{clock.now + decoding, id, d.Server})
	}
	for _, r := range p.replicas {
		if c := counts[r.name]; c < 250 {
			t.Errorf("%s served %d of 4000 requests with a hot prefix, want about 500", r.name, c)
		}
	}
}

func TestLeastWorkAvoidsAFullCache(t *testing.T) {
	p, _ := newTestPool(LeastWork{}, 2, func(c *PoolConfig) { c.CacheTokens = 20_000 })
	home, id := decide(p, document(1, 20, 10))
	p.FirstToken(id, []byte(home.Server))
	for range 3 { // decoding: no queue, but memory
		v := p.account.add(newID())
		v.started, v.tokens, v.input = true, 20_000, 0
		v.request.keep(&Request{})
		p.account.book(v, p.byName[home.Server], 0)
	}
	if d, _ := decide(p, document(1, 20, 10)); d.Server == home.Server {
		t.Error("a request was sent where its cache would be pressed out")
	}
}

func TestLeastWorkGivesFastReplicasMore(t *testing.T) {
	p, _ := newTestPool(LeastWork{}, 2)
	p.account.load.learn(p.byName["r0"], 1e6, 50) // 20,000 tokens/s
	p.account.load.learn(p.byName["r1"], 1e6, 200)
	counts := map[string]int{}
	for n := range 300 {
		d, _ := decide(p, document(n, 8, 0))
		counts[d.Server]++
	}
	if c := counts["r0"]; c < 180 || c > 260 {
		t.Errorf("the faster one of two got %d of 300 (learned %.0f and %.0f tokens/s)",
			c, p.account.load.speedOf(p.byName["r0"]), p.account.load.speedOf(p.byName["r1"]))
	}
}

func TestLeastWorkExplainsItself(t *testing.T) {
	p, _ := newTestPool(LeastWork{}, 3)
	decide(p, document(1, 8, 0))
	r := Request{Pool: p}
	document(1, 12, 0)(&r)
	for _, c := range p.Explain(&r).Candidates {
		x := c.Terms
		sum := (x["queue"] + x["own"] + x["duplicate"] + x["in_flight"] + x["pressure"]) / x["speed"]
		if len(x) != len(leastWorkTerms) || x["own"] == 0 || sum-x["cost"] > 1e-9 || x["cost"]-sum > 1e-9 {
			t.Errorf("%s: terms %v do not add up", c.Replica, x)
		}
	}
}

// The feed may tell nothing at all, or die: the clock keeps the queues from
// growing for ever, and load from piling up where a prefix once was.
func TestLeastWorkStaysSaneWithoutFeedback(t *testing.T) {
	for _, dies := range []bool{false, true} {
		p, clock := newTestPool(LeastWork{}, 4)
		if dies {
			for n := range 100 {
				d, id := decide(p, document(n, 4, 0))
				serve(p, id, d.Server)
			}
			clock.now += 2 * reportsExpire
		}
		counts := map[string]int{}
		for n := range 2000 {
			d, _ := decide(p, document(n%200, 10, 100))
			counts[d.Server]++
			clock.now += 100 * time.Millisecond
			p.sweep()
		}
		for _, r := range p.replicas {
			if c := counts[r.name]; c < 300 || c > 700 {
				t.Errorf("feed died %v: %s was sent %d of 2000", dies, r.name, c)
			}
			if r.prefill.n > 20 {
				t.Errorf("feed died %v: %d requests are believed to queue at %s", dies, r.prefill.n, r.name)
			}
		}
	}
}
