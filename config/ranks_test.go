package config

import (
	"fmt"
	"strings"
	"testing"
)

// Each rank of an engine is a replica at its address, with ports of its own.
func TestRanked(t *testing.T) {
	pool := func(text string) (*Pool, error) {
		c, err := Parse("f", []byte("pools: {a: {models: [m], "+text+"}}"), nil, checks)
		if err != nil {
			return nil, err
		}
		return c.Pools["a"], nil
	}
	p, err := pool("data_parallel: 2, kv_events: {port: 5557, replay: 5567}, replicas: {x: {address: '10.0.0.1:1'}, y: {address: '10.0.0.2:1', kv_events: {port: 6000}}}")
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, r := range p.Ranked() {
		got += fmt.Sprintln(r.Name, r.Address, r.Rank, r.KVEvents)
	}
	if want := "x-dp0 10.0.0.1:1 1 {5557 5567 1 }\nx-dp1 10.0.0.1:1 2 {5558 5568 1 }\ny-dp0 10.0.0.2:1 1 {6000 0 1 }\ny-dp1 10.0.0.2:1 2 {6001 0 1 }\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	for text, want := range map[string]string{
		"data_parallel: 65, replicas: {x: {address: '10.0.0.1:1'}}":                                       "data_parallel",
		"data_parallel: 2, discover: {dns: 'x:1'}":                                                        "want the engines listed",
		"data_parallel: 2, kv_events: {bind: '127.0.0.1:1'}, replicas: {x: {address: '10.0.0.1:1'}}":      "kv_events.bind",
		"data_parallel: 2, kv_events: {port: 5, ranks: 2}, replicas: {x: {address: '10.0.0.1:1'}}":        "kv_events.ranks",
		"data_parallel: 4, kv_events: {port: 5557, replay: 5558}, replicas: {x: {address: '10.0.0.1:1'}}": "overlaps",
		"data_parallel: 2, replicas: {x: {address: '10.0.0.1:1'}, x-dp1: {address: '10.0.0.2:1'}}":        "a rank of another replica",
	} {
		if _, err := pool(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
