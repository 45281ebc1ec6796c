package decidertest

import (
	"testing"
	"time"

	"pointsman/decider"
)

// first takes the first candidate.
type first struct{}

func (first) Rank(_ *decider.Request, v *decider.View, dst []int) []int {
	v.SetTerm(0, 0, float64(v.Replicas[v.Candidates[0]].InFlight()))
	return append(dst, v.Candidates[0])
}

func (first) Terms() []string { return []string{"in_flight"} }

func TestPool(t *testing.T) {
	p := New(first{}, 3, func(c *decider.PoolConfig) { c.Replicas[1].Weight = 2 })
	state := func(name string, inFlight, waiting, tokens int) {
		t.Helper()
		if r := p.Replica(name); r.InFlight != inFlight || r.Waiting != waiting || r.Tokens != tokens {
			t.Errorf("%s has %d in flight, %d waiting, %d tokens, want %d, %d, %d", name, r.InFlight, r.Waiting, r.Tokens, inFlight, waiting, tokens)
		}
	}
	if d, id := p.Send(Tokens(7)); d.Server != "r0" {
		t.Errorf("sent to %s", d.Server)
	} else {
		state("r0", 1, 1, 7)
		p.Serve(id, "r0")
	}
	p.SendTo("r2", Tokens(5))
	state("r2", 1, 1, 5)
	p.SetInFlight("r2", 4)
	p.SetInFlight("r2", 2)
	state("r2", 3, 3, 5)
	p.Drain("r0")
	if r := p.Replica("r0"); r.State != "draining" {
		t.Errorf("drained, r0 is %s", r.State)
	}
	if d := p.Served(); d.Server != "r1" {
		t.Errorf("sent to %s", d.Server)
	}
	p.Undrain("r0")
	p.ServedBy("r1", Document(1, 2, 3))
	state("r0", 0, 0, 0)
	if n := p.Burst(3)["r0"] + p.OneByOne(2)["r0"]; n != 5 || p.Terms()["r0"]["in_flight"] != 3 {
		t.Errorf("%d of 5 went to r0, terms %v", n, p.Terms())
	}
	if r := p.Replica("r1"); r.Weight != 2 || r.Served != 2 {
		t.Errorf("%+v", r)
	}
	if p.Replica("none") != (decider.ReplicaStatus{}) {
		t.Error("there is a replica none")
	}
	p.Clock.Advance(time.Second)
	if p.Clock.Read() != time.Second {
		t.Errorf("the clock shows %v", p.Clock.Read())
	}
}

func TestRequests(t *testing.T) {
	p := New(first{}, 1)
	r := p.Request(Document(1, 2, 3), InSession(1), WithLoRA("sql"))
	if r.Input != 2*BlockTokens+3 || len(r.Blocks) != 2 || !r.HasSession || r.LoRA != "sql" || r.Pool != p.Pool {
		t.Errorf("%+v", r)
	}
	if other := p.Request(Document(2, 2, 3), InSession(2)); other.Blocks[0] == r.Blocks[0] || other.Session == r.Session || other.ID == r.ID {
		t.Error("different documents, sessions or requests are equal")
	}
	if x := p.Request(Blocks(1, 2, 3)); x.Input != 3*BlockTokens {
		t.Errorf("%d tokens in three blocks", x.Input)
	}
	if id := Of(p.Pool).NewID(); id == (decider.ID{}) {
		t.Error("the id is empty")
	}
}

// failures counts what a check reports.
type failures struct {
	testing.TB
	n int
}

func (f *failures) Helper()               {}
func (f *failures) Errorf(string, ...any) { f.n++ }

// allocating allocates in each decision.
type allocating struct{ last []int }

func (p *allocating) Rank(_ *decider.Request, v *decider.View, dst []int) []int {
	p.last = make([]int, 8)
	return append(dst, v.Candidates[0])
}

func TestChecks(t *testing.T) {
	f := &failures{TB: t}
	CheckShare(f, "even", 510, 1000, .5)
	New(&allocating{}, 1).CheckTies(f, 10)
	New(first{}, 1).CheckAllocations(f, 100, func(r *decider.Request, n int) { r.Input = n })
	if f.n != 0 {
		t.Errorf("%d failures of what holds", f.n)
	}
	CheckShare(f, "odd", 900, 1000, .5)
	New(first{}, 2).CheckTies(f, 1000)
	New(&allocating{}, 1).CheckAllocations(f, 100, func(r *decider.Request, n int) { r.Input = n })
	if f.n != 4 { // a tie for each of two replicas
		t.Errorf("%d failures, want 4", f.n)
	}
}
