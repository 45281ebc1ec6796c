package decider

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestASignalWeighsLessAsItAges(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 1, func(c *PoolConfig) { c.CacheTokens = 10_000 })
	v := &p.view
	decide(p, func(r *Request) { r.Stream = true })
	clock.now = time.Second
	p.Engine("r0").Signals(Signals{Waiting: 7, Running: 20, KVUsage: .5, Throughput: 3})
	look := func() [4]float64 {
		v.Now = clock.now
		return [4]float64{v.WaitingRequests(0), v.RunningRequests(0), v.KVUsage(0), v.Throughput(0)}
	}
	if got := look(); got != [4]float64{7, 20, .5, 3} {
		t.Errorf("at once: %v", got)
	}
	decide(p, func(r *Request) { r.Stream, r.Input, r.Output = true, 1000, 0 })
	if got := look(); got[0] != 8 || got[1] != 20 || math.Abs(got[2]-.6) > 1e-9 {
		t.Errorf("with a request more than the engine knew of: %v", got)
	}
	before := 8.0
	for range 12 {
		clock.now += 5 * time.Second
		n := look()[0]
		if n >= before || n < 0 {
			t.Errorf("%v waiting after %v", n, clock.now)
		}
		before = n
	}
	// By the clock both prompts were computed long ago.
	if got := look(); got[0] > .01 || math.Abs(got[1]-2) > .01 || math.Abs(got[2]-.11) > .01 || got[3] > .01 {
		t.Errorf("after a minute: %v", got)
	}
}

// Whatever engines say, and however long ago, a replica is chosen.
func TestNoSignalStopsADecision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := rapid.SampledFrom([]Policy{LeastWork{}, LeastSignals{}}).Draw(t, "policy")
		p, clock := newTestPool(policy, 3)
		for range 20 {
			clock.now += time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "pause"))
			name := rapid.SampledFrom([]string{"r0", "r1", "r2", "none"}).Draw(t, "replica")
			p.Engine(name).Signals(Signals{
				Waiting: rapid.Int().Draw(t, "waiting"), Running: rapid.Int().Draw(t, "running"),
				KVUsage:     rapid.SampledFrom([]float64{0, 1, -1, 1e300, math.NaN(), math.Inf(1)}).Draw(t, "usage"),
				Throughput:  rapid.Float64().Draw(t, "throughput"),
				CacheTokens: rapid.IntRange(-5, 1_000_000).Draw(t, "cache"),
			})
			p.Engine(name).FirstTokens(rapid.IntRange(-3, 100).Draw(t, "firsts"))
			p.Engine(name).Prompts(rapid.Int().Draw(t, "tokens"), rapid.Int().Draw(t, "queries"), rapid.Int().Draw(t, "hits"))
			if d, _ := decide(p); d.Server == "" {
				t.Fatal("no replica was chosen")
			}
		}
	})
}

func TestExplainTellsTheAgesOfSignals(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 2)
	p.Engine("r1").Signals(Signals{})
	clock.now += 3 * time.Second
	for _, c := range p.Explain(&Request{Pool: p, Input: 1}).Candidates {
		if known := c.SignalAge != nil; known != (c.Replica == "r1") || known && *c.SignalAge != 3 {
			t.Errorf("%s: %v", c.Replica, c.SignalAge)
		}
	}
}

func TestTheEngineSizesTheMirror(t *testing.T) {
	p, _ := newTestPool(LeastWork{}, 2)
	blocks := func() [2]int { return [2]int{p.replicas[0].cache.Capacity(), p.replicas[1].cache.Capacity()} }
	if blocks() != [2]int{DefaultCacheTokens / 256, DefaultCacheTokens / 256} {
		t.Errorf("%v blocks", blocks())
	}
	p.Engine("r1").Signals(Signals{CacheTokens: 25_600})
	if blocks() != [2]int{DefaultCacheTokens / 256, 100} {
		t.Errorf("%v blocks after r1 reported its size", blocks())
	}
	p.configure(p.config) // a reload forgets nothing of it
	if blocks()[1] != 100 || p.Status().Replicas[1].CacheTokens != 25_600 {
		t.Errorf("%v blocks after a reload", blocks())
	}
}

