package decider

import (
	"slices"
	"testing"
)

func TestAdaptersGoToTheReplicasThatListThem(t *testing.T) {
	clock := &testClock{}
	d := New(clock.tell, seeds())
	changes := 0
	d.AdaptersChanged = func() { changes++ }
	config := Config{Pools: []PoolConfig{
		{Name: "a", Models: []string{"m"}, Policy: LeastWork{}, Replicas: replicas(3)},
		{Name: "b", Policy: LeastWork{}, Replicas: replicas(1)},
	}}
	d.Apply(config)
	a, b := d.Pools()[0], d.Pools()[1]
	var r Request
	var out Decision
	d.Adapters(b, "r0", []string{"both"})
	d.Adapters(a, "r1", []string{"new", "both"})
	d.Adapters(a, "r2", nil)
	d.Adapters(a, "none", []string{"ghost"})
	if changes != 3 {
		t.Errorf("%d changes, want 3: one is of a replica that does not exist", changes)
	}
	d.Adapters(a, "r1", []string{"both", "new"})
	if got := a.ListedAdapters(); changes != 3 || !slices.Equal(got, []string{"both", "new"}) {
		t.Errorf("%v after %d changes", got, changes)
	}
	for adapter, want := range map[string]int{"new": 1, "": 3, "unlisted": 3} {
		if got := Listing(a, adapter); len(got) != want || want == 1 && got[0].Name != "r1" {
			t.Errorf("%q is listed by %v, want %d", adapter, got, want)
		}
	}
	r = Request{Pool: a, LoRA: "new", Input: 10, Output: -1}
	for range 50 { // r0 has not reported: it may have it
		r.ID = newID()
		if a.Decide(&r, &out); out.Server == "r2" {
			t.Fatal("a replica that lacks the adapter was chosen")
		}
		a.Finished(Outcome{ID: r.ID, Server: []byte(out.Server)})
	}
	d.Apply(config)
	if len(a.ListedAdapters()) != 2 {
		t.Error("a reload forgot the adapters")
	}
	// If no replica lists it, as with adapters that are loaded on demand, all may be asked.
	r = Request{Pool: a, LoRA: "resolved", Input: 10, Output: -1}
	seen := map[string]bool{}
	for range 100 {
		a.Decide(&r, &out)
		seen[out.Server] = true
	}
	if len(seen) != 3 {
		t.Errorf("only %v were chosen", seen)
	}
}

func TestEnginesTellWhichAdaptersAreLoaded(t *testing.T) {
	p, _ := newTestPool(LeastWork{}, 2)
	p.Engine("r1").AdaptersLoaded([]string{"sql", "chat", "one too many"}, 2)
	p.Engine("none").AdaptersLoaded([]string{"x"}, 1)
	r := p.replicas[1]
	if !r.HasLoRA("sql") || !r.HasLoRA("chat") || r.LoRAs() != 2 || r.adapters.slots != 2 {
		t.Errorf("%+v", r.adapters)
	}
	p.configure(p.config)
	if r.adapters.slots != 2 {
		t.Error("a reload forgot how many fit")
	}
	p.Engine("r1").AdaptersLoaded([]string{"new"}, 2)
	if !r.HasLoRA("new") || r.LoRAs() != 2 || r.HasLoRA("sql") {
		t.Errorf("the oldest should have gone: %+v", r.adapters)
	}
}
