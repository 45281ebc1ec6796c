package decider

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const testBlock = 256

// document returns a change that makes a request one of n blocks of a document,
// and of tail tokens more.
func document(key, n, tail int) func(*Request) {
	return func(r *Request) {
		r.Blocks = r.Blocks[:0]
		for k := range n {
			r.Blocks = append(r.Blocks, scramble(uint64(key)<<32|uint64(k)))
		}
		r.Input, r.Stream = n*testBlock+tail, true
	}
}

func serve(p *Pool, id ID, server string) {
	p.FirstToken(id, []byte(server))
	p.Finished(Outcome{ID: id, Server: []byte(server)})
}

// Whatever happens in whatever order, the queues and the images are what the
// reservations say, and in the end no request holds anything.
func TestQueuesAndImagesAccount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, clock := newTestPool(LeastWork{}, rapid.IntRange(1, 4).Draw(t, "replicas"), func(c *PoolConfig) {
			c.Lease, c.Discover, c.CacheTokens = time.Minute, true, rapid.IntRange(1, 8).Draw(t, "cache")*testBlock
		})
		var live []ID
		anyID := func() ID {
			if len(live) == 0 || rapid.IntRange(0, 9).Draw(t, "stranger") == 0 {
				return newID()
			}
			return rapid.SampledFrom(live).Draw(t, "id")
		}
		server := func() []byte {
			return []byte(rapid.SampledFrom([]string{"r0", "r1", "r2", "nobody", ""}).Draw(t, "server"))
		}
		check := func() {
			n, uncached, work, waits := map[*Replica]int{}, map[*Replica]int{}, map[*Replica]float64{}, map[*Replica]map[uint64]int{}
			loose, pinned := map[*Replica]int{}, map[*Replica]map[uint64]bool{}
			for _, i := range p.account.byID {
				v := &p.account.slots[i]
				if v.prefill.queued {
					n[v.replica]++
					uncached[v.replica] += v.prefill.uncached
					work[v.replica] += v.prefill.cost
				}
				if waits[v.replica] == nil {
					waits[v.replica], pinned[v.replica] = map[uint64]int{}, map[uint64]bool{}
				}
				for _, b := range v.request.Blocks {
					waits[v.replica][b]++
					if v.pinned {
						pinned[v.replica][b] = true
					}
				}
				if v.pinned {
					loose[v.replica] += v.unkeyed
				}
			}
			for _, r := range p.replicas {
				q := &r.prefill
				if q.n != n[r] || q.uncached != uncached[r] || math.Abs(q.cost-work[r]) > 1e-6 {
					t.Fatalf("%s: queue of %d, %d tokens, work %v; its reservations say %d, %d, %v",
						r.name, q.n, q.uncached, q.cost, n[r], uncached[r], work[r])
				}
				walked := 0
				for i := q.first; i != 0; i = p.account.at(i).prefill.behind {
					walked++
				}
				if walked != q.n && q.n > 0 {
					t.Fatalf("%s: %d linked of %d queued", r.name, walked, q.n)
				}
				if m := r.cache; m.InUse() != len(waits[r])+loose[r] || m.Running() != len(pinned[r])+loose[r] {
					t.Fatalf("%s: %d blocks in use and %d running, its reservations say %d, %d and %d unkeyed",
						r.name, m.InUse(), m.Running(), len(waits[r]), len(pinned[r]), loose[r])
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { check() },
			"decide": func(t *rapid.T) {
				d, id := decide(p, document(rapid.IntRange(0, 3).Draw(t, "document"), rapid.IntRange(0, 5).Draw(t, "blocks"), rapid.IntRange(0, 9).Draw(t, "tail")),
					func(r *Request) {
						r.Stream, r.Cut = rapid.Bool().Draw(t, "stream"), rapid.Bool().Draw(t, "cut")
						r.Input += rapid.SampledFrom([]int{0, 1000}).Draw(t, "unseen")
					})
				if d.Server != "" {
					live = append(live, id)
				}
			},
			"again": func(t *rapid.T) {
				r, d := Request{ID: anyID(), Pool: p}, Decision{}
				p.Decide(&r, &d)
			},
			"connected": func(t *rapid.T) { p.Connected(anyID(), server()) },
			"first":     func(t *rapid.T) { p.FirstToken(anyID(), server()) },
			"finished": func(t *rapid.T) {
				p.Finished(Outcome{
					ID: anyID(), Server: server(), End: End(rapid.IntRange(0, int(Ends)-1).Draw(t, "end")),
					Redispatched: rapid.Bool().Draw(t, "redispatched"), TTFT: time.Duration(rapid.IntRange(0, 1e9).Draw(t, "ttft")),
				})
			},
			"discovered": func(t *rapid.T) {
				var s []ReplicaState
				for i := range rapid.IntRange(0, 5).Draw(t, "n") {
					s = append(s, ReplicaState{Name: fmt.Sprintf("r%d", i), Up: rapid.Bool().Draw(t, "up"), Idle: rapid.Bool().Draw(t, "idle"), Weight: 1})
				}
				p.Discovered(s)
			},
			"failed":    func(t *rapid.T) { p.Failed(anyID(), string(server()), Died) },
			"restarted": func(t *rapid.T) { p.Engine(string(server())).Restarted() },
			"size": func(t *rapid.T) {
				p.Engine(string(server())).Signals(Signals{CacheTokens: rapid.IntRange(0, 8).Draw(t, "tokens") * testBlock, At: clock.now})
			},
			"time": func(t *rapid.T) {
				clock.now += time.Duration(rapid.IntRange(1, 40_000).Draw(t, "ms")) * time.Millisecond
				p.sweep()
			},
		})
		clock.now += 2 * time.Minute
		p.sweep()
		check()
		for _, r := range p.replicas {
			if m := r.cache; m.InUse() != 0 || m.Running() != 0 || m.Len() > m.Capacity() {
				t.Fatalf("%s ends with %d blocks in use, %d running, %d held of %d", r.name, m.InUse(), m.Running(), m.Len(), m.Capacity())
			}
		}
	})
}

