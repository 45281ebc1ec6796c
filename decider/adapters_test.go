package decider

import (
	"testing"

	"pgregory.net/rapid"
)

// Whatever happens in whatever order, the adapters that a replica is believed to
// have are those of its reservations and, up to its slots, the last others.
func TestAdaptersAccount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, _ := newTestPool(LeastRequests{}, rapid.IntRange(1, 6).Draw(t, "replicas"), func(c *PoolConfig) {
			c.Limit, c.LoRASlots = rapid.IntRange(0, 4).Draw(t, "limit"), rapid.IntRange(1, 2).Draw(t, "slots")
		})
		live := map[ID]string{}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { checkAdapters(t, p) },
			"decide": func(t *rapid.T) {
				adapter := rapid.SampledFrom([]string{"", "x", "y", "z"}).Draw(t, "adapter")
				if d, id := decide(p, func(r *Request) { r.LoRA = adapter }); d.Server != "" {
					live[id] = d.Server
				}
			},
			"first token": func(t *rapid.T) {
				for id, s := range live {
					p.FirstToken(id, []byte(s))
					break
				}
			},
			"finish": func(t *rapid.T) {
				server := rapid.SampledFrom(p.replicas).Draw(t, "server").name
				for id := range live {
					p.Finished(Outcome{ID: id, Server: []byte(server), End: rapid.SampledFrom([]End{Served, ClientGone}).Draw(t, "end")})
					delete(live, id)
					break
				}
			},
			"restart": func(t *rapid.T) {
				p.Engine(rapid.SampledFrom(p.replicas).Draw(t, "replica").name).Restarted()
			},
		})
	})
}

// checkAdapters compares the adapters of replicas with their reservations.
func checkAdapters(t *rapid.T, p *Pool) {
	lora := map[*Replica]map[string]int{}
	for _, i := range p.account.byID {
		v := &p.account.slots[i]
		if lora[v.replica] == nil {
			lora[v.replica] = map[string]int{}
		}
		if v.request.LoRA != "" {
			lora[v.replica][v.request.LoRA]++
		}
	}
	for _, r := range p.replicas {
		idle := 0
		for _, a := range r.adapters.list {
			if a.inFlight != lora[r][a.name] {
				t.Fatalf("%s counts %d in flight for %s, its reservations %d", r.name, a.inFlight, a.name, lora[r][a.name])
			}
			delete(lora[r], a.name)
			if a.inFlight == 0 {
				idle++
			}
		}
		if len(lora[r]) > 0 || idle > 0 && len(r.adapters.list) > r.adapters.slots {
			t.Fatalf("%s with %d slots has %v, and not %v", r.name, r.adapters.slots, r.adapters.list, lora[r])
		}
	}
}
