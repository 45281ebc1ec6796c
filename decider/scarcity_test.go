package decider

import "testing"

// Long prompts leave to shorter ones the replicas that these need.
func TestScarcity(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 16)
	// Four prompts at a time, of 1000 tokens each.
	for range 1000 {
		var sent [4]ID
		var server [4]string
		for k := range sent {
			d, id := decide(p, func(r *Request) { r.Input, r.Stream = 1000, true })
			sent[k], server[k] = id, d.Server
		}
		clock.now += seconds(prefillCost(1000, 1000) / initialSpeed)
		for k, id := range sent {
			p.FirstToken(id, []byte(server[k]))
			p.Finished(Outcome{ID: id, Server: []byte(server[k])})
		}
	}
	scarcity := func(input int) float64 {
		p.prospects(&Request{Input: input, Pool: p}, clock.now)
		p.view.Candidates = p.open
		return scarcity(&p.view)
	}
	if got := scarcity(1500); got != 1 {
		t.Errorf("for a prompt of the usual length it is %v", got)
	}
	// Four replicas are needed, and √5 is 2.2: eight suffice, and none can be spared of five.
	last := 0.0
	for long := range 16 {
		got := scarcity(100_000)
		switch left := 15 - long; {
		case got < last:
			t.Errorf("with %d replicas left it is %.2f, and was %.2f with one more", left, got, last)
		case left >= 8 && got > 0, left <= 5 && got < 1:
			t.Errorf("with %d replicas left it is %.2f", left, got)
		}
		last = got
		_, id := decide(p, func(r *Request) { r.Input = 100_000 })
		p.Connected(id, []byte(p.replicas[long].name))
	}
}