func TestBlocksGoWithTheRequest(t *testing.T) {
	p, _ := newTestPool(LeastWork{}, 3)
	cached := func(r string) int {
		q := Request{Pool: p}
		document(1, 8, 1)(&q)
		return p.byName[r].cache.Match(q.Blocks)
	}
	d, id := decide(p, document(1, 8, 1))
	other := "r0"
	if d.Server == other {
		other = "r1"
	}
	if cached(d.Server) != 8 {
		t.Fatal("the blocks of a request in flight do not count as present")
	}
	p.FirstToken(id, []byte(other))
	if cached(d.Server) != 0 || cached(other) != 8 {
		t.Errorf("served by %s: %d blocks there, %d left at %s", other, cached(other), cached(d.Server), d.Server)
	}
	p.Finished(Outcome{ID: id, Server: []byte(other)})
	if cached(other) != 8 {
		t.Error("the blocks went with the request that has ended")
	}
	p.Discovered([]ReplicaState{{Name: other, Weight: 1}})
	p.Discovered([]ReplicaState{{Name: other, Up: true, Weight: 1}})
	if cached(other) != 0 {
		t.Error("a replica that was down still has its cache")
	}
}

func TestCancelledBeforeItsFirstTokenLeavesNothing(t *testing.T) {
	p, _ := newTestPool(LeastWork{}, 1)
	_, id := decide(p, document(1, 8, 1))
	p.Finished(Outcome{ID: id, Server: []byte("r0"), End: ClientGone})
	if m := p.replicas[0].cache; m.Len() != 0 {
		t.Errorf("%d blocks are left", m.Len())
	}
}

// backlogs returns the predicted queues after the clock has moved.
func backlogs(p *Pool, clock *testClock, by time.Duration) []float64 {
	clock.now += by
	out := make([]float64, len(p.replicas))
	for i, r := range p.replicas {
		out[i] = p.load.backlog(r, clock.now)
	}
	return out
}

