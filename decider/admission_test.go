package decider

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"pointsman/decider/queue"
	"pointsman/session"
)

// client is a request with its Waiter.
type client struct {
	r     Request
	d     Decision
	held  bool
	bound int // calls of Bound
}

func (c *client) Bound() { c.bound++ }

// answered reports whether the decision is made.
func (c *client) answered() bool { return !c.held || c.bound > 0 }

// submit sends a request through the pool's admission.
func submit(p *Pool, change ...func(*Request)) *client {
	c := &client{r: Request{ID: newID(), Pool: p, Input: 1000, Output: -1, Stream: true}}
	for _, f := range change {
		f(&c.r)
	}
	c.held = p.Submit(&c.r, &c.d, c)
	return c
}

func inBand(n int) func(*Request) { return func(r *Request) { r.Band = n } }
func ofTenant(n int) func(*Request) {
	return func(r *Request) { r.Tenant = session.Key([]byte(fmt.Sprint("t", n))) }
}
func withInput(tokens int) func(*Request) { return func(r *Request) { r.Input = tokens } }

// withAdmission makes a pool's configuration one that holds requests, one at a
// time on each replica.
func withAdmission(a Admission) func(*PoolConfig) {
	a.Hold = true
	if len(a.Bands) == 0 {
		a.Bands = []queue.Band{{Name: "all"}}
	}
	return func(c *PoolConfig) { c.Admission, c.Limit = &a, 1 }
}

func finish(p *Pool, c *client) {
	p.Finished(Outcome{ID: c.r.ID, Server: []byte(c.d.Server), TTFT: time.Millisecond})
}

