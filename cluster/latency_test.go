package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pointsman/decider"
)

// BenchmarkDecideAndShare compares decisions in an agent that shares its reservations and
// in one that does not, in turns.
func BenchmarkDecideAndShare(b *testing.B) {
	net := &testNet{now: time.Hour}
	shares := newTestNode(net, "a", "a secret of the bench")
	alone := newTestNode(net, "b", "a secret of the bench")
	alone.Decider.Sharing = decider.Sharing{}
	alone.Decider.Apply(decider.Config{})
	c := decider.PoolConfig{Name: "llama", Policy: &spread{rand.New(rand.NewPCG(1, 2))}, PolicyName: "test"}
	for i := range testReplicas {
		c.Replicas = append(c.Replicas, decider.ReplicaConfig{Name: replicaName(i)})
	}
	alone.Decider.Apply(decider.Config{Pools: []decider.PoolConfig{c}})
	p := &prompts{Rand: rand.New(rand.NewPCG(1, 2)), shared: true}
	took := map[*Node][]time.Duration{}
	for i := 0; b.Loop(); i++ {
		blocks := slices.Clone(p.next())
		for k := range 2 {
			n := []*Node{shares, alone}[(i+k)%2]
			r := decider.Request{Pool: n.Decider.Pool("llama"), Output: 500, Stream: true, Blocks: blocks, Input: 256 * len(blocks)}
			for k := range 8 {
				r.ID[k] = byte(uint64(i) >> (8 * k))
			}
			var d decider.Decision
			began := time.Now()
			r.Pool.Decide(&r, &d)
			took[n] = append(took[n], time.Since(began))
			r.Pool.Finished(decider.Outcome{ID: r.ID, Server: []byte(d.Server), Status: 200, TTFT: time.Second})
		}
		if i%8 == 0 {
			shares.flush(false)
		}
	}
	for n, name := range map[*Node]string{shares: "shares", alone: "alone"} {
		slices.Sort(took[n])
		for _, q := range []float64{.5, .99} {
			b.ReportMetric(float64(took[n][int(q*float64(len(took[n])-1))].Nanoseconds()), fmt.Sprintf("ns-p%g-%s", 100*q, name))
		}
	}
	b.ReportMetric(0, "ns/op")
}
