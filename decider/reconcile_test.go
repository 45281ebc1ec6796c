package decider

import (
	"testing"
	"time"
)

// After outcomes were lost the counts are right again within 10 s, by what the
// engine reports, by what the proxy does, and by the higher of the two.
func TestLostOutcomes(t *testing.T) {
	engine := func(n int) func(*Pool) {
		return func(p *Pool) { p.Engine("r0").Signals(Signals{Running: n}) }
	}
	proxy := func(n int) func(*Pool) {
		return func(p *Pool) {
			p.Discovered([]ReplicaState{{Name: "r0", Up: true, Weight: 1, Requests: n, Counted: true, Origin: 7}})
		}
	}
	for why, c := range map[string]struct {
		reports []func(*Pool)
		want    int
	}{
		"the engine":            {[]func(*Pool){engine(3)}, 3},
		"the proxy":             {[]func(*Pool){proxy(2)}, 2},
		"both":                  {[]func(*Pool){engine(1), proxy(4)}, 4},
		"the engine has others": {[]func(*Pool){engine(30)}, 10},
		"nobody":                {nil, 10},
	} {
		p, clock := newTestPool(LeastWork{}, 1)
		var lost, young []ID
		for range 10 {
			_, id := decide(p, askedBy(7))
			p.FirstToken(id, []byte("r0"))
			lost = append(lost, id)
		}
		for clock.now < 9*time.Second {
			clock.now += 100 * time.Millisecond
			// Requests on their way to the engine, and ends on their way from it, are no
			// losses.
			_, id := decide(p, askedBy(7))
			if young = append(young, id); len(young) > 3 {
				p.Finished(Outcome{ID: young[0], Server: []byte("r0")})
				young = young[1:]
			}
			for _, report := range c.reports {
				report(p)
			}
		}
		if got := p.Status().Replicas[0].InFlight - len(young); got != c.want {
			t.Errorf("%s: %d reservations are left of 10, want %d", why, got, c.want)
		}
		for _, id := range young {
			if !p.Holds(id) {
				t.Errorf("%s: a request on its way has lost its reservation", why)
			}
		}
		if p.Holds(lost[0]) != (c.want == 10) || p.stats.Expired != uint64(10-c.want) {
			t.Errorf("%s: %d have expired", why, p.stats.Expired)
		}
	}
}

// An engine that reports fewer requests than it has is believed once only.
func TestEngineThatCountsTooFew(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 1)
	run := func(d time.Duration) {
		for end := clock.now + d; clock.now < end; clock.now += 500 * time.Millisecond {
			p.Engine("r0").Signals(Signals{})
		}
	}
	_, id := decide(p)
	run(6 * time.Second)
	if p.Holds(id) {
		t.Fatal("nothing was reclaimed")
	}
	p.FirstToken(id, []byte("r0")) // it was there after all
	run(20 * time.Second)
	if !p.Holds(id) {
		t.Error("reclaimed again")
	}
}

// If the proxy reports ends only, it is unknown which requests were lost. When one that was
// taken for lost ends later, another expires in its place, so that the sum stays right.
func TestTheWrongOnesAreTakenForLost(t *testing.T) {
	for _, reappears := range []func(*Pool, ID){
		func(p *Pool, id ID) { p.Finished(Outcome{ID: id, Server: []byte("r0")}) },
		func(p *Pool, id ID) {
			p.Connected(id, []byte("r0"))
			p.Finished(Outcome{ID: id, Server: []byte("r0")})
		},
	} {
		p, clock := newTestPool(LeastWork{}, 1)
		var all []ID
		for i := range 20 {
			_, id := decide(p)
			all = append(all, id)
			clock.now += 10 * time.Millisecond
			if i > 12 { // questions that are read after the first report
				p.Engine("r0").Signals(Signals{Running: 12})
			}
		}
		running := all[:12] // the ends of the last 8 are lost
		for clock.now < 9*time.Second {
			clock.now += 100 * time.Millisecond
			p.Engine("r0").Signals(Signals{Running: len(running)})
		}
		for ; len(running) > 0; running = running[1:] {
			if n := p.Status().Replicas[0].InFlight; n != len(running) {
				t.Fatalf("%d in flight, and %d run", n, len(running))
			}
			reappears(p, running[0])
		}
		if n := p.Status().Reservations; n != 0 || p.reclaims.until != 0 {
			t.Errorf("at the end %d, doubt until %v", n, p.reclaims.until)
		}
	}
}

// After a pause of the process the feed has time to catch up.
func TestReclaimsWaitForTheFeed(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 1)
	_, id := decide(p)
	p.Engine("r0").Signals(Signals{})
	clock.now += time.Minute
	p.Engine("r0").Signals(Signals{})
	clock.now += time.Second
	p.Engine("r0").Signals(Signals{})
	if !p.Holds(id) {
		t.Error("reclaimed at once")
	}
}

// Of requests that may be lost, those that only the feed has reported end first: it lost
// lines after that. One that was decided before, and still runs, stays.
func TestLostOutcomesOfTheFeed(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 1)
	_, runs := decide(p)
	p.FirstToken(runs, []byte("r0"))
	clock.now = time.Second
	var connected []ID
	for range 3 {
		connected = append(connected, newID())
		p.Connected(connected[len(connected)-1], []byte("r0"))
	}
	for clock.now < 9*time.Second {
		clock.now += 100 * time.Millisecond
		p.Engine("r0").Signals(Signals{Running: 1})
	}
	if n := p.Status().Reservations; n != 1 || !p.Holds(runs) {
		t.Errorf("%d are left, the one that runs %t", n, p.Holds(runs))
	}
	p.Finished(Outcome{ID: runs, Server: []byte("r0")})
	if n := p.Status().Reservations; n != 0 || p.reclaims.until != 0 {
		t.Errorf("at the end %d, doubt until %v", n, p.reclaims.until)
	}
}