// Whatever happens, every request is answered once, none that left is bound,
// none waits beyond its time, and none waits while a replica has room.
func TestAdmissionAnswersEveryRequest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		orders := rapid.SliceOfN(rapid.IntRange(0, int(queue.Orders)-1), 3, 3).Draw(t, "orders")
		a := Admission{
			FIFO: rapid.Bool().Draw(t, "fifo"),
			Bands: []queue.Band{
				{Name: "a", Order: queue.Order(orders[0]), TTL: 20 * time.Second, MaxRequests: 5},
				{Name: "b", Order: queue.Order(orders[1]), TTL: 10 * time.Second, Weight: 2, MaxBytes: 500},
				{Name: "c", Order: queue.Order(orders[2]), TTL: 5 * time.Second, Weight: 1},
			},
			TenantWeights:      map[string]int{"t1": 3},
			HoldWithoutReplica: rapid.Bool().Draw(t, "await"),
		}
		p, clock := newTestPool(LeastWork{}, 3, withAdmission(a))
		reload := func(change func(*Admission)) {
			c := p.config
			next := *c.Admission
			change(&next)
			c.Admission = &next
			p.configure(c)
			p.admission.setSpills(map[string]*Pool{})
		}
		var all []*client
		live := map[*client]bool{} // sent or held, as the client sees it
		gone := map[*client]bool{}
		pick := func() *client {
			var list []*client
			for _, c := range all {
				if live[c] {
					list = append(list, c)
				}
			}
			if len(list) == 0 {
				return nil
			}
			return list[rapid.IntRange(0, len(list)-1).Draw(t, "which")]
		}
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			switch op := rapid.IntRange(0, 11).Draw(t, "op"); op {
			default:
				c := submit(p, inBand(rapid.IntRange(0, 2).Draw(t, "band")), ofTenant(rapid.IntRange(0, 3).Draw(t, "tenant")), func(r *Request) {
					r.Input = rapid.IntRange(0, 20_000).Draw(t, "input")
					r.Bytes = rapid.IntRange(0, 200).Draw(t, "bytes")
					if rapid.IntRange(0, 3).Draw(t, "deadline") == 0 {
						r.Deadline = clock.now + time.Duration(rapid.IntRange(1, 9000).Draw(t, "in"))*time.Millisecond
					}
				})
				all = append(all, c)
				live[c] = true
			case 6:
				if c := pick(); c != nil && c.d.Server != "" {
					p.FirstToken(c.r.ID, []byte(c.d.Server))
				}
			case 7, 8:
				if c := pick(); c != nil && c.d.Server != "" {
					delete(live, c)
					finish(p, c)
				}
			case 9:
				if c := pick(); c != nil {
					delete(live, c)
					gone[c] = !c.answered()
					p.Finished(Outcome{ID: c.r.ID, End: ClientGone, Server: []byte(c.d.Server)})
				}
			case 10:
				clock.now += time.Duration(rapid.IntRange(1, 6000).Draw(t, "ms")) * time.Millisecond
				if rapid.Bool().Draw(t, "sweep") {
					p.sweep()
				}
			case 11:
				switch rapid.IntRange(0, 4).Draw(t, "change") {
				case 0:
					up := rapid.IntRange(0, 7).Draw(t, "up")
					p.Discovered([]ReplicaState{
						{Name: "r0", Up: up&1 > 0, Weight: 1}, {Name: "r1", Up: up&2 > 0, Weight: 1}, {Name: "r2", Up: up&4 > 0, Weight: 1},
					})
				case 1:
					reload(func(a *Admission) { a.FIFO = !a.FIFO })
				case 4:
					reload(func(a *Admission) { a.HoldWithoutReplica = !a.HoldWithoutReplica })
				case 2:
					reload(func(a *Admission) { slices.Reverse(a.Bands) })
				case 3:
					p.Engine("r0").Signals(Signals{Waiting: rapid.IntRange(0, 9).Draw(t, "waiting"), At: clock.now})
				}
			}
			p.mu.Lock()
			p.admission.dispatch(clock.now)
			q := p.admission.queue
			if q.Len() > 0 && p.admission.capacity.update(&p.admission, clock.now) && p.admission.FIFO {
				for _, c := range all {
					it := q.Find(c.r.ID)
					if it == nil {
						continue
					}
					p.admission.restrict(it.Band, clock.now)
					p.admission.mask.on = true
					if p.admission.place(it.Value.request, clock.now) >= 0 {
						t.Fatalf("a request waits while a replica has capacity for it")
					}
				}
				p.admission.mask.on = false
			}
			if q.Len() > 0 && len(p.open) == 0 && (!p.admission.HoldWithoutReplica || clock.now-p.statesAt > blindAfter) {
				t.Fatal("a request waits for a replica that the pool does not wait for, or whose last report is old")
			}
			waiting, n := 0, 0
			for _, b := range q.Status(p.admission.counts, clock.now) {
				n += b.Queued
			}
			for _, c := range all {
				if it := q.Find(c.r.ID); it != nil && (it.Value.request != &c.r || it.Due() <= clock.now.Seconds()) {
					t.Fatalf("%v waits until %v, it is %v", c.r.ID, it.Due(), clock.now)
				}
			}
			if n != q.Len() {
				t.Fatalf("%d in bands, %d by id", n, q.Len())
			}
			p.mu.Unlock()
			for _, c := range all {
				switch {
				case c.bound > 1, c.bound > 0 && !c.held:
					t.Fatalf("answered %d times, held %v", c.bound, c.held)
				case !c.answered():
					waiting++
				case gone[c] && c.d.Server != "":
					t.Fatal("bound after it left")
				case c.d.Status == 429 && (c.d.Retry < 1 || c.d.Reason == "" || c.d.Server != ""):
					t.Fatalf("refused by %+v", c.d)
				case c.d.Server != "" && c.d.Wait > 20*time.Second:
					t.Fatalf("held for %v", c.d.Wait)
				}
			}
			if waiting != n {
				t.Fatalf("%d clients wait, %d are held", waiting, n)
			}
		}
		p.admission.drain(clock.now)
		for _, c := range all {
			if !c.answered() {
				t.Fatal("not answered at the end")
			}
		}
	})
}

