package decider

import (
	"slices"
	"testing"
	"time"

	"pointsman/decider/queue"
)

// couple is two agents that apply each other's reports.
type couple struct {
	t     *testing.T
	d     [2]*Decider
	tapes [2]*taped
	clock *testClock
}

func newCouple(t *testing.T, a Admission, change ...func(*PoolConfig)) *couple {
	c := &couple{t: t}
	c.d, c.tapes, c.clock = newSharingPools(append(change, withAdmission(a))...)
	return c
}

func (c *couple) pool(i int) *Pool { return c.d[i].Pools()[0] }

// share has each agent apply what the other has reported.
func (c *couple) share() {
	for more := true; more; {
		more = false
		for i := range c.d {
			for _, e := range c.tapes[i].take() {
				more = true
				c.d[1-i].ApplyEvent(string(rune('a'+i)), &e)
			}
		}
	}
}

// want checks how many requests wait, as each agent knows it.
func (c *couple) want(what string, n int) {
	c.t.Helper()
	for i := range c.d {
		if got := c.pool(i).admission.queue.Len(); got != n {
			c.t.Errorf("%s: agent %d knows of %d requests that wait, want %d", what, i, got, n)
		}
	}
	e := c.pool(0).admission.elsewhere
	blocks := 0
	for it := range c.pool(0).admission.queue.Due() {
		if it.Value.elsewhere != nil {
			e.n--
			blocks += len(it.Value.request.Blocks)
		}
	}
	if e.n != 0 || blocks != e.blocks {
		c.t.Errorf("%s: counted are %d requests too many, and %d blocks, of which there are %d", what, e.n, e.blocks, blocks)
	}
}

// fill has agent a fill both replicas.
func (c *couple) fill() [2]*client {
	c.t.Helper()
	full := [2]*client{submit(c.pool(0)), submit(c.pool(0))}
	c.share()
	c.want("filled", 0)
	if full[0].held || full[1].held || full[0].d.Server == full[1].d.Server {
		c.t.Fatalf("%+v", full)
	}
	return full
}

// TestAgentsShareOneQueue: who came first is served first, whichever agent holds it.
// The agent that holds it sends it, and the other leaves the replica to it.
func TestAgentsShareOneQueue(t *testing.T) {
	for first := range 2 {
		c := newCouple(t, Admission{FIFO: true})
		full := c.fill()
		early := submit(c.pool(first), func(r *Request) { r.Blocks = []uint64{1, 2, 3} })
		c.share()
		c.clock.now += 5 * time.Millisecond
		late := submit(c.pool(1 - first))
		c.share()
		c.want("both wait", 2)
		finish(c.pool(0), full[0])
		c.share()
		if !early.answered() || late.answered() || early.d.Server != full[0].d.Server {
			t.Errorf("first at agent %d: the early one is answered: %v %+v, the late one: %v", first, early.answered(), early.d, late.answered())
		}
		c.want("one waits", 1)
		finish(c.pool(0), full[1])
		c.share()
		if !late.answered() || late.d.Server != full[1].d.Server {
			t.Errorf("first at agent %d: the late one: %+v", first, late.d)
		}
		c.want("none waits", 0)
	}
}

// TestLostAgentHoldsNothingUp: a replica is not left for long to a request whose
// agent does not send it.
func TestLostAgentHoldsNothingUp(t *testing.T) {
	c := newCouple(t, Admission{FIFO: true})
	full := c.fill()
	submit(c.pool(1))
	for _, e := range c.tapes[1].take() {
		c.d[0].ApplyEvent("b", &e) // and then it dies
	}
	c.clock.now += 5 * time.Millisecond
	own := submit(c.pool(0))
	finish(c.pool(0), full[0])
	if own.answered() {
		t.Fatal("it is not left to the other agent")
	}
	for range 5 {
		c.clock.now += 20 * time.Millisecond
		c.d[0].Dispatch()
	}
	if !own.answered() {
		t.Error("100 ms later it waits yet")
	}
	next := submit(c.pool(0))
	finish(c.pool(0), own)
	if !next.answered() {
		t.Error("it is left once more to an agent that sends nothing")
	}
	c.d[0].Silent("b")
	if n := c.pool(0).admission.queue.Len(); n != 0 {
		t.Errorf("%d requests of a silent agent wait", n)
	}
}

// TestHeldElsewhereEnds: all ways in which a request ends to be held are known to the
// other agent.
func TestHeldElsewhereEnds(t *testing.T) {
	a := Admission{FIFO: true, Bands: []queue.Band{{Name: "all", TTL: time.Second, MaxRequests: 3}}}
	c := newCouple(t, a)
	c.fill()
	gone := submit(c.pool(1), func(r *Request) { r.Blocks = []uint64{1, 2} })
	c.share()
	leave(c.pool(1), gone)
	c.share()
	c.want("its client left", 0)

	old := submit(c.pool(1))
	c.share()
	c.clock.now += 1100 * time.Millisecond
	c.d[1].Dispatch()
	c.share()
	if old.d.Status != 429 {
		t.Errorf("after its time: %+v", old.d)
	}
	c.d[0].Dispatch()
	c.want("too old", 0)

	// One is asked for by way of the other agent, whose own it is then.
	again := submit(c.pool(1))
	c.share()
	submit(c.pool(0), func(r *Request) { r.ID = again.r.ID })
	leave(c.pool(1), again)
	c.share()
	if n := c.pool(0).admission.queue.Len(); n != 1 || c.pool(0).admission.find(again.r.ID) == nil {
		t.Errorf("asked for again by way of the other agent: %d wait", n)
	}
	for range 2 {
		submit(c.pool(1))
	}
	c.share()
	if over := submit(c.pool(0)); over.held || over.d.Status != 429 {
		t.Errorf("beyond the limit of all agents: %+v", over.d)
	}
	c.want("full", 3)

	c.d[1].Drain()
	c.share()
	if n := c.pool(0).admission.queue.Len(); n != 1 {
		t.Errorf("one drains: the other has %d that wait, want its own", n)
	}
	c.d[0].Drain()
	c.share()
	c.want("both drain", 0)
}