func TestQueueFallsAsTheHeadIsComputed(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 1)
	_, before := decide(p, document(0, 4, 0))
	serve(p, before, "r0") // first tokens are reported
	_, first := decide(p, document(1, 4, 0))
	_, second := decide(p, document(2, 4, 0))
	work := prefillCost(4*testBlock, 4*testBlock)
	for _, c := range []struct {
		after time.Duration
		want  float64
	}{
		{0, 2 * work},
		{50 * time.Millisecond, 2*work - 0.05*p.load.speedOf(p.replicas[0])},
		{50 * time.Second, 2*work - headDone*work}, // it was not reported: something holds it up
	} {
		if got := backlogs(p, clock, c.after)[0]; math.Abs(got-c.want) > 1 {
			t.Errorf("%v later: %v tokens, want %v", c.after, got, c.want)
		}
	}
	p.FirstToken(first, []byte("r0"))
	if got := backlogs(p, clock, 0)[0]; math.Abs(got-work) > 1 {
		t.Errorf("after the first one's first token: %v tokens, want %v", got, work)
	}
	p.FirstToken(second, []byte("r0"))
	if got := backlogs(p, clock, 0)[0]; got != 0 {
		t.Errorf("after both: %v tokens", got)
	}
}

// Without first tokens the clock empties the queues: of answers that are not
// streamed, and of all once it shows that the proxy does not tell.
func TestQueueFallsByTheClockWithoutReports(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 1)
	plain := func(r *Request) { r.Stream = false }
	decide(p, document(1, 4, 0), plain)
	decide(p, document(2, 4, 0), plain)
	if got := backlogs(p, clock, time.Second)[0]; got != 0 || p.replicas[0].prefill.n != 0 {
		t.Errorf("not streamed: %v tokens after a second", got)
	}
	if p.replicas[0].InFlight() != 2 {
		t.Error("the clock ended a request")
	}

	p, clock = newTestPool(LeastWork{}, 1)
	for n := range 20 {
		_, id := decide(p, document(n, 4, 0))
		clock.now += time.Second
		p.Finished(Outcome{ID: id, Server: []byte("r0"), TTFT: 400 * time.Millisecond})
	}
	decide(p, document(20, 4, 0))
	if got := backlogs(p, clock, 10*time.Second)[0]; got != 0 {
		t.Errorf("streamed, but first tokens are never reported: %v tokens after 10 s", got)
	}
	// 1,024 tokens in 0.4 s, in place of 0.1 s as was assumed.
	if speed := p.load.speedOf(p.replicas[0]); speed > 0.9*initialSpeed {
		t.Errorf("nothing was learned from times to first token that came late: %v tokens/s", speed)
	}
}

func TestSpeedIsLearned(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 2)
	speeds := map[string]float64{"r0": 8000, "r1": 2000}
	for n := range 400 {
		d, id := decide(p, document(n, 8, 0), func(r *Request) { r.Exclude = []string{"r0", "r1"}[n%2] })
		clock.now += time.Duration(prefillCost(8*testBlock, 8*testBlock) / speeds[d.Server] * 1e9)
		serve(p, id, d.Server)
	}
	fast, slow := p.load.speedOf(p.byName["r0"]), p.load.speedOf(p.byName["r1"])
	if fast < 6000 || fast > 9000 || slow < 1500 || slow > 3500 {
		t.Errorf("learned %.0f and %.0f tokens/s, want about 8000 and 2000", fast, slow)
	}
	p.load.learn(p.byName["r0"], 1000, 1e9)
	if after := p.load.speedOf(p.byName["r0"]); after < 0.8*fast {
		t.Errorf("one stall took the speed from %.0f to %.0f", fast, after)
	}
}

func TestUnseenPartOfAConversationFollowsTheSeen(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 8)
	turn := func(conversation, tokens int) func(*Request) {
		return func(r *Request) {
			document(conversation, 8, 0)(r)
			r.Input, r.Cut = tokens, true
		}
	}
	home, id := decide(p, turn(1, 40_000))
	serve(p, id, home.Server)
	clock.now += 20 * time.Second
	r := Request{Pool: p}
	turn(1, 44_000)(&r)
	blocks := len(r.Blocks)
	x := p.Explain(&r)
	if x.Server != home.Server || len(r.Blocks) != blocks {
		t.Errorf("the next turn went to %s, its cache is at %s", x.Server, home.Server)
	}
	for _, c := range x.Candidates {
		if own := c.Terms["own"]; c.Replica == home.Server && own > 4*5000 {
			t.Errorf("of 44,000 tokens, 40,000 of them computed a turn before, %v are taken to be new", own)
		}
	}
	// Requests that come faster than turns share a beginning, no more.
	for range 100 {
		d, id := decide(p, turn(2, 40_000))
		serve(p, id, d.Server)
	}
	turn(2, 40_000)(&r)
	for _, c := range p.Explain(&r).Candidates {
		if own := c.Terms["own"]; own < 30_000 {
			t.Errorf("%s is believed to have what was never seen: own work %v", c.Replica, own)
		}
	}
}

