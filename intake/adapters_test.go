package intake

import (
	"testing"

	"pointsman/decider"
	"pointsman/decider/policy"
)

func TestListedAdaptersAreModels(t *testing.T) {
	in := newIntake()
	d := in.Decider()
	config := Config{Pools: []decider.PoolConfig{
		{Name: "a", Models: []string{"m"}, Policy: policy.LeastWork{}, Replicas: replicas(3)},
		{Name: "b", Models: []string{"taken"}, Policy: policy.LeastWork{}, Replicas: replicas(1)},
	}}
	in.Apply(config)
	a, b := d.Pools()[0], d.Pools()[1]
	var r Request
	read := func(model string) bool {
		return in.Read(&r, Input{Path: []byte("/v1/completions"), Body: []byte(`{"model":"` + model + `","prompt":"x"}`)})
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
	if !read("both") || r.Pool != a {
		t.Error("of two pools the first one should have it")
	}
	if !read("taken") || r.Pool != b || r.LoRA != "" {
		t.Error("a model of the configuration became an adapter")
	}
	if read("ghost") {
		t.Error("the adapter of a replica that is not there has a pool")
	}
	in.Apply(config)
	if !read("new") {
		t.Error("a reload forgot the adapters")
	}
	d.Adapters(a, "r1", nil)
	if read("new") {
		t.Error("an adapter that is gone still has a pool")
	}
}
