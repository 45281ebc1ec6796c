package decider

import (
	"testing"
)

func TestListedAdaptersAreModels(t *testing.T) {
	clock := &testClock{}
	d := New(clock.tell, seeds())
	config := Config{Pools: []PoolConfig{
		{Name: "a", Models: []string{"m"}, Policy: LeastWork{}, Replicas: replicas(3)},
		{Name: "b", Models: []string{"taken"}, Policy: LeastWork{}, Replicas: replicas(1)},
	}}
	d.Apply(config)
	a, b := d.Pools()[0], d.Pools()[1]
	var r Request
	var out Decision
	read := func(model string) bool {
		return d.Read(&r, Input{Path: []byte("/v1/completions"), Body: []byte(`{"model":"` + model + `","prompt":"x"}`)}, &out)
	}
	if read("new") {
		t.Fatal("an adapter that nobody knows has a pool")
	}
	d.Adapters(b, "r0", []string{"both"})
	d.Adapters(a, "r1", []string{"new", "both", "taken"})
	d.Adapters(a, "r2", nil)
	d.Adapters(a, "none", []string{"ghost"})
	if !read("new") || r.Pool != a || r.LoRA != "new" || r.Model != "new" {
		t.Errorf("%+v", r)
	}
	for range 50 { // r0 has not told: it may have it
		if a.Decide(&r, &out); out.Server == "r2" {
			t.Fatal("a replica that lacks the adapter was chosen")
		}
		a.Finished(Outcome{ID: r.ID, Server: []byte(out.Server)})
	}
	if !read("both") || r.Pool != a {
		t.Error("of two pools the first one should have it")
	}
	if !read("taken") || r.Pool != b || r.LoRA != "" {
		t.Error("a model of the configuration became an adapter")
	}
	if read("ghost") {
		t.Error("the adapter of a replica that is not there has a pool")
	}
	d.Apply(config)
	if !read("new") {
		t.Error("a reload forgot the adapters")
	}
	d.Adapters(a, "r1", nil)
	if read("new") {
		t.Error("an adapter that is gone still has a pool")
	}
	// Where nobody lists it, as with adapters that are loaded when asked for,
	// all may be asked.
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