// Requests on their way to a replica will evict the blocks released there longest ago,
// before any later request is looked up.
func TestWhatIsOnItsWayTakesRoom(t *testing.T) {
	p, _ := newTestPool(LeastWork{}, 1)
	r := p.replicas[0]
	p.Engine(r.name).Signals(Signals{CacheTokens: 100 * testBlock})
	for key := range 4 {
		_, id := decide(p, document(key, 20, 10))
		serve(p, id, r.name)
	}
	decide(p, document(10, 60, 10))
	for key, want := range []int{0, 0, 20, 20} {
		if got := r.cache.Match(docBlocks(key, 20)); got != want {
			t.Errorf("%d blocks of document %d are believed to be there, want %d", got, key, want)
		}
	}
}

// What runs at one time is in the cache at one time, whatever size is configured,
// unless the engine itself reports one.
func TestCacheSizeIsSeen(t *testing.T) {
	const reported = 100 * testBlock
	p, clock := newTestPool(LeastWork{}, 1)
	r := p.replicas[0]
	r.cacheTokens = reported
	p.caches.resize(r)
	run := func(n int) (ids []ID) {
		for key := range n {
			_, id := decide(p, document(key, 20, 10))
			p.FirstToken(id, []byte(r.name))
			ids = append(ids, id)
		}
		return ids
	}
	end := func(ids []ID) {
		for _, id := range ids {
			p.Finished(Outcome{ID: id, Server: []byte(r.name)})
		}
	}
	run(1)
	if r.CacheTokens() != reported {
		t.Errorf("one request makes %d tokens of %d", r.CacheTokens(), reported)
	}
	end(run(10))
	if got := r.CacheTokens() / testBlock; got < 180 || got > 210 {
		t.Errorf("a cache in which 10 documents of 20 blocks ran is taken for one of %d blocks", got)
	}
	if got := r.cache.Match(docBlocks(2, 20)); got != 20 {
		t.Errorf("of a document of then, %d blocks are believed to be there", got)
	}
	run(40)
	if got := r.CacheTokens(); got != mostSeen*reported {
		t.Errorf("taken for %d tokens, want %d at most", got, mostSeen*reported)
	}
	// Their ends are never reported: it is unknown how long they ran.
	clock.now += 2 * DefaultLease
	p.sweep()
	if r.CacheTokens() != reported || r.cache.Len() > 100 {
		t.Errorf("by what had ended it is taken for %d tokens, and holds %d blocks", r.CacheTokens(), r.cache.Len())
	}
	run(10)
	p.Engine(r.name).Signals(Signals{CacheTokens: reported + testBlock})
	if got := r.CacheTokens(); got != reported+testBlock {
		t.Errorf("the engine says %d tokens, taken for %d", reported+testBlock, got)
	}
}

// A length is only what a client claims: it neither fills the memory nor
// empties the image.
func TestClaimedLengthsAreBounded(t *testing.T) {
	p, _ := newTestPool(LeastWork{}, 1)
	for range 20 {
		p.load.learn(p.replicas[0], 10*initialSpeed, 10)
	}
	_, id := decide(p, document(1, 20, 10))
	serve(p, id, "r0")
	_, id = decide(p, document(2, 4, 0), func(r *Request) { r.Input, r.Cut = 1<<40, true })
	m := p.replicas[0].cache
	if m.Len() > 20+maxExtrapolated {
		t.Errorf("%d blocks are held for a claim", m.Len())
	}
	p.FirstToken(id, []byte("r0"))
	p.Finished(Outcome{ID: id, Server: []byte("r0")})
	if got := m.Match(docBlocks(1, 20)); got != 20 {
		t.Errorf("a claim pressed out %d of 20 blocks", 20-got)
	}
	if speed := p.load.speedOf(p.replicas[0]); speed > 4*initialSpeed {
		t.Errorf("a claim raised the speed to %.0f tokens/s", speed)
	}
}
