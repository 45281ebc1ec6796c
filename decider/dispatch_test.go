package decider

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"pointsman/decider/kvcache"
	"pointsman/decider/queue"
)

// An urgent request overtakes all that wait in later bands. Within a band the
// order is that of arrival, of deadlines, or of work and age.
func TestAdmissionOrder(t *testing.T) {
	served := func(p *Pool, running *client, waiting []*client) (order []int) {
		for range waiting {
			finish(p, running)
			for i, c := range waiting {
				if c != running && c.calls == 1 && !slices.Contains(order, i) {
					order, running = append(order, i), c
				}
			}
		}
		return order
	}
	at := func(d time.Duration) func(*Request) { return func(r *Request) { r.Deadline = d } }
	for name, c := range map[string]struct {
		bands   []queue.Band
		changes [][]func(*Request)
		want    []int
	}{
		"strict bands": {[]queue.Band{{Name: "a"}, {Name: "b"}}, [][]func(*Request){{inBand(1)}, {inBand(1)}, {inBand(0)}, {inBand(1)}, {inBand(0)}}, []int{2, 4, 0, 1, 3}},
		"arrival":      {[]queue.Band{{Name: "a"}}, [][]func(*Request){{withInput(9)}, {withInput(1)}, {withInput(5)}}, []int{0, 1, 2}},
		"deadline":     {[]queue.Band{{Name: "a", Order: queue.ByDeadline}}, [][]func(*Request){{}, {at(9 * time.Second)}, {at(8 * time.Second)}}, []int{2, 1, 0}},
		"work":         {[]queue.Band{{Name: "a", Order: queue.ByWork}}, [][]func(*Request){{withInput(1500)}, {withInput(100)}, {withInput(900)}}, []int{1, 2, 0}},
		"weights": {[]queue.Band{{Name: "a", Weight: 2}, {Name: "b", Weight: 1}},
			[][]func(*Request){{inBand(0)}, {inBand(0)}, {inBand(0)}, {inBand(0)}, {inBand(1)}, {inBand(1)}}, []int{0, 4, 1, 2, 5, 3}},
	} {
		for _, fifo := range []bool{false, true} {
			p, _ := newTestPool(LeastWork{}, 1, withAdmission(Admission{Bands: c.bands, FIFO: fifo}))
			running := submit(p, inBand(len(c.bands)-1), withInput(1))
			var waiting []*client
			for _, change := range c.changes {
				waiting = append(waiting, submit(p, change...))
			}
			if got := served(p, running, waiting); !slices.Equal(got, c.want) {
				t.Errorf("%s, fifo %v: served in the order %v, want %v", name, fifo, got, c.want)
			}
		}
	}

	// Work ages: a long prompt does not wait for ever behind short ones.
	p, clock := newTestPool(LeastWork{}, 1, withAdmission(Admission{Bands: []queue.Band{{Name: "a", Order: queue.ByWork, TTL: time.Hour}}}))
	running := submit(p)
	long := submit(p, withInput(20_000))
	for range 100 {
		clock.now += time.Second
		short := submit(p, withInput(500))
		finish(p, running)
		if running = short; long.calls == 1 {
			break
		}
	}
	if long.calls != 1 || clock.now < 15*time.Second || clock.now > 25*time.Second {
		t.Errorf("a prompt of 20,000 tokens is answered %d times after %v, want after about 20 s", long.calls, clock.now)
	}
}

// Tenants that always wait share the work by their weights, whatever the sizes
// of their requests and however many they send.
func TestAdmissionIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weight := rapid.IntRange(1, 4).Draw(t, "weight")
		sizes := rapid.SliceOfN(rapid.IntRange(100, 5000), 3, 3).Draw(t, "sizes")
		p, _ := newTestPool(&RoundRobin{}, 1, withAdmission(Admission{TenantWeights: map[string]int{"t0": weight}}))
		running := submit(p, ofTenant(9), withInput(1))
		var waiting []*client
		tenantOf := map[*client]int{}
		work := [3]int{}
		fill := func(n, k int) {
			for range n {
				c := submit(p, ofTenant(k), withInput(sizes[k]))
				tenantOf[c] = k
				waiting = append(waiting, c)
			}
		}
		fill(100, 0) // one has far more waiting than the others
		fill(5, 1)
		fill(5, 2)
		total := 0
		for total < 60*max(sizes[1], sizes[2]) {
			finish(p, running)
			at := slices.IndexFunc(waiting, func(c *client) bool { return c.calls == 1 })
			if at < 0 {
				t.Fatal("nobody is served")
			}
			running = waiting[at]
			k := tenantOf[running]
			work[k] += running.r.Input
			total += running.r.Input
			waiting = slices.Delete(waiting, at, at+1)
			fill(1, k)
		}
		most := float64(slices.Max(sizes))
		for k := range 3 {
			share := 1.0
			if k == 0 {
				share = float64(weight)
			}
			want := float64(total) * share / float64(weight+2)
			if math.Abs(float64(work[k])-want) > 3*most {
				t.Fatalf("tenant %d had %d of %d tokens, want %.0f; sizes %v, weight %d", k, work[k], total, want, sizes, weight)
			}
		}
	})
}