// An urgent request overtakes all that wait in later bands; within a band the
// order is that of arrival, of deadlines, or of work and age.
func TestAdmissionOrder(t *testing.T) {
	served := func(p *Pool, running *client, waiting []*client) (order []int) {
		for range waiting {
			finish(p, running)
			for i, c := range waiting {
				if c != running && c.bound == 1 && !slices.Contains(order, i) {
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
		if running = short; long.bound == 1 {
			break
		}
	}
	if long.bound != 1 || clock.now < 15*time.Second || clock.now > 25*time.Second {
		t.Errorf("a prompt of 20,000 tokens is bound %d times after %v, want after about 20 s", long.bound, clock.now)
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
			at := slices.IndexFunc(waiting, func(c *client) bool { return c.bound == 1 })
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

// Limits shed at once, deadlines as soon as they cannot be met, and the answer
// tells when to come back.
func TestAdmissionSheds(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 1, withAdmission(Admission{Bands: []queue.Band{
		{Name: "a", MaxRequests: 2, TTL: 3 * time.Second}, {Name: "b", MaxBytes: 100},
	}}))
	running := submit(p)
	first, second := submit(p), submit(p)
	if c := submit(p); c.held || c.d.Status != 429 || c.d.Why != "queue_full" || c.d.Retry != 1 {
		t.Errorf("above the limit: %+v", c.d)
	}
	submit(p, inBand(1), func(r *Request) { r.Bytes = 60 })
	if c := submit(p, inBand(1), func(r *Request) { r.Bytes = 60 }); c.held || c.d.Why != "queue_full" {
		t.Errorf("above the limit of bytes: %+v", c.d)
	}
	// 100,000 tokens wait, at 10,000 a second: come back in 10 s.
	submit(p, inBand(1), withInput(100_000))
	if c := submit(p, inBand(1), func(r *Request) { r.Bytes = 101 }); c.d.Retry < 10 || c.d.Retry > 11 {
		t.Errorf("come back in %d s, want 10", c.d.Retry)
	}
	// A prompt of 50,000 tokens takes 5 s and more.
	if c := submit(p, withInput(50_000), func(r *Request) { r.Deadline = clock.now + 4*time.Second }); c.held || c.d.Why != "deadline" {
		t.Errorf("an impossible deadline: %+v", c.d)
	}
	late := submit(p, inBand(1), withInput(10_000), func(r *Request) { r.Deadline = clock.now + 2500*time.Millisecond })
	if !late.held {
		t.Fatalf("a possible deadline: %+v", late.d)
	}
	clock.now = 1400 * time.Millisecond
	p.sweep()
	if late.answered() {
		t.Error("refused with 1.1 s left for 1 s of work")
	}
	clock.now = 1600 * time.Millisecond
	p.sweep()
	if !late.answered() || late.d.Why != "deadline" || late.d.Status != 429 {
		t.Errorf("with 0.9 s left for 1 s of work: %+v", late.d)
	}
	clock.now = 3 * time.Second
	p.sweep()
	for _, c := range []*client{first, second} {
		if c.bound != 1 || c.d.Why != "waited_too_long" || c.d.Wait != 3*time.Second {
			t.Errorf("after its time to live: %+v", c.d)
		}
	}
	s := p.Status().Admission
	counts := s.Bands[0].Counts[queue.OtherTenants]
	if counts.Refused["queue_full"] != 1 || counts.Refused["waited_too_long"] != 2 || counts.Refused["deadline"] != 1 || s.Bands[1].Queued != 2 || s.Bands[1].Tokens != 101_000 {
		t.Errorf("status %+v", s)
	}
	finish(p, running)
}

// Clients that leave are forgotten, and so are those that the proxy sends on.
func TestAdmissionForgetsClients(t *testing.T) {
	p, _ := newTestPool(LeastWork{}, 1, withAdmission(Admission{}))
	running := submit(p)
	left, overtaken, stays := submit(p), submit(p), submit(p)
	p.Finished(Outcome{ID: left.r.ID, End: ClientGone})
	p.Connected(overtaken.r.ID, []byte("r0"))
	for _, c := range []*client{left, overtaken} {
		if c.bound != 1 || c.d.Server != "" || c.d.Why != "client_gone" {
			t.Errorf("%+v", c.d)
		}
	}
	finish(p, running)
	if stays.answered() {
		t.Error("bound while the overtaken one runs")
	}
	p.Finished(Outcome{ID: overtaken.r.ID, Server: []byte("r0")})
	if stays.d.Server != "r0" {
		t.Errorf("%+v", stays.d)
	}
}

// Without replicas, or without news, nobody waits for what will not come.
func TestAdmissionNeverFailsClosed(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 2, withAdmission(Admission{Bands: []queue.Band{{Name: "a", TTL: time.Hour}}}))
	submit(p)
	submit(p)
	waits := submit(p)
	clock.now = blindAfter / 2
	p.sweep()
	if waits.answered() {
		t.Fatal("full replicas took more")
	}
	clock.now = blindAfter + time.Second
	p.sweep()
	if !waits.answered() || waits.d.Status != 0 {
		t.Errorf("the feed is silent, and a request waits on: %+v", waits.d)
	}
	p, _ = newTestPool(LeastWork{}, 1, withAdmission(Admission{}))
	submit(p)
	waits = submit(p)
	p.Discovered([]ReplicaState{{Name: "r0", Weight: 1}})
	if !waits.answered() || waits.d.Why != "all_down" {
		t.Errorf("all are down, and a request waits: %+v", waits.d)
	}
	if c := submit(p); c.held || c.d.Why != "all_down" {
		t.Errorf("all are down: %+v", c.d)
	}

	p, _ = newTestPool(panicky{}, 1, withAdmission(Admission{}))
	if c := submit(p); c.held || c.d.Server != "" || p.Status().Stats.PolicyPanics != 1 {
		t.Errorf("a policy panics: %+v", c.d)
	}
}

// A request that the only replica has failed does not wait for another one.
func TestAdmissionOfASecondTry(t *testing.T) {
	p, _ := newTestPool(LeastWork{}, 2, withAdmission(Admission{}))
	failed := submit(p).d.Server
	other := map[string]string{"r0": "r1", "r1": "r0"}[failed]
	second := func(r *Request) { r.Exclude = failed }
	if c := submit(p, second); c.d.Server != other {
		t.Errorf("with another replica: %+v", c.d)
	}
	full := submit(p, second)
	if !full.held {
		t.Errorf("with another one that is full: %+v", full.d)
	}
	p.Discovered([]ReplicaState{{Name: other, Weight: 1}})
	if c := submit(p, second); c.held || c.d.Server != "" || c.d.Status != 0 {
		t.Errorf("with no other: %+v", c.d)
	}
}

type panicky struct{}

func (panicky) Rank(*Request, *View, []int) []int { panic("no") }

// What a band has no place for goes to the pool that it names.
func TestAdmissionSpills(t *testing.T) {
	clock := &testClock{}
	d := New(clock.tell, seeds())
	a := &Admission{Hold: true, Bands: []queue.Band{{Name: "a", MaxRequests: 1, Spill: "other"}}}
	d.Apply(Config{Pools: []PoolConfig{
		{Name: "one", Policy: LeastWork{}, Replicas: replicas(1), Limit: 1, Admission: a},
		{Name: "other", Policy: LeastWork{}, Replicas: replicas(1)},
	}})
	one := d.Pool("one")
	submit(one)
	submit(one)
	if c := submit(one); c.held || c.d.Pool != "other" || c.d.Server != "r0" {
		t.Errorf("%+v", c.d)
	}
	if c := submit(one, func(r *Request) { r.Fixed = true }); c.d.Status != 429 {
		t.Errorf("the proxy has chosen the pool, yet %+v", c.d)
	}
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

// firstAlways is a policy that knows one replica alone.
type firstAlways struct{}

func (firstAlways) Rank(_ *Request, v *View, dst []int) []int { return append(dst, v.Candidates[0]) }

// An admission that changes keeps who waits; one that goes lets them go.
func TestAdmissionReload(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 1, withAdmission(Admission{Bands: []queue.Band{{Name: "a"}, {Name: "b"}}}))
	running := submit(p)
	b, a := submit(p, inBand(1)), submit(p)
	clock.now = time.Second
	c := p.config
	c.Admission = &Admission{Hold: true, Bands: []queue.Band{{Name: "b"}, {Name: "a"}}}
	p.configure(c)
	finish(p, running)
	if b.d.Server == "" || a.answered() || b.d.Wait != time.Second {
		t.Errorf("after a reload that turns the bands round: a %+v, b %+v", a.d, b.d)
	}
	c.Admission = nil
	p.configure(c)
	if !a.answered() || p.Status().Admission != nil {
		t.Errorf("after a reload without admission: %+v", a.d)
	}
}

// The proxy is told the order in which its queues shall be served.
func TestAdmissionInTheProxy(t *testing.T) {
	p, clock := newTestPool(LeastRequests{}, 2, withAdmission(Admission{Bands: []queue.Band{{Name: "a"}, {Name: "b", MaxRequests: 3}}}), func(c *PoolConfig) {
		c.Admission.Hold = false
	})
	var sent []*client
	for range 4 {
		sent = append(sent, submit(p, inBand(1), ofTenant(1)))
	}
	for i, c := range sent {
		if c.held || c.d.Server == "" || c.d.Class != 10 || !c.d.Ordered {
			t.Fatalf("request %d: %+v", i, c.d)
		}
		if i > 0 && c.d.Offset <= sent[i-1].d.Offset {
			t.Errorf("offsets of one tenant do not grow: %d, then %d", sent[i-1].d.Offset, c.d.Offset)
		}
	}
	if c := submit(p, inBand(1), ofTenant(2)); c.d.Offset != 0 {
		t.Errorf("another tenant's offset is %d", c.d.Offset)
	}
	if c := submit(p, inBand(1)); c.d.Status != 429 || c.d.Why != "queue_full" {
		t.Errorf("3 of band b wait: %+v", c.d)
	}
	if c := submit(p); c.d.Status != 0 || c.d.Class != 0 {
		t.Errorf("band a: %+v", c.d)
	}
	for i, c := range sent[:2] {
		clock.now = 10 * time.Second * time.Duration(i+1) / 2
		finish(p, c)
	}
	if c := submit(p, inBand(1), ofTenant(2)); c.d.Status != 0 {
		t.Errorf("2 of band b wait: %+v", c.d)
	}
	// Two ended in ten seconds or so, and four are ahead.
	if c := submit(p, inBand(1), func(r *Request) { r.Deadline = clock.now + 5*time.Second }); c.d.Why != "deadline" {
		t.Errorf("a deadline before its turn: %+v", c.d)
	}
}

// Holding and binding allocate nothing once the queue has grown.
func TestSubmitDoesNotAllocate(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 4, withAdmission(Admission{Bands: []queue.Band{{Name: "a", Order: queue.ByWork}, {Name: "b"}}}))
	ring := make([]client, 64)
	k := 0
	step := func() {
		clock.now += time.Millisecond
		c := &ring[k%len(ring)]
		if k >= len(ring) {
			if !c.answered() {
				p.Finished(Outcome{ID: c.r.ID, End: ClientGone})
			} else {
				finish(p, c)
			}
		}
		*c = client{r: Request{ID: ID{byte(k), byte(k >> 8), byte(k >> 16)}, Pool: p, Input: 100 + k%7, Output: -1, Stream: true, Band: k % 2, Tenant: uint64(k % 5)}}
		c.held = p.Submit(&c.r, &c.d, c)
		k++
	}
	for range 2000 {
		step()
	}
	if a := testing.AllocsPerRun(2000, step); a > 0.1 {
		t.Errorf("%v allocations a request", a)
	}
}

// BenchmarkSubmit is a request that finds 10,000 waiting, and one that leaves.
func BenchmarkSubmit(b *testing.B) {
	for _, waiting := range []int{0, 100, 10_000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			p, _ := newTestPool(LeastWork{}, 8, withAdmission(Admission{Bands: []queue.Band{{Name: "a", TTL: time.Hour, MaxRequests: 1 << 20, Order: queue.ByWork}}}))
			list := make([]*client, 0, waiting+b.N+8)
			for range waiting + 8 {
				list = append(list, submit(p, withInput(100+len(list)%5000)))
			}
			running := slices.Clone(list[:8])
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				c := &client{r: Request{ID: ID{1, byte(i), byte(i >> 8), byte(i >> 16), byte(i >> 24)}, Pool: p, Input: 100 + i%5000, Output: -1, Stream: true}}
				c.held = p.Submit(&c.r, &c.d, c)
				finish(p, running[i%8])
				if c.d.Server != "" {
					running[i%8] = c
				}
			}
		})
	}
}