func TestARestartedEngineHasAnEmptyCache(t *testing.T) {
	p, _ := newTestPool(LeastWork{}, 1)
	d, id := decide(p, func(r *Request) { r.Blocks, r.Input, r.Stream = []uint64{1, 2, 3}, 800, true })
	p.FirstToken(id, []byte(d.Server))
	p.Finished(Outcome{ID: id, Server: []byte(d.Server)})
	if n := p.replicas[0].cache.Match([]uint64{1, 2, 3}); n != 3 {
		t.Fatalf("%d blocks", n)
	}
	p.Engine("r0").Restarted()
	if n := p.replicas[0].cache.Match([]uint64{1, 2, 3}); n != 0 {
		t.Errorf("%d blocks after a restart", n)
	}
}

// The engine's count and the proxy's lines, each as late as may be, together
// tell of each first token once.
func TestCountedFirstTokensAreThoseOfTheOldest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, clock := newTestPool(LeastWork{}, 1)
		p.Engine("r0").FirstTokens(0)
		type request struct {
			id                       ID
			first, reported, skipped bool
		}
		var queue []*request // in the engine's order, without those that left
		var lines []*request // what the proxy will report, in order
		counted := 0
		line := func() {
			q := lines[0]
			lines = lines[1:]
			if rapid.Bool().Draw(t, "end") {
				p.Finished(Outcome{ID: q.id, Server: []byte("r0"), TTFT: time.Millisecond})
				q.reported = true
			} else {
				p.FirstToken(q.id, []byte("r0"))
			}
		}
		scrape := func() {
			p.Engine("r0").FirstTokens(counted)
			counted = 0
		}
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			clock.now += time.Duration(rapid.IntRange(0, 50).Draw(t, "ms")) * time.Millisecond
			switch rapid.IntRange(0, 4).Draw(t, "event") {
			case 0:
				_, id := decide(p, func(r *Request) { r.Stream = rapid.Bool().Draw(t, "stream") })
				queue = append(queue, &request{id: id})
			case 1: // the engine yields a first token
				for _, q := range queue {
					if !q.first && !q.skipped {
						q.first = true
						counted++
						if rapid.Bool().Draw(t, "proxy reports") {
							lines = append(lines, q)
						}
						break
					}
				}
			case 2: // a client leaves before its first token
				for _, q := range queue {
					if !q.first && !q.skipped && rapid.Bool().Draw(t, "leaves") {
						q.skipped = true
						p.Finished(Outcome{ID: q.id, Server: []byte("r0"), End: ClientGone})
						break
					}
				}
			case 3:
				if len(lines) > 0 {
					line()
				}
			case 4:
				scrape()
			}
		}
		scrape()
		for _, q := range queue {
			v := p.find(q.id)
			switch {
			case q.skipped || q.reported:
				if v != nil {
					t.Fatal("a reservation outlived its end")
				}
			case v == nil:
				t.Fatal("a reservation is gone")
			case v.started != q.first:
				t.Fatalf("first token %v, taken for %v", q.first, v.started)
			}
		}
	})
}

// An engine that counts first tokens needs no clock: requests that it has not counted wait.
func TestCountedEnginesAreNotJudgedByTheClock(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 1)
	p.Engine("r0").FirstTokens(0)
	decide(p)
	clock.now = 9 * time.Second
	p.view.Now = clock.now
	if p.view.PrefillBacklog(0); p.view.PrefillQueueLen(0) != 1 {
		t.Error("a prompt of 100 tokens is taken for done while the engine says otherwise")
	}
	clock.now = 11 * time.Second // the engine has fallen silent
	p.view.Now = clock.now
	if p.view.PrefillBacklog(0); p.view.PrefillQueueLen(0) != 0 {
		t.Error("a prompt of 100 tokens is taken to wait for ever once the engine is silent")
	}
}