// A request waits for the replica that has its prompt, while later ones pass;
// an idle replica takes it when that is far better.
func TestAdmissionMatchesOutOfOrder(t *testing.T) {
	warm := make([]uint64, 20)
	for i := range warm {
		warm[i] = uint64(i + 1)
	}
	build := func(fifo bool) (p *Pool, busy *client, clock *testClock) {
		p, clock = newTestPool(LeastWork{}, 2, withAdmission(Admission{FIFO: fifo}), func(c *PoolConfig) { c.Limit = 0 })
		c := submit(p, withInput(20*DefaultBlockTokens), func(r *Request) { r.Blocks = warm })
		p.FirstToken(c.r.ID, []byte(c.d.Server))
		finish(p, c)
		busy = submit(p, withInput(20*DefaultBlockTokens+3000), func(r *Request) { r.Blocks = append(warm, 77, 78, 79) })
		if busy.d.Server != c.d.Server {
			t.Fatal("a warm prompt went to a cold replica")
		}
		return p, busy, clock
	}
	again := func(r *Request) { r.Input, r.Blocks = 20*DefaultBlockTokens, warm }

	p, busy, _ := build(false)
	waits := submit(p, again)
	if waits.answered() {
		t.Fatalf("a warm prompt did not wait for its replica: %+v", waits.d)
	}
	if c := submit(p, withInput(500)); c.held || c.d.Server == busy.d.Server {
		t.Errorf("a cold prompt: held %v, %+v", c.held, c.d)
	}
	p.FirstToken(busy.r.ID, []byte(busy.d.Server))
	if waits.d.Server != busy.d.Server {
		t.Errorf("a warm prompt: %+v", waits.d)
	}

	p, busy, _ = build(true)
	if c := submit(p, again); c.held || c.d.Server == busy.d.Server {
		t.Errorf("first in, first out: held %v, %+v", c.held, c.d)
	}

	// Work that another replica would have to wait with goes to an idle one.
	p, _ = newTestPool(firstAlways{}, 2, withAdmission(Admission{}), func(c *PoolConfig) { c.Limit = 0 })
	for i, want := range []string{"r0", "r1", ""} {
		if c := submit(p, withInput(50_000)); c.held != (want == "") || c.d.Server != want {
			t.Errorf("request %d: held %v, %+v", i, c.held, c.d)
		}
	}
}

// A process that gets little of a processor for long loses time bit by bit: all of it
// counts for those who waited meanwhile, also once it runs again.
func TestStarvedProcessRefusesNobody(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 1, withAdmission(Admission{Bands: []queue.Band{{Name: "a", TTL: 2 * time.Second}}}))
	d := New(clock.tell, seeds())
	d.pools.Store(&[]*Pool{p})
	tick := func(n int, every time.Duration) {
		for range n {
			clock.now += every
			d.Dispatch()
		}
	}
	submit(p)
	tick(50, 20*time.Millisecond)
	waits := submit(p)
	tick(50, 20*time.Millisecond)
	tick(30, 100*time.Millisecond) // starved
	later := submit(p)
	tick(45, 20*time.Millisecond)
	if waits.answered() {
		t.Errorf("refused for time in which the process did not run: %+v", waits.d)
	}
	tick(10, 20*time.Millisecond)
	if !waits.answered() || waits.d.Why != "waited_too_long" {
		t.Errorf("it has waited for as long as it may: %+v", waits.d)
	}
	if later.answered() {
		t.Errorf("refused early: %+v", later.d)
	}
	tick(50, 20*time.Millisecond)
	if !later.answered() {
		t.Error("one that came after the process had starved waits for longer than it may")
	}
}

