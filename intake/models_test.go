package intake

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pointsman/decider"
)

// names are those of the list of models.
func names(t *testing.T, in *Intake) string {
	t.Helper()
	text := in.Models()
	if text == nil {
		return "none"
	}
	var list struct {
		Object string
		Data   []struct {
			ID, Object string
			Created    int64
			OwnedBy    string `json:"owned_by"`
		}
	}
	if err := json.Unmarshal(text, &list); err != nil || list.Object != "list" {
		t.Fatalf("%v in %s", err, text)
	}
	var all []string
	for _, m := range list.Data {
		if m.Object != "model" || m.Created < 1e9 || m.OwnedBy == "" {
			t.Errorf("%+v", m)
		}
		all = append(all, m.ID)
	}
	return strings.Join(all, " ")
}

// The list has the models of all pools once, other names of theirs, and the adapters that
// engines list.
func TestModels(t *testing.T) {
	in := newIntake()
	a, b := pool("a", "m1", `m"2`), pool("b", "m3", "m1")
	b.LoRA = []string{"sql"}
	c := Config{Pools: []decider.PoolConfig{a, b}, Routes: map[string][]Split{"alias": {{"a", 1}}, "m3": {{"a", 1}}, "lost": {{"nowhere", 1}}}}
	in.Apply(c)
	if got := names(t, in); got != "none" {
		t.Errorf("not asked for: %s", got)
	}
	c.ListModels = true
	in.Apply(c)
	if got := names(t, in); got != `m1 m"2 m3 sql alias` {
		t.Error(got)
	}
	in.Decider().Adapters(in.Decider().Pool("b"), in.Decider().Pool("b").Members()[0].Name, []string{"z", "sql", "bird"})
	if got := names(t, in); got != `m1 m"2 m3 sql alias bird z` {
		t.Error(got)
	}
	var many []string
	for i := range 5000 {
		many = append(many, fmt.Sprint("adapter-", i))
	}
	in.Decider().Adapters(in.Decider().Pool("b"), in.Decider().Pool("b").Members()[0].Name, many)
	if n := len(strings.Fields(names(t, in))); n > maxModels {
		t.Errorf("%d models", n)
	}
	// The one pool that takes whatever comes has its engines' models.
	c.Pools, c.Routes = []decider.PoolConfig{pool("a")}, nil
	in.Apply(c)
	if got := names(t, in); got != "none" {
		t.Error(got)
	}
}
