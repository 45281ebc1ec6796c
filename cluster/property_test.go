package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"pointsman/decider"
	"pointsman/decider/queue"
)

// world is agents, the proxies that ask them, and the requests that run.
type world struct {
	t       *rapid.T
	net     *testNet
	nodes   []*Node // nil = killed
	ports   []*port
	running []*running
	held    []*held
	limit   int // of the requests on a replica, beyond which agents hold them; 0 = none
	next    uint64
}

// held is a request that waits in its agent.
type held struct {
	running
	request  decider.Request
	decision decider.Decision
	decided  bool
}

// Decided implements decider.Waiter.
func (h *held) Decided() { h.decided = true }

// limited makes a pool's configuration one whose agents hold requests.
func (w *world) limited(c *decider.PoolConfig) {
	if w.limit > 0 {
		c.Limit = w.limit
		c.Admission = &decider.Admission{Hold: true, FIFO: w.limit == 1, Bands: []queue.Band{{Name: "all", TTL: time.Hour, MaxRequests: 1000}}}
	}
}

// settle lets requests run whose wait is over, and drops those of killed agents.
func (w *world) settle() {
	w.held = slices.DeleteFunc(w.held, func(h *held) bool {
		switch {
		case w.nodes[h.node] == nil:
			return true
		case h.decided:
			w.runs(&h.running, &h.decision)
		}
		return h.decided
	})
}

type running struct {
	id      decider.ID
	node    int // whose proxy it came by
	replica int
	started bool
}

func (w *world) start(i int) {
	w.net.pass(time.Millisecond) // each life has a later epoch
	w.settle()                   // what an earlier life of it held is gone
	n := newTestNode(w.net, fmt.Sprintf("agent-%d", i), "a shared secret", w.limited)
	n.join.done = true // without snapshots
	n.join.finish()
	w.nodes[i] = n
	w.ports[i] = w.net.ports[len(w.net.ports)-1]
	n.list()
	n.askAll()
	for _, r := range w.running {
		if r.node == i { // the proxy goes on reporting
			n.Decider.Pool("llama").Connected(r.id, []byte(replicaName(r.replica)))
		}
	}
}

func (w *world) pool(i int) *decider.Pool { return w.nodes[i].Decider.Pool("llama") }

// alive draws an agent that runs, -1 if none does.
func (w *world) alive() int {
	i := rapid.IntRange(0, len(w.nodes)-1).Draw(w.t, "agent")
	for range w.nodes {
		if w.nodes[i] != nil {
			return i
		}
		i = (i + 1) % len(w.nodes)
	}
	return -1
}

func (w *world) decide(i int) {
	w.next++
	h := &held{running: running{node: i}}
	r := &h.running
	for k := range 8 {
		r.id[k] = byte(w.next >> (8 * k))
	}
	conversation := rapid.Uint64Range(1, 4).Draw(w.t, "conversation") << 32
	var blocks []uint64
	for k := range rapid.Uint64Range(0, 20).Draw(w.t, "blocks") {
		blocks = append(blocks, conversation+k)
	}
	h.request = decider.Request{ID: r.id, Pool: w.pool(i), Input: 256*len(blocks) + 10, Output: -1, Stream: true, Blocks: blocks}
	if w.pool(i).Submit(&h.request, &h.decision, h) {
		w.held = append(w.held, h)
		return
	}
	w.runs(r, &h.decision)
}

// runs has the proxy send a request, which may go elsewhere.
func (w *world) runs(r *running, d *decider.Decision) {
	w.running = append(w.running, r)
	if d.Server != "" {
		r.replica = int(d.Server[1] - '0')
	}
	if rapid.IntRange(0, 3).Draw(w.t, "elsewhere") == 0 || d.Server == "" {
		r.replica = rapid.IntRange(0, testReplicas-1).Draw(w.t, "served by")
	}
	w.pool(r.node).Connected(r.id, []byte(replicaName(r.replica)))
}

// end ends request k. The report may be lost.
func (w *world) end(k int, reported bool) {
	r := w.running[k]
	w.running = slices.Delete(w.running, k, k+1)
	if w.nodes[r.node] != nil && reported {
		w.pool(r.node).Finished(decider.Outcome{ID: r.id, Server: []byte(replicaName(r.replica)), TTFT: 100 * time.Millisecond})
	}
}

