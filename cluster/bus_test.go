package cluster

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"pointsman/cluster/wire"
	"pointsman/decider"
)

// testNet connects the agents of a test. Messages wait until deliver is called.
type testNet struct {
	mu    sync.Mutex
	ports []*port
	now   time.Duration
	tasks []func() // what the agents do beside
}

// port is an agent's connection to a testNet.
type port struct {
	net    *testNet
	name   string
	handle map[string]func([]byte)
	queue  []packet
	cut    int // agents with the same number reach each other
	closed bool
}

type packet struct {
	subject string
	message []byte
}

func (n *testNet) clock() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.now
}

func (n *testNet) pass(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now += d
}

func (n *testNet) connect(name string) *port {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := &port{net: n, name: name, handle: map[string]func([]byte){}}
	n.ports = append(n.ports, p)
	return p
}

// Publish implements Bus.
func (p *port) Publish(subject string, message []byte) error {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	for _, other := range p.net.ports {
		if !other.closed && !p.closed && other.cut == p.cut && other.handle[subject] != nil {
			other.queue = append(other.queue, packet{subject, slices.Clone(message)})
		}
	}
	return nil
}

// Subscribe implements Bus.
func (p *port) Subscribe(subject string, handle func([]byte)) error {
	p.handle[subject] = handle
	return nil
}

// State implements Bus.
func (*port) State() string { return "test" }

// Close implements Bus.
func (p *port) Close() {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	p.closed, p.queue = true, nil
}

// take takes packet i out of the queue.
func (p *port) take(i int) (k packet, ok bool) {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	if i >= len(p.queue) {
		return k, false
	}
	k = p.queue[i]
	p.queue = slices.Delete(p.queue, i, i+1)
	return k, true
}

// task does one thing that an agent does beside, if there is one.
func (n *testNet) task() bool {
	if len(n.tasks) == 0 {
		return false
	}
	f := n.tasks[0]
	n.tasks = n.tasks[1:]
	f()
	return true
}

// deliver delivers all that waits, also what this brings about.
func (n *testNet) deliver() {
	for more := true; more; {
		more = n.task()
		for _, p := range n.ports {
			for k, ok := p.take(0); ok; k, ok = p.take(0) {
				more = true
				p.handle[k.subject](k.message)
			}
		}
	}
}

// newTestNode returns an agent of that name with a pool of replicas r0, r1, r2.
func newTestNode(n *testNet, name, secret string, change ...func(*decider.PoolConfig)) *Node {
	seed := uint64(0)
	d := decider.New(n.clock, func() uint64 { seed++; return seed })
	node := New(Options{
		Cluster: "test", Agent: name, Secret: wire.NewSecret("test", []byte(secret)), Decider: d,
		Log: slog.New(slog.DiscardHandler), Clock: n.clock,
	})
	node.epoch = uint64(n.clock()) + 1
	node.start = func(f func()) { n.tasks = append(n.tasks, f) }
	node.publishing.key = node.Secret.Key(name, node.epoch)
	c := decider.PoolConfig{Name: "llama", Policy: &spread{rand.New(rand.NewPCG(1, 2))}, PolicyName: "test"}
	for i := range testReplicas {
		c.Replicas = append(c.Replicas, decider.ReplicaConfig{Name: replicaName(i)})
	}
	for _, f := range change {
		f(&c)
	}
	d.Apply(decider.Config{Pools: []decider.PoolConfig{c}})
	if err := node.Connect(n.connect(name)); err != nil {
		panic(err)
	}
	return node
}

const testReplicas = 3

func replicaName(i int) string { return fmt.Sprintf("r%d", i) }

// spread chooses at random, and compares prompts.
type spread struct{ *rand.Rand }

func (s *spread) Rank(_ *decider.Request, v *decider.View, dst []int) []int {
	return append(dst, v.Candidates[s.IntN(len(v.Candidates))])
}

func (*spread) UsesPrefix() bool { return true }

// inFlight are the requests on each replica, as the agent knows them.
func inFlight(n *Node) (list [testReplicas]int) {
	for i, r := range n.Decider.Pool("llama").Status().Replicas {
		list[i] = r.InFlight
	}
	return list
}

// waiting is how many requests wait, at whatever agent.
func waiting(n *Node) int {
	if a := n.Decider.Pool("llama").Status().Admission; a != nil {
		return a.Bands[0].Queued
	}
	return 0
}

// describe describes what an agent has counted, for failures.
func describe(n *Node) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %v, %d wait, %+v", n.Agent, inFlight(n), waiting(n), n.counts)
	for _, p := range n.peers {
		fmt.Fprintf(&b, "\n  %s: next %d, silent %v, wants %v, gaps %d, lists %d, differed %d", p.name, p.next, p.silent, p.wants, p.gaps, p.lists, p.differed)
	}
	return b.String()
}
