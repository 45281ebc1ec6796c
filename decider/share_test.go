package decider

import (
	"slices"
	"testing"
	"time"
)

// taped is a journal that keeps its events.
type taped struct{ events []Event }

func (j *taped) Add(e *Event) {
	kept := *e
	kept.Request.Blocks = slices.Clone(e.Request.Blocks)
	j.events = append(j.events, kept)
}

// take returns the events since the last call.
func (j *taped) take() []Event {
	list := j.events
	j.events = nil
	return list
}

// newSharingPools returns two agents' pools of two replicas, and their reports.
func newSharingPools(change ...func(*PoolConfig)) (d [2]*Decider, tapes [2]*taped, clock *testClock) {
	clock = &testClock{now: time.Second}
	for i := range d {
		c := PoolConfig{Name: "llama", Policy: &prefixPolicy{}, PolicyName: "test", Replicas: replicas(2)}
		for _, f := range change {
			f(&c)
		}
		tapes[i] = &taped{}
		d[i] = New(clock.tell, seeds())
		d[i].Sharing = Sharing{Agent: string(rune('a' + i)), Journal: tapes[i]}
		d[i].Apply(Config{Pools: []PoolConfig{c}})
	}
	return d, tapes, clock
}

// prefixPolicy compares prompts and prefers the replica that has most.
type prefixPolicy struct{}

func (*prefixPolicy) Rank(_ *Request, v *View, dst []int) []int {
	dst = append(dst, v.Candidates...)
	slices.SortStableFunc(dst, func(a, b int) int { return v.Cached(b) - v.Cached(a) })
	return dst
}

func (*prefixPolicy) UsesPrefix() bool { return true }

// apply applies events of agent a at d, and returns what became of the last.
func apply(d *Decider, events []Event) (last Applied) {
	for i := range events {
		last = d.ApplyEvent("a", &events[i])
	}
	return last
}

// TestPeerReservation: what another agent sent counts as if it was decided here,
// once, until its outcome, and its prompt is cached from then on.
func TestPeerReservation(t *testing.T) {
	d, tapes, clock := newSharingPools()
	own, p := d[0].Pools()[0], d[1].Pools()[0]
	blocks := []uint64{1, 2, 3}
	answer, id := decide(own, func(r *Request) { r.Input, r.Stream, r.Blocks = 800, true, blocks })
	placed := tapes[0].take()
	apply(d[1], placed)
	apply(d[1], placed)
	replica := p.byName[answer.Server]
	if n := p.Status().Reservations; n != 1 || replica.inFlight != 1 || replica.input != 800 || replica.prefill.n != 1 {
		t.Errorf("%d reservations, %d in flight with %d tokens, %d in prefill", n, replica.inFlight, replica.input, replica.prefill.n)
	}
	clock.now += 100 * time.Millisecond
	others := p.Explain(&Request{ID: newID(), Pool: p, Input: 800, Blocks: blocks}).Candidates[replica.index].Others
	if others == nil || others.InFlight != 1 || others.Cached != 768 || others.Prefill == 0 || others.Age != 0.1 {
		t.Errorf("explained: %+v", others)
	}
	own.FirstToken(id, []byte(answer.Server))
	apply(d[1], tapes[0].take())
	if replica.prefill.n != 0 || replica.inFlight != 1 || replica.waiting != 0 {
		t.Errorf("after the first token: %d in flight, %d in prefill", replica.inFlight, replica.prefill.n)
	}
	own.Finished(Outcome{ID: id, Server: []byte(answer.Server), TTFT: 100 * time.Millisecond})
	ended := tapes[0].take()
	apply(d[1], ended)
	if last := apply(d[1], ended); last != AppliedBefore {
		t.Errorf("applied again: %v", last)
	}
	if n := p.Status().Reservations; n != 0 || replica.inFlight != 0 || replica.input != 0 {
		t.Errorf("after the end: %d reservations, %d in flight with %d tokens", n, replica.inFlight, replica.input)
	}
	if again, _ := decide(p, func(r *Request) { r.Input, r.Blocks = 800, blocks }); again.Server != answer.Server {
		t.Errorf("the same prompt went to %s, not to %s, which has it", again.Server, answer.Server)
	}
	if s := p.Status(); s.Stats.Outcomes[Served] != 0 || s.Decisions != 1 {
		t.Errorf("the other's requests count as own: %+v", s.Stats)
	}
	if len(tapes[1].take()) != 1 {
		t.Error("the agent reports what is not its own")
	}
}