// act does something.
func (w *world) act() {
	t := w.t
	i := w.alive()
	act := rapid.IntRange(0, 16).Draw(t, "act")
	if i < 0 && act != 12 {
		return
	}
	switch act {
	case 0, 1, 2:
		w.decide(i)
	case 3:
		if len(w.running) > 0 {
			r := w.running[rapid.IntRange(0, len(w.running)-1).Draw(t, "request")]
			if w.nodes[r.node] != nil && !r.started {
				r.started = true
				w.pool(r.node).FirstToken(r.id, []byte(replicaName(r.replica)))
			}
		}
	case 4, 5:
		if len(w.running) > 0 {
			w.end(rapid.IntRange(0, len(w.running)-1).Draw(t, "request"), rapid.IntRange(0, 9).Draw(t, "reported") > 0)
		}
	case 6, 7:
		w.nodes[i].flush(rapid.Bool().Draw(t, "beat"))
	case 8: // a message comes, in order or before others, or twice, or never
		p := w.ports[i]
		at := 0
		if rapid.IntRange(0, 4).Draw(t, "in order") == 0 {
			at = rapid.IntRange(0, 4).Draw(t, "which")
		}
		k, ok := p.take(at)
		if !ok || rapid.IntRange(0, 5).Draw(t, "lost") == 0 {
			return
		}
		for range 1 + rapid.IntRange(0, 5).Draw(t, "twice")/5 {
			p.handle[k.subject](k.message)
		}
	case 9:
		w.net.deliver()
	case 10:
		w.net.pass(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond)
		w.tick()
	case 11: // killed
		w.nodes[i] = nil
		w.ports[i].Close()
	case 12:
		for k := range w.nodes {
			if w.nodes[k] == nil {
				w.start(k)
				return
			}
		}
	case 13:
		w.ports[i].cut = rapid.IntRange(0, 1).Draw(t, "side")
	case 14:
		w.tick()
	case 15: // too much at once
		w.nodes[i].journal.mu.Lock()
		w.nodes[i].journal.lost = true
		if q := &w.nodes[i].journal.filled; len(q.events) > 0 {
			q.events = q.events[:len(q.events)-1]
		}
		w.nodes[i].journal.mu.Unlock()
	case 16:
		w.net.task()
	}
}

// tick lets each agent look at the clock.
func (w *world) tick() {
	for _, n := range w.nodes {
		if n != nil {
			n.tick()
			n.Decider.Dispatch()
		}
	}
}

// TestEveryAccountIsTheSum: after any interleaving of loss, repetition, reorder,
// partition, death and rejoin, once it is quiet, every agent's account is what runs,
// also for requests whose ends were reported to no agent, and each knows all that wait.
func TestEveryAccountIsTheSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, net: &testNet{now: time.Hour}}
		w.limit = rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "limit")
		agents := rapid.IntRange(2, 4).Draw(t, "agents")
		w.nodes, w.ports = make([]*Node, agents), make([]*port, agents)
		for i := range agents {
			w.start(i)
		}
		for range rapid.IntRange(0, 150).Draw(t, "acts") {
			w.act()
			w.settle()
		}
		for i := range agents {
			w.ports[i].cut = 0
			if w.nodes[i] == nil {
				w.start(i)
			}
		}
		var want [testReplicas]int
		count := func() {
			w.settle()
			want = [testReplicas]int{}
			for _, r := range w.running {
				want[r.replica]++
			}
		}
		// Until it is quiet: a list may be asked for again after 4 s, and an outcome is
		// taken for lost after 4 s more; agents may have to draw lots about whose it was.
		equal := func() bool {
			for _, n := range w.nodes {
				if inFlight(n) != want || waiting(n) != len(w.held) {
					return false
				}
			}
			return true
		}
		for range 120 {
			w.net.pass(500 * time.Millisecond)
			w.net.deliver()
			count()
			for _, n := range w.nodes {
				for r := range testReplicas {
					n.Decider.Pool("llama").Engine(replicaName(r)).Signals(decider.Signals{Running: want[r]})
				}
			}
			w.tick()
			w.net.deliver()
			count()
			if equal() {
				break
			}
		}
		if !equal() {
			for _, n := range w.nodes {
				t.Log(describe(n))
			}
			t.Fatalf("want %v, and %d that wait", want, len(w.held))
		}
		// And they agree on whose each one is.
		w.net.pass(20 * time.Second)
		for range 20 {
			w.net.pass(500 * time.Millisecond)
			w.tick()
			w.net.deliver()
		}
		for _, n := range w.nodes {
			for name, p := range n.peers {
				before := p.differed
				w.net.pass(digestEvery)
				w.tick()
				w.net.deliver()
				if p.differed != before {
					t.Fatalf("%s and %s do not agree:\n%s", n.Agent, name, describe(n))
				}
			}
		}
	})
}
