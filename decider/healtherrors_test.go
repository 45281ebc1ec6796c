package decider

import (
	"fmt"
	"testing"
	"time"
)

var failedWith500 = Outcome{End: Failed, Status: 500}

// A replica that answers every request with 500 is always the least loaded. It is ejected
// like any other that fails, also if it gets all requests from then on.
func TestReplicaThatOnlyErrsIsEjected(t *testing.T) {
	for _, replicas := range []int{2, 4} {
		for _, others := range []bool{true, false} {
			p, clock := newTestPool(&RoundRobin{}, replicas)
			tally(p, 10, true)
			clock.now += time.Hour
			for n := 1; ejectedNow(p) == 0; n++ {
				if n > 20 {
					t.Fatalf("%d replicas: r1 is not ejected", replicas)
				}
				if n == 3 { // the client's fault, which proves nothing
					ends(p, "r1", Outcome{Status: 404})
				}
				for range 5 { // in one moment
					ends(p, "r1", failedWith500)
				}
				if others {
					ends(p, "r0", Outcome{Status: 200})
				}
				clock.now += 100 * time.Millisecond
			}
			if got := tally(p, 30, true)["r1"]; got != 0 {
				t.Errorf("r1 got %d requests while it was ejected", got)
			}
			for pause := ejectFirst; pause <= 4*ejectFirst; pause *= 2 {
				if left := p.byName["r1"].ejectedUntil() - clock.now; left <= pause-200*time.Millisecond || left > pause {
					t.Errorf("ejected for %v, want %v", left, pause)
				}
				clock.now += pause
				if got := tally(p, 30, false)["r1"]; got != 1 {
					t.Errorf("after %v r1 got %d requests, want one", pause, got)
				}
				ends(p, "r1", failedWith500)
			}
			clock.now += 8 * ejectFirst
			ends(p, "r1", Outcome{Status: 200})
			if r := p.byName["r1"]; r.suspect() || r.erring || p.suspects != 0 {
				t.Errorf("%d replicas: a success does not forgive", replicas)
			}
		}
	}
}

// Whoever sends requests that replicas answer with 500 ejects none that serves others.
func TestErrorsEjectNoReplicaThatWorks(t *testing.T) {
	err := func(p *Pool, _ int) { ends(p, "r0", failedWith500) }
	for name, c := range map[string]struct {
		replicas int
		before   func(p *Pool)
		moment   func(p *Pool, n int)
	}{
		"it answers others now and then": {4, nil, func(p *Pool, n int) {
			err(p, n)
			if n%2 == 1 {
				ends(p, "r0", Outcome{Status: 200})
			}
		}},
		"it is at work on another":        {4, func(p *Pool) { place(p, "r0") }, err},
		"all of the pool answer so":       {4, nil, func(p *Pool, n int) { ends(p, fmt.Sprintf("r%d", n%4), failedWith500) }},
		"there is no other":               {1, nil, err},
		"the requests were never decided": {4, nil, func(p *Pool, _ int) { p.Finished(Outcome{ID: newID(), Server: []byte("r0"), End: Failed, Status: 500}) }},
		"they come one in five seconds": {4, nil, func(p *Pool, n int) {
			if n%20 == 0 {
				err(p, n)
			}
		}},
	} {
		p, clock := newTestPool(&RoundRobin{}, c.replicas)
		if c.before != nil {
			c.before(p)
			clock.now += time.Second
		}
		for n := range 60 * 4 {
			clock.now += 250 * time.Millisecond
			c.moment(p, n)
			if ejectedNow(p) > 0 || p.suspects > 0 {
				t.Errorf("%s: ejected after %v", name, clock.now)
				break
			}
		}
	}
}

// sticky sends all requests to one replica, as a cache does with those of one client.
type sticky struct{}

func (sticky) Rank(_ *Request, v *View, dst []int) []int {
	return v.Least(dst, 3, func(_ int, r *Replica) float64 { return float64(r.index) })
}

// A client whose requests all replicas answer with 500, and which always come to the same
// one, keeps no more than half of an idle pool away. Of a pool that serves others it keeps none.
func TestErrorsThatFollowTheirClient(t *testing.T) {
	for _, perSecond := range []int{1, 2, 4, 20} {
		for _, busy := range []bool{false, true} {
			p, clock := newTestPool(sticky{}, 4)
			away, begin := 0, clock.now
			for clock.now < begin+5*time.Minute {
				clock.now += time.Second / time.Duration(perSecond)
				d, id := decide(p)
				p.Finished(Outcome{ID: id, Server: []byte(d.Server), End: Failed, Status: 500})
				for i := 0; busy && i < 4; i++ {
					ends(p, fmt.Sprintf("r%d", i), Outcome{Status: 200})
				}
				n := ejectedNow(p)
				away += n
				if n > 2 || busy && n > 0 {
					t.Fatalf("%d of 4 replicas are ejected", n)
				}
			}
			t.Logf("busy: %v, %d requests a second: %.2f of 4 are ejected on average", busy, perSecond, float64(away)/float64(perSecond)/300)
		}
	}
}

// place puts a request on that replica, which stays there.
func place(p *Pool, replica string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := Request{ID: newID(), Pool: p, Input: 100, Output: -1}
	p.reserve(&r, 0, p.byName[replica], nil, 0, p.clock())
}
