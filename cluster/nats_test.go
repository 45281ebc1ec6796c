package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"pointsman/cluster/wire"
	"pointsman/decider"
	"pointsman/test/rig"
)

// natsNode is an agent over a NATS of its own.
type natsNode struct {
	*Node
	bus  *natsBus
	stop func()
}

// natsSetting changes how a node takes part.
type natsSetting func(*NATSOptions)

// byName is an address of the loopback by its name.
func byName(t testing.TB, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("localhost", port)
}

func startNATSNode(t testing.TB, name, secret, listen string, peers []string, settings ...natsSetting) *natsNode {
	t.Helper()
	began := time.Now()
	clock := func() time.Duration { return time.Since(began) + time.Hour }
	seed := uint64(0)
	d := decider.New(clock, func() uint64 { seed++; return seed })
	s := wire.NewSecret("test", []byte(secret))
	n := New(Options{Cluster: "test", Agent: name, Secret: s, Decider: d, Log: slog.New(slog.DiscardHandler), Clock: clock})
	c := decider.PoolConfig{Name: "llama", Policy: &first{}, PolicyName: "test"}
	for i := range testReplicas {
		c.Replicas = append(c.Replicas, decider.ReplicaConfig{Name: replicaName(i)})
	}
	d.Apply(decider.Config{Pools: []decider.PoolConfig{c}})
	o := NATSOptions{Cluster: "test", Agent: name, Secret: s, Log: n.Log, Listen: listen, Peers: peers}
	for _, set := range settings {
		set(&o)
	}
	bus, err := OpenNATS(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Connect(bus); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); n.Run(ctx) }()
	x := &natsNode{Node: n, bus: bus.(*natsBus)}
	x.stop = func() {
		cancel()
		<-done
		bus.Close()
	}
	t.Cleanup(func() { x.stop() })
	return x
}

// first chooses the first candidate, and compares prompts.
type first struct{}

func (*first) Rank(_ *decider.Request, v *decider.View, dst []int) []int {
	return append(dst, v.Candidates[0])
}
func (*first) UsesPrefix() bool { return true }

// until waits for a condition.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func (n *natsNode) decide(id byte, blocks ...uint64) {
	r := decider.Request{ID: decider.ID{id}, Pool: n.Decider.Pool("llama"), Input: 256*len(blocks) + 1, Output: -1, Blocks: blocks}
	var d decider.Decision
	r.Pool.Decide(&r, &d)
	r.Pool.Connected(r.ID, []byte(d.Server))
}

func (n *natsNode) reservations() int { return n.Decider.Pool("llama").Status().Reservations }

// TestEmbeddedNATS: agents that find each other by one address, or name, know the others'
// reservations, also those from before one joined, and the contents of their caches. One
// with another secret is refused.
func TestEmbeddedNATS(t *testing.T) {
	addresses := []string{rig.FreeAddress(t), rig.FreeAddress(t), rig.FreeAddress(t), rig.FreeAddress(t)}
	a := startNATSNode(t, "a", "a shared secret", addresses[0], nil)
	a.decide(1, 11, 12, 13)
	until(t, "the first agent is ready, alone", a.IsReady)
	b := startNATSNode(t, "b", "a shared secret", addresses[1], []string{byName(t, addresses[0])})
	c := startNATSNode(t, "c", "a shared secret", addresses[2], []string{addresses[0]})
	until(t, "those that join are ready", func() bool { return b.IsReady() && c.IsReady() })
	b.decide(2)
	c.decide(3)
	for _, n := range []*natsNode{a, b, c} {
		until(t, n.Agent+" knows all reservations", func() bool { return n.reservations() == 3 })
	}
	until(t, "snapshots", func() bool { return b.Status().counts.snapshots > 0 && c.Status().counts.snapshots > 0 })
	other := startNATSNode(t, "d", "another secret", addresses[3], []string{addresses[0]})
	other.decide(4)
	until(t, "it is refused, and both know", func() bool { return a.Status().Refused > 0 && other.Status().RefusedUs > 0 })
	if n, m := a.reservations(), other.reservations(); n != 3 || m != 1 {
		t.Errorf("%d and %d reservations", n, m)
	}
	// One is killed: its messages end.
	c.stop()
	c.stop = func() {}
	until(t, "the silence of c", func() bool {
		for _, p := range a.Status().Peers {
			if p.Agent == "c" {
				return p.State == "silent"
			}
		}
		return false
	})
	if a.reservations() != 3 {
		t.Error("what a silent agent has reserved has ended")
	}
	if s := a.Status(); s.Bus != "embedded NATS, connected to 1 other agents" || len(s.Peers) != 2 {
		t.Errorf("%+v", s)
	}
}

// TestNATSRefuses: an address that is in use is an error.
func TestNATSRefuses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, address := range []string{l.Addr().String(), "nonsense"} {
		if b, err := OpenNATS(NATSOptions{Cluster: "test", Agent: "a", Log: slog.New(slog.DiscardHandler), Listen: address}); err == nil {
			b.Close()
			t.Errorf("%s: no error", address)
		}
	}
	b, err := OpenNATS(NATSOptions{Cluster: "test", Agent: "a", Log: slog.New(slog.DiscardHandler), URL: "nats://" + l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if got := b.State(); got != "no connection to NATS" {
		t.Error(got)
	}
	if err := b.Publish("x", []byte(fmt.Sprint(1))); err == nil {
		t.Error("published to nobody")
	}
}
