package cluster

import (
	"testing"
	"time"

	"pointsman/cluster/wire"
)

// TestWrongClock: an agent whose clock is far off, runs fast, and was set back before
// its next life, is followed as any other.
func TestWrongClock(t *testing.T) {
	net := &testNet{now: time.Hour}
	a := newTestNode(net, "a", "a shared secret")
	start := func(epoch uint64) *Node {
		b := newTestNode(net, "b", "a shared secret")
		began := net.clock()
		b.Clock = func() time.Duration { return 1000*time.Hour + (net.clock()-began)*6/5 }
		b.started, b.epoch = b.Clock(), epoch
		b.publishing.key = b.Secret.Key("b", epoch)
		return b
	}
	quiet := func(nodes ...*Node) {
		for range 60 {
			net.pass(100 * time.Millisecond)
			for _, n := range nodes {
				n.tick()
			}
			net.deliver()
		}
	}
	follows := func(when string, b *Node, reservations int) {
		t.Helper()
		for _, n := range []*Node{a, b} {
			s := n.Status()
			if len(s.Peers) != 1 || s.Peers[0].State != "follows" || n.Decider.Pool("llama").Status().Reservations != reservations {
				t.Errorf("%s: %s", when, describe(n))
			}
		}
	}
	p := &prompts{}
	b := start(1 << 60) // its clock is in the far future
	p.open(a, 1)
	p.open(b, 2)
	quiet(a, b)
	follows("far off", b, 2)

	net.ports[len(net.ports)-1].Close()
	quiet(a)
	b = start(7) // set back to 1970
	p.open(b, 2)
	quiet(a, b)
	follows("set back", b, 2)
}

// TestOtherVersion: what an agent of another version sends is counted, and nothing
// else.
func TestOtherVersion(t *testing.T) {
	net := &testNet{now: time.Hour}
	a, b := newTestNode(net, "a", "a shared secret"), newTestNode(net, "b", "a shared secret")
	(&prompts{}).open(b, 1)
	b.flush(true)
	for port := net.ports[0]; ; {
		k, ok := port.take(0)
		if !ok {
			break
		}
		k.message[3] = wire.Version + 1
		port.handle[k.subject](k.message)
	}
	if s := a.Status(); s.OtherVersion == 0 || len(s.Peers) != 0 || a.Decider.Pool("llama").Status().Reservations != 0 {
		t.Errorf("%+v", s)
	}
}
