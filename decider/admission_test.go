package decider

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"pointsman/decider/queue"
)

// Whatever happens, every request is answered once, none whose client left is
// assigned, none waits beyond its time, and none waits while a replica has
// capacity.
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
			if q.Len() > 0 && p.admission.capacity.update(clock.now) && p.admission.FIFO {
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
				case c.calls > 1, c.calls > 0 && !c.held:
					t.Fatalf("answered %d times, held %v", c.calls, c.held)
				case !c.answered():
					waiting++
				case gone[c] && c.d.Server != "":
					t.Fatal("assigned after its client left")
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

// The pool forgets requests whose clients leave, and those that the proxy sends
// by itself.
func TestAdmissionForgetsClients(t *testing.T) {
	p, _ := newTestPool(LeastWork{}, 1, withAdmission(Admission{}))
	running := submit(p)
	left, overtaken, stays := submit(p), submit(p), submit(p)
	p.Finished(Outcome{ID: left.r.ID, End: ClientGone})
	p.Connected(overtaken.r.ID, []byte("r0"))
	for _, c := range []*client{left, overtaken} {
		if c.calls != 1 || c.d.Server != "" || c.d.Why != "client_gone" {
			t.Errorf("%+v", c.d)
		}
	}
	finish(p, running)
	if stays.answered() {
		t.Error("assigned while the one that the proxy sent runs")
	}
	p.Finished(Outcome{ID: overtaken.r.ID, Server: []byte("r0")})
	if stays.d.Server != "r0" {
		t.Errorf("%+v", stays.d)
	}
}

// Without replicas, or without reports, no request waits for what will not come.
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
		t.Errorf("the feed is silent, and a request still waits: %+v", waits.d)
	}

	// While something counts what the replicas hold, silence means that nothing ends.
	for name, count := range map[string]func(p *Pool, held int, now time.Duration){
		"the engines": func(p *Pool, held int, now time.Duration) {
			p.Engine("r0").Signals(Signals{Running: held, At: now})
			p.Engine("r1").Signals(Signals{Running: held, At: now})
		},
		"the proxy": func(p *Pool, held int, _ time.Duration) {
			p.Discovered([]ReplicaState{
				{Name: "r0", Up: true, Weight: 1, Requests: held, Counted: true, Origin: 7}, {Name: "r1", Up: true, Weight: 1, Requests: held, Counted: true, Origin: 7},
			})
		},
	} {
		p, clock := newTestPool(LeastWork{}, 2, withAdmission(Admission{Bands: []queue.Band{{Name: "a", TTL: time.Hour}}}))
		asked := func(r *Request) { r.Origin = 7 }
		count(p, 0, 0)
		submit(p, asked)
		submit(p, asked)
		waits := submit(p, asked)
		for ; clock.now < 4*blindAfter; clock.now += time.Second {
			count(p, 1, clock.now)
			p.sweep()
		}
		if waits.answered() {
			t.Errorf("%s count a request on each replica, and both took more", name)
		}
		for until := clock.now + 2*lostAfter; clock.now < until; clock.now += time.Second {
			count(p, 0, clock.now)
			p.sweep()
		}
		if !waits.answered() || waits.d.Server == "" {
			t.Errorf("%s count no request, and one still waits: %+v", name, waits.d)
		}
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

// A request waits for another replica than the one that failed it only if there
// is one.
func TestAdmissionAfterAFailure(t *testing.T) {
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

// panicky is a policy that panics.
type panicky struct{}

func (panicky) Rank(*Request, *View, []int) []int { panic("no") }

// After a reload requests keep waiting in the band of the same name. Without an
// admission all are decided.
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
		t.Errorf("after a reload that swaps the bands: a %+v, b %+v", a.d, b.d)
	}
	c.Admission = nil
	p.configure(c)
	if !a.answered() || p.Status().Admission != nil {
		t.Errorf("after a reload without admission: %+v", a.d)
	}
}