// Requests from elsewhere make the engine count more than the pool sent. The surplus at an
// empty queue does not count against later requests.
func TestForeignFirstTokensAreForgotten(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 1)
	p.Engine("r0").FirstTokens(0)
	_, id := decide(p)
	p.Finished(Outcome{ID: id, Server: []byte("r0")}) // never counted by the engine
	for range 3 {
		clock.now += 100 * time.Millisecond
		p.Engine("r0").FirstTokens(0)
	}
	p.Engine("r0").FirstTokens(50)
	_, id = decide(p)
	clock.now += 100 * time.Millisecond
	p.Engine("r0").FirstTokens(0)
	if p.find(id).started {
		t.Error("a first token from elsewhere was taken for that of a later request")
	}
	p.Engine("r0").FirstTokens(1)
	if !p.find(id).started {
		t.Error("an end that was never counted still hides a first token")
	}
}

// With prompts of three bytes a token the pool comes to count three.
func TestLearnsHowLongTokensAre(t *testing.T) {
	clock := &testClock{}
	d := New(clock.tell, seeds())
	d.Apply(Config{Pools: []PoolConfig{{Name: "llama", Models: []string{"m"}, Policy: LeastWork{}, Replicas: replicas(1)}}})
	p := d.Pools()[0]
	const text = 3004
	var r Request
	var out Decision
	send := func() {
		r = Request{ID: newID(), Pool: p, TextBytes: text, Input: int(text / p.BytesPerToken()), Output: -1}
		p.Decide(&r, &out)
		clock.now += 10 * time.Millisecond
		p.Engine("r0").FirstTokens(1)
		p.Finished(Outcome{ID: r.ID, Server: []byte(out.Server)})
	}
	send()
	if r.Input != text/4 || p.view.BlockTokens != 256 {
		t.Fatalf("%d tokens to begin with, %d in a block", r.Input, p.view.BlockTokens)
	}
	for range 3000 {
		send()
		p.Engine("r0").Prompts(text/3, 0, 0)
	}
	if b := p.BytesPerToken(); math.Abs(b-3) > .05 {
		t.Errorf("%v bytes a token", b)
	}
	if math.Abs(float64(r.Input-text/3)) > float64(text)/100 {
		t.Errorf("%d tokens, want %d", r.Input, text/3)
	}
	if n := p.view.BlockTokens; n < 335 || n > 346 || p.replicas[0].cache.Capacity() != DefaultCacheTokens/n {
		t.Errorf("%d tokens in a block, %d blocks", n, p.replicas[0].cache.Capacity())
	}
	learned := p.BytesPerToken()
	for range 300 { // as many again from elsewhere, of twice the length
		send()
		p.Engine("r0").FirstTokens(1)
		p.Engine("r0").Prompts(text/3+2*text/3, 0, 0)
	}
	if p.BytesPerToken() != learned {
		t.Error("learned from prompts that nobody here has seen")
	}
}

// A prompt of token ids and pictures says nothing of text.
func TestLearnsFromTextAlone(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 1)
	for range 500 {
		_, _ = decide(p, func(r *Request) { r.TextBytes, r.ExactTokens = 10, 1000 })
		clock.now += time.Millisecond
		p.Engine("r0").FirstTokens(1)
		p.Engine("r0").Prompts(1500, 0, 0)
	}
	if b := p.BytesPerToken(); b != bytesPerToken {
		t.Errorf("%v bytes a token", b)
	}
}

// A first token that the feed loses holds up nothing behind it for long where the
// engine shows that nothing waits.
func TestLostFirstTokensFollowTheEngine(t *testing.T) {
	for _, waiting := range []int{0, 1} {
		p, clock := newTestPool(LeastWork{}, 1)
		stream := func(r *Request) { r.Input, r.Stream = 1000, true }
		_, id := decide(p, stream)
		p.FirstToken(id, []byte("r0")) // the feed reports them
		decide(p, stream)
		for range 5 {
			clock.now += time.Second
			p.Engine("r0").Signals(Signals{Running: 2, Waiting: waiting})
		}
		if n, want := p.view.PrefillBacklog(0), float64(0); waiting == 0 && n != want {
			t.Errorf("a backlog of %v where nothing waits", n)
		} else if waiting > 0 && p.replicas[0].prefill.n != 1 {
			t.Error("a request that may wait in the engine was taken for computed")
		}
	}
}
