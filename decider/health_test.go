package decider

import (
	"fmt"
	"testing"
	"time"
)

// ends has a request on that replica end so.
func ends(p *Pool, replica string, o Outcome) {
	p.mu.Lock()
	r := Request{ID: newID(), Pool: p, Input: 100, Output: -1}
	p.reserve(&r, 0, p.byName[replica], nil, 0, p.clock())
	p.mu.Unlock()
	o.ID = r.ID
	if o.Server == nil {
		o.Server = []byte(replica)
	}
	p.Finished(o)
}

// ejectedNow are the replicas that are ejected.
func ejectedNow(p *Pool) (n int) {
	for _, r := range p.Status().Replicas {
		if r.State == "ejected" {
			n++
		}
	}
	return n
}

// A refused connection ejects at once, for longer each time, and one success ends
// that. After each ejection the replica gets one request.
func TestRefusedReplicaStepsBackAndReturns(t *testing.T) {
	p, clock := newTestPool(&RoundRobin{}, 3)
	for n, pause := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		ends(p, "r1", Outcome{End: Refused})
		if got := tally(p, 30, true)["r1"]; got != 0 {
			t.Fatalf("after failure %d r1 was chosen %d times", n+1, got)
		}
		clock.now += pause*time.Second - 1
		if got := tally(p, 30, true)["r1"]; got != 0 {
			t.Fatalf("r1 was back before %v s", pause)
		}
		clock.now++
		if got := tally(p, 30, false)["r1"]; got != 1 {
			t.Fatalf("after %v s r1 got %d requests, want one", pause, got)
		}
	}
	ends(p, "r1", Outcome{End: Served})
	if r := p.byName["r1"]; r.failures != 0 || p.suspects != 0 {
		t.Error("a success does not forgive")
	}
	if got := tally(p, 30, false)["r1"]; got != 10 {
		t.Errorf("after a success r1 was chosen %d times of 30", got)
	}
}

// A proxy reports a refused connection soon. When it reports nothing of the one
// request that a suspect got, which may take minutes, the replica works.
func TestSilenceOfAProbeIsGoodNews(t *testing.T) {
	p, clock := newTestPool(&RoundRobin{}, 3)
	ends(p, "r1", Outcome{End: Refused})
	clock.now += time.Second
	if got := tally(p, 30, false)["r1"]; got != 1 {
		t.Fatalf("%d requests", got)
	}
	clock.now += probeWait
	if got := tally(p, 30, false)["r1"]; got != 10 {
		t.Errorf("r1 was chosen %d times of 30", got)
	}
}

// A first byte, too, shows that a replica takes connections again.
func TestFirstByteEndsProbing(t *testing.T) {
	p, clock := newTestPool(&RoundRobin{}, 3)
	_, early := decide(p) // r0
	ends(p, "r0", Outcome{End: Refused})
	p.FirstToken(early, []byte("r0"))
	if ejectedNow(p) != 1 {
		t.Error("an answer to an earlier request ended the ejection")
	}
	clock.now += time.Second
	for {
		if d, id := decide(p); d.Server == "r0" {
			p.FirstToken(id, []byte("r0"))
			break
		}
	}
	if got := tally(p, 30, false)["r0"]; got != 10 {
		t.Errorf("r0 was chosen %d times of 30", got)
	}
}

// Two of eight are dead. Each costs one request now and then, and the fallbacks of
// that request, as of all others, are replicas that work.
func TestFallbacksWork(t *testing.T) {
	for _, policy := range []Policy{&RoundRobin{}, LeastRequests{}, PowerOfTwo{}} {
		p, clock := newTestPool(policy, 8)
		dead := map[string]bool{"r2": true, "r5": true}
		for name := range dead {
			ends(p, name, Outcome{End: Refused})
		}
		probes := 0
		for range 2000 {
			clock.now += 5 * time.Millisecond
			d, id := decide(p)
			if dead[d.Fallbacks[0]] || dead[d.Fallbacks[1]] || d.Fallbacks[0] == "" || d.Fallbacks[1] == "" || d.Fallbacks[0] == d.Fallbacks[1] || d.Server == d.Fallbacks[0] {
				t.Fatalf("%T: %+v", policy, d)
			}
			if !dead[d.Server] {
				p.Finished(Outcome{ID: id, Server: []byte(d.Server)})
				continue
			}
			probes++
			p.Failed(id, d.Server, Refused) // nginx asks again, with that one left out
			again, _ := decide(p, func(r *Request) { r.ID, r.Exclude = id, d.Server })
			if dead[again.Server] || again.Server == "" {
				t.Fatalf("%T: the second choice is %q", policy, again.Server)
			}
			p.Finished(Outcome{ID: id, Server: []byte(again.Server)})
		}
		if probes < 2 || probes > 2*4 { // within 10 s: after 1, 2 and 4 s
			t.Errorf("%T: %d requests met a dead replica", policy, probes)
		}
	}
}

