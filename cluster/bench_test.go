package cluster

import (
	"fmt"
	"math"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/test/rig"
)

// benchAgents decide 1,000 times a second together.
const benchAgents = 8

// prompts draws prompts of 4,000 to 100,000 tokens, each length on a scale of
// logarithms as likely as any. If shared, most of each is the last turn of one of
// many conversations.
type prompts struct {
	*rand.Rand
	shared        bool
	conversations [][]uint64
}

func (p *prompts) next() []uint64 {
	n := int(4000*math.Pow(25, p.Float64())) / 256
	if !p.shared {
		return p.more(nil, n)
	}
	i := p.IntN(500)
	if p.conversations == nil {
		p.conversations = make([][]uint64, 500)
	}
	c := p.conversations[i]
	if len(c) == 0 || len(c) > 390 {
		c = p.more(nil, n)
	} else {
		c = p.more(c, 1+p.IntN(8))
	}
	p.conversations[i] = c
	return c
}

func (p *prompts) more(blocks []uint64, n int) []uint64 {
	for range n {
		blocks = append(blocks, p.Uint64()|1)
	}
	return blocks
}

// open decides a request at a node, which goes on.
func (*prompts) open(n *Node, id byte) {
	r := decider.Request{ID: decider.ID{id}, Pool: n.Decider.Pool("llama"), Input: 100, Output: -1}
	var d decider.Decision
	r.Pool.Decide(&r, &d)
	r.Pool.Connected(r.ID, []byte(d.Server))
}

// serve decides a request at a node and has the proxy report all of it.
func (p *prompts) serve(n *Node, id uint64, between func()) {
	r := decider.Request{Pool: n.Decider.Pool("llama"), Output: 500, Stream: true, Blocks: p.next(), HasSession: true, Session: p.Uint64()}
	for k := range 8 {
		r.ID[k] = byte(id >> (8 * k))
	}
	r.Input = 256 * len(r.Blocks)
	var d decider.Decision
	r.Pool.Decide(&r, &d)
	server := []byte(d.Server)
	r.Pool.Connected(r.ID, server)
	between()
	r.Pool.FirstToken(r.ID, server)
	between()
	r.Pool.Finished(decider.Outcome{ID: r.ID, Server: server, Status: 200, TTFT: time.Second})
	between()
}

// BenchmarkSharing is what eight agents do for one decision of theirs: the events of
// it in three messages, and their application by the other seven. It has no bus.
func BenchmarkSharing(b *testing.B) {
	for _, shared := range []bool{false, true} {
		b.Run(fmt.Sprintf("conversations=%v", shared), func(b *testing.B) {
			net := &testNet{now: time.Hour}
			var nodes []*Node
			for i := range benchAgents {
				nodes = append(nodes, newTestNode(net, fmt.Sprint("agent", i), "a secret of the bench"))
			}
			p := &prompts{Rand: rand.New(rand.NewPCG(1, 2)), shared: shared}
			sent := func() (sum uint64) {
				for _, n := range nodes {
					sum += n.publishing.bytes
				}
				return sum
			}
			i := uint64(0)
			one := func() {
				i++
				n := nodes[i%benchAgents]
				p.serve(n, i, func() { n.flush(false); net.deliver() })
				net.pass(time.Millisecond)
			}
			for range 2000 {
				one()
			}
			before := sent()
			for b.Loop() {
				one()
			}
			b.ReportMetric(float64(sent()-before)/float64(b.N), "B/decision")
		})
	}
}

// BenchmarkNATS is eight agents with a NATS each, at 1,000 decisions a second
// together, in one process, with the processor time of it all.
func BenchmarkNATS(b *testing.B) {
	var nodes []*natsNode
	first := rig.FreeAddress(b)
	for i := range benchAgents {
		address := first
		if i > 0 {
			address = rig.FreeAddress(b)
		}
		nodes = append(nodes, startNATSNode(b, fmt.Sprint("agent", i), "a secret of the bench", address, []string{first}))
	}
	for _, n := range nodes {
		until(b, "all know each other", func() bool { return len(n.Status().Peers) == benchAgents-1 })
	}
	p := &prompts{Rand: rand.New(rand.NewPCG(1, 2)), shared: true}
	run := func(count int) (cpu, wall time.Duration) {
		began, used := time.Now(), cpuTime()
		for i := range count {
			n := nodes[i%benchAgents]
			p.serve(n.Node, p.Uint64(), func() {})
			time.Sleep(time.Until(began.Add(time.Duration(i) * time.Millisecond)))
		}
		return cpuTime() - used, time.Since(began)
	}
	run(2000)
	for b.Loop() {
		cpu, wall := run(5000)
		b.ReportMetric(100*cpu.Seconds()/wall.Seconds()/benchAgents, "%core/agent")
	}
}

// cpuTime is the processor time that the process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