// TestPeerEventsAreBounded: what no agent sends is refused, and names that are not
// here are ignored.
func TestPeerEventsAreBounded(t *testing.T) {
	d, _, _ := newSharingPools()
	good := Event{Kind: EventPlaced, Pool: "llama", Replica: "r1", Request: RequestSummary{Input: 100, Output: -1}}
	for name, c := range map[string]struct {
		change func(*Event)
		want   Applied
	}{
		"good":    {func(*Event) {}, AppliedNow},
		"kind":    {func(e *Event) { e.Kind = EventKinds }, OutOfBounds},
		"none":    {func(e *Event) { e.Kind = 0 }, OutOfBounds},
		"input":   {func(e *Event) { e.Request.Input = mostContext + 1 }, OutOfBounds},
		"below":   {func(e *Event) { e.Request.Input = -1 }, OutOfBounds},
		"output":  {func(e *Event) { e.Request.Output = -2 }, OutOfBounds},
		"text":    {func(e *Event) { e.Request.TextBytes = -1 }, OutOfBounds},
		"cached":  {func(e *Event) { e.Request.Cached = 101 }, OutOfBounds},
		"blocks":  {func(e *Event) { e.Request.Blocks = make([]uint64, MostBlocks+1) }, OutOfBounds},
		"end":     {func(e *Event) { e.End = Expired + 1 }, OutOfBounds},
		"status":  {func(e *Event) { e.Status = 1000 }, OutOfBounds},
		"age":     {func(e *Event) { e.Age = -1 }, OutOfBounds},
		"pool":    {func(e *Event) { e.Pool = "mistral" }, UnknownPool},
		"replica": {func(e *Event) { e.Replica = "r2" }, UnknownReplica},
	} {
		e := good
		e.ID = newID()
		c.change(&e)
		if got := d[1].ApplyEvent("a", &e); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if n := d[1].Pools()[0].Status().Reservations; n != 1 {
		t.Errorf("%d reservations", n)
	}
}

// TestPeerList: a list ends reservations that the other agent no longer has, adds missed
// ones and moves those that are elsewhere.
func TestPeerList(t *testing.T) {
	d, tapes, _ := newSharingPools()
	own, p := d[0].Pools()[0], d[1].Pools()[0]
	a, ended := decide(own)
	b, moved := decide(own)
	apply(d[1], tapes[0].take())
	other := map[string]string{"r0": "r1", "r1": "r0"}
	own.Finished(Outcome{ID: ended, Server: []byte(a.Server)})
	own.Connected(moved, []byte(other[b.Server]))
	_, missed := decide(own)
	_, mine := decide(p)
	tapes[0].take()

	d[0].PublishDigests()
	differs := 0
	for _, e := range tapes[0].take() {
		if d[1].ApplyEvent("a", &e) == Differs {
			differs++
		}
	}
	if differs == 0 {
		t.Error("the digests are the same")
	}
	d[1].Silent("a")
	d[0].PublishAll()
	apply(d[1], tapes[0].take())
	for id, want := range map[ID]bool{ended: false, moved: true, missed: true, mine: true} {
		if p.Holds(id) != want {
			t.Errorf("%v: held is %v", id, !want)
		}
	}
	if v := p.find(moved); v == nil || v.replica.name != other[b.Server] {
		t.Errorf("moved: %+v", v)
	}
	d[0].PublishDigests()
	if last := apply(d[1], tapes[0].take()); last != AppliedNow {
		t.Errorf("after the list: %v", last)
	}
	if !p.peers.answers("a") {
		t.Error("the agent is still silent")
	}
	d[1].Forget("a")
	if n := p.Status().Reservations; n != 1 {
		t.Errorf("%d reservations after the agent has left", n)
	}
}

// TestReportOfAnothersReservation: a proxy may report to another agent than the
// one that decided. Both know the end.
func TestReportOfAnothersReservation(t *testing.T) {
	d, tapes, _ := newSharingPools()
	own, p := d[0].Pools()[0], d[1].Pools()[0]
	a, id := decide(own)
	apply(d[1], tapes[0].take())
	p.FirstToken(id, []byte(a.Server))
	p.Finished(Outcome{ID: id, Server: []byte(a.Server), TTFT: time.Second})
	for _, e := range tapes[1].take() {
		d[0].ApplyEvent("b", &e)
	}
	if own.Holds(id) || p.Holds(id) {
		t.Errorf("held after the end: by the one that decided %v, by the other %v", own.Holds(id), p.Holds(id))
	}
}

// TestReconcilePeers: of the agents that answer, the first by name decides which outcomes
// were lost, also those of silent agents. The others follow it.
func TestReconcilePeers(t *testing.T) {
	d, tapes, clock := newSharingPools()
	a, b := d[0].Pools()[0], d[1].Pools()[0]
	answer, id := decide(b)
	placed := tapes[1].take()
	d[0].ApplyEvent("b", &placed[0])
	other, mine := decide(a, func(r *Request) { r.Exclude = answer.Server })
	apply(d[1], tapes[0].take())
	report := func(p *Pool) {
		for range 6 {
			clock.now += time.Second
			p.Engine(answer.Server).Signals(Signals{})
		}
	}
	if report(b); !b.Holds(id) {
		t.Error("an agent that does not lead has ended a reservation")
	}
	if report(a); !a.Holds(id) {
		t.Error("the one that leads has ended what another agent has reserved")
	}
	for _, e := range tapes[0].take() {
		d[1].ApplyEvent("a", &e)
	}
	if b.Holds(id) {
		t.Error("a lost reservation stays, although the agent that leads says so")
	}
	for _, e := range tapes[1].take() {
		d[0].ApplyEvent("b", &e)
	}
	if a.Holds(id) {
		t.Error("it stays with the one that leads")
	}
	b.Finished(Outcome{ID: id, Server: []byte(answer.Server), TTFT: time.Second})
	for _, e := range tapes[1].take() {
		d[0].ApplyEvent("b", &e)
	}
	if a.reclaims.until <= clock.now {
		t.Error("the one that leads does not learn that it was wrong")
	}

	d[1].Silent("a")
	b.reclaims.until = 0
	answer = other
	if report(b); b.Holds(mine) {
		t.Error("the reservation of a silent agent stays")
	}
}

// TestProxyCountsItsOwn: what one proxy reports to have is compared with what its
// own agent has reserved.
func TestProxyCountsItsOwn(t *testing.T) {
	d, tapes, clock := newSharingPools()
	p := d[1].Pools()[0]
	answer, mine := decide(p)
	for range 3 {
		decide(d[0].Pools()[0])
	}
	apply(d[1], tapes[0].take())
	for range 10 {
		clock.now += time.Second
		p.Discovered([]ReplicaState{{Name: answer.Server, Up: true, Weight: 1, Requests: 1, Counted: true}})
	}
	if n := p.Status().Reservations; n != 4 || !p.Holds(mine) {
		t.Errorf("%d reservations of 4, its own is there: %v", n, p.Holds(mine))
	}
}