// The end of a request that the pool never decided counts against no replica.
func TestUnreservedEndBlamesNobody(t *testing.T) {
	p, _ := newTestPool(&RoundRobin{}, 3)
	for _, end := range []End{Refused, Died, TimedOut, Failed} {
		for range 100 {
			p.Finished(Outcome{ID: newID(), Server: []byte("r1"), End: end, Redispatched: true, Status: 503})
			p.Failed(newID(), "r1", end)
		}
	}
	if r := p.byName["r1"]; r.failed != 0 || ejectedNow(p) != 0 {
		t.Errorf("%d failures, %d ejected", r.failed, ejectedNow(p))
	}
	for range 100 { // adopted: the feed reports its connection first
		id := newID()
		p.Connected(id, []byte("r1"))
		p.Finished(Outcome{ID: id, Server: []byte("r1"), End: Refused, Redispatched: true})
		p.Connected(id, []byte("r1"))
		p.Failed(id, "r1", Refused)
	}
	if r := p.byName["r1"]; r.failed != 0 || ejectedNow(p) != 0 {
		t.Errorf("%d failures, %d ejected by requests that were never decided", r.failed, ejectedNow(p))
	}
	ends(p, "r1", Outcome{End: Refused})
	p.Finished(Outcome{ID: newID(), Server: []byte("r1"), End: Served})
	if ejectedNow(p) != 1 {
		t.Error("a success of nobody's request ended the ejection")
	}
}

// A request that makes every replica answer 500, eight times a second among others,
// moves nothing. Nor does one that every replica answers 501.
func TestPoisonMovesNothing(t *testing.T) {
	for _, status := range []int{500, 501} {
		p, clock := newTestPool(&RoundRobin{}, 4)
		for n := range 60 * 8 {
			clock.now += 125 * time.Millisecond
			ends(p, fmt.Sprintf("r%d", n%4), Outcome{End: Failed, Status: status})
			if n := ejectedNow(p); n > 0 || p.suspects > 0 {
				t.Fatalf("%d: %d ejected", status, n)
			}
			tally(p, 3, true)
		}
	}
}

// One that makes them answer 504, or break off, ejects none that serves others as
// well but for the moment after a break.
func TestSoftEvidenceIsARate(t *testing.T) {
	for _, o := range []Outcome{{End: Failed, Status: 503}, {End: TimedOut}} {
		p, clock := newTestPool(&RoundRobin{}, 4)
		for n := range 60 * 8 {
			clock.now += 125 * time.Millisecond
			ends(p, fmt.Sprintf("r%d", n%4), o)
			tally(p, 8, true)
			if n := ejectedNow(p); n > 0 {
				t.Fatalf("%v: %d ejected", o.End, n)
			}
		}
		// A replica that fails all of its requests is ejected.
		clock.now += softWindow
		for range softMoments {
			clock.now += softTogether
			ends(p, "r1", o)
			tally(p, 1, true)
		}
		if ejectedNow(p) != 1 || p.byName["r1"].ejectedUntil() <= clock.now {
			t.Errorf("%v: %d ejected", o.End, ejectedNow(p))
		}
		clock.now += ejectFirst
		if got := tally(p, 30, false)["r1"]; got != 1 {
			t.Errorf("%v: r1 got %d requests after its ejection", o.End, got)
		}
		ends(p, "r1", o)
		if left := p.byName["r1"].ejectedUntil() - clock.now; left != 2*ejectFirst {
			t.Errorf("%v: r1 failed again, and is ejected for %v", o.End, left)
		}
	}
}

// Streams that break together are one break.
func TestBreaksTogetherCountOnce(t *testing.T) {
	p, clock := newTestPool(&RoundRobin{}, 3)
	for range 8 {
		ends(p, "r1", Outcome{End: Died, TTFT: time.Millisecond})
		clock.now += 5 * time.Millisecond
	}
	if left := p.byName["r1"].ejectedUntil() - clock.now; left > ejectBroken || left <= 0 {
		t.Errorf("eight broken streams eject for %v", left)
	}
	clock.now += ejectBroken
	if got := tally(p, 30, false)["r1"]; got != 10 {
		t.Errorf("r1 was chosen %d times of 30 after that", got)
	}
}

// A client that breaks off its streams at all replicas ejects none.
func TestBreaksEverywhereEjectNone(t *testing.T) {
	p, clock := newTestPool(&RoundRobin{}, 4)
	for round := range 20 {
		for n := range 200 {
			ends(p, fmt.Sprintf("r%d", n%4), Outcome{End: Died, TTFT: time.Millisecond})
		}
		if n := ejectedNow(p); n > 0 || p.suspects > 0 {
			t.Fatalf("round %d: %d ejected", round, n)
		}
		clock.now += 300 * time.Millisecond
	}
}

// Whatever fails softly, at least half of the replicas stay.
func TestSoftEvidenceLeavesHalf(t *testing.T) {
	for n := 1; n <= 9; n++ {
		p, clock := newTestPool(&RoundRobin{}, n)
		for k := range 400 {
			clock.now += 70 * time.Millisecond
			ends(p, fmt.Sprintf("r%d", ids.IntN(n)), Outcome{End: []End{Died, TimedOut, Failed}[k%3], Status: 503})
			if 2*ejectedNow(p) > n {
				t.Fatalf("%d of %d are ejected", ejectedNow(p), n)
			}
		}
	}
}