// firstAlways is a policy that chooses the first candidate.
type firstAlways struct{}

func (firstAlways) Rank(_ *Request, v *View, dst []int) []int { return append(dst, v.Candidates[0]) }

// A process that was stopped refuses no request for the time that it lost: it still has to
// read which replicas have capacity.
func TestStalledProcessRefusesNobody(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 1, withAdmission(Admission{Bands: []queue.Band{{Name: "a", TTL: 2 * time.Second}}}))
	d := New(clock.tell, seeds())
	d.pools.Store(&[]*Pool{p})
	tick := func(n int) {
		for range n {
			clock.now += 20 * time.Millisecond
			d.Dispatch()
		}
	}
	running, waits := submit(p), submit(p)
	tick(50)
	clock.now += 4 * time.Second // stopped
	tick(10)
	if waits.answered() {
		t.Fatalf("refused right after a stop: %+v", waits.d)
	}
	finish(p, running)
	if !waits.answered() || waits.d.Server != "r0" {
		t.Errorf("there is capacity: %+v", waits.d)
	}
	again := submit(p)
	tick(10)
	clock.now += 3 * time.Second
	tick(140)
	if again.answered() {
		t.Errorf("refused before the process has caught up: %+v", again.d)
	}
	tick(20)
	if !again.answered() || again.d.Why != "waited_too_long" {
		t.Errorf("the process has caught up, and nothing was free: %+v", again.d)
	}
}

// loyal ranks the first replica first, and compares prefixes.
type loyal struct{ firstAlways }

func (loyal) UsesPrefix() bool { return true }

// Other replicas do not stay idle beside a long line for the one that has the prefix, although
// a second copy is worth it only to requests that are far behind.
func TestLongLineReachesIdleReplicas(t *testing.T) {
	warm := make([]uint64, 20)
	for i := range warm {
		warm[i] = uint64(i + 1)
	}
	const own = 20
	elsewhere := func(line int) (n int) {
		p, _ := newTestPool(loyal{}, 2, withAdmission(Admission{Bands: []queue.Band{{Name: "all", MaxRequests: 10_000}}}), func(c *PoolConfig) { c.Limit = 0 })
		c := submit(p, withInput(20*DefaultBlockTokens), func(r *Request) { r.Blocks = warm })
		p.FirstToken(c.r.ID, []byte(c.d.Server))
		finish(p, c)
		submit(p, withInput(20*DefaultBlockTokens+3000), func(r *Request) { r.Blocks = append(warm, 77, 78, 79) })
		for range line {
			if c := submit(p, withInput(20*DefaultBlockTokens+own), func(r *Request) { r.Blocks = warm }); c.answered() && c.d.Server == "r1" {
				n++
			}
		}
		return n
	}
	// A copy of the prefix must save four times what it costs.
	const worth = 4 * 20 * DefaultBlockTokens / own
	if n := elsewhere(worth / 2); n != 0 {
		t.Errorf("a short line: %d requests went to the other replica", n)
	}
	if n := elsewhere(2 * worth); n == 0 {
		t.Error("a long line beside an idle replica")
	}
}

// TestHeldRequestsAreDemand: requests that wait count as requests for their prefix as soon as
// they come, in all agents, and not again when they are sent.
func TestHeldRequestsAreDemand(t *testing.T) {
	c := newCouple(t, Admission{}, func(p *PoolConfig) { p.CacheTokens = 1 << 20 })
	prompt := func(r *Request) { r.Blocks = []uint64{7, 8} }
	rate := func(what string, want float64) {
		t.Helper()
		for i := range c.d {
			if got, _ := c.pool(i).caches.model.Requests(7, kvcache.Milliseconds(c.clock.now)); got != want {
				t.Errorf("%s: agent %d knows of %v requests for the prefix, want %v", what, i, got, want)
			}
		}
	}
	running := []*client{submit(c.pool(0), prompt), submit(c.pool(0))}
	c.share()
	rate("one computes it", 0)
	for i := range 6 {
		running = append(running, submit(c.pool(i%2), prompt))
		c.share()
	}
	c.want("both replicas are full", 6)
	rate("six wait", 6)
	for k := 0; k < len(running); k++ {
		pool := c.pool(0)
		if k >= 2 {
			pool = c.pool(k % 2)
		}
		finish(pool, running[k])
		c.share()
	}
	c.want("all were sent", 0)
	rate("all were sent", 6)
}