// TestHeldCountsOnce: a request that waits counts once in the pool's traffic, whichever agent it is
// asked for at, and however often.
func TestHeldCountsOnce(t *testing.T) {
	c := newCouple(t, Admission{FIFO: true})
	full := c.fill()
	held := submit(c.pool(1))
	c.share()
	c.clock.now += time.Second
	for i := range 2 {
		want := c.pool(i).load.demand.sum
		again := submit(c.pool(i), func(r *Request) { r.ID = held.r.ID })
		if got := c.pool(i).load.demand.sum; !again.held || got != want {
			t.Errorf("asked again at agent %d: the demand is %.0f tokens, was %.0f", i, got, want)
		}
	}
	want := c.pool(0).load.demand.sum
	finish(c.pool(0), full[0])
	c.share()
	if got := c.pool(0).load.demand.sum; c.pool(0).find(held.r.ID) == nil || got != want {
		t.Errorf("sent: the demand is %.0f tokens, was %.0f", got, want)
	}
}

// TestStandbyIsNotBlind: an agent whose own proxy reports nothing knows by what the
// others report that the replicas are full.
func TestStandbyIsNotBlind(t *testing.T) {
	c := newCouple(t, Admission{})
	c.clock.now += time.Minute
	for _, x := range c.fill() {
		c.pool(0).Connected(x.r.ID, []byte(x.d.Server))
	}
	c.share()
	if x := submit(c.pool(1)); !x.held {
		t.Errorf("decided at once: %+v", x.d)
	}
}

// TestHeldElsewhereListed: a list has the held requests, and only those.
func TestHeldElsewhereListed(t *testing.T) {
	c := newCouple(t, Admission{FIFO: true})
	c.fill()
	kept := submit(c.pool(1), func(r *Request) { r.Blocks = []uint64{1, 2} })
	lost := submit(c.pool(1))
	c.share()
	leave(c.pool(1), lost)
	c.tapes[1].take()
	missed := submit(c.pool(1))
	c.tapes[1].take()
	c.d[1].PublishAll()
	c.share()
	c.want("listed", 2)
	for _, x := range []*client{kept, missed} {
		if c.pool(0).admission.queue.Find(x.r.ID) == nil {
			t.Error("it is not in the list")
		}
	}
	// Without an admission nothing waits, also elsewhere.
	c.d[0].Apply(Config{Pools: []PoolConfig{{Name: "llama", Policy: &prefixPolicy{}, PolicyName: "test", Replicas: replicas(2)}}})
	c.d[1].PublishAll()
	c.share()
	if c.pool(0).admission.elsewhere.n != 0 {
		t.Error("a pool that holds nothing knows of what others hold")
	}
	c.d[0].Forget("b")
}

// TestHeldElsewhereBounded: what one pool knows of the requests that others hold is
// bounded.
func TestHeldElsewhereBounded(t *testing.T) {
	c := newCouple(t, Admission{FIFO: true, Bands: []queue.Band{{Name: "all", MaxRequests: 1 << 20}}})
	c.fill()
	e := Event{Kind: EventHeld, Pool: "llama", Request: RequestSummary{Input: 100, Output: -1, KeyScheme: keyScheme(c.pool(0)), Blocks: make([]uint64, MostBlocks)}}
	for i := range MostPeerHeld + 10 {
		e.ID = newID()
		want := AppliedNow
		if i >= MostPeerHeld {
			want = OutOfBounds
		}
		if got := c.d[0].ApplyEvent("b", &e); got != want {
			t.Fatalf("request %d: %v", i, got)
		}
	}
	if n := c.pool(0).admission.elsewhere.blocks; n > mostPeerHeldBlocks || n == 0 {
		t.Errorf("%d blocks", n)
	}
	c.d[0].Silent("b")
	if e := c.pool(0).admission.elsewhere; e.n != 0 || e.blocks != 0 {
		t.Errorf("after it fell silent: %+v", e)
	}
}

// TestLeftReplicaIsNotFull: a request beyond the one that the replica is left to goes
// there as well, if it has room.
func TestLeftReplicaIsNotFull(t *testing.T) {
	c := newCouple(t, Admission{FIFO: true})
	config := c.pool(0).config
	config.Limit = 2
	c.d[0].Apply(Config{Pools: []PoolConfig{config}})
	var full []*client
	for range 4 {
		full = append(full, submit(c.pool(0), withInput(1)))
	}
	c.share()
	if slices.ContainsFunc(full, func(x *client) bool { return x.held }) {
		t.Fatalf("%+v", full)
	}
	e := Event{Kind: EventHeld, Pool: "llama", ID: newID(), Request: RequestSummary{Input: 1, Output: -1}}
	c.d[0].ApplyEvent("b", &e)
	own := submit(c.pool(0), withInput(1))
	finish(c.pool(0), full[0])
	if own.answered() {
		t.Error("it took the place that was left to the other agent's")
	}
	finish(c.pool(0), full[1])
	if !own.answered() {
		t.Error("it waits for the place beside")
	}
}

// leave has the client of a request that waits leave.
func leave(p *Pool, c *client) { p.Finished(Outcome{ID: c.r.ID, End: ClientGone}) }
