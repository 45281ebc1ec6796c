package cluster

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"pointsman/test/proxies"
	"pointsman/test/rig"
)

// names is a resolver whose answers change.
type names struct {
	mu        sync.Mutex
	addresses []string
	asked     int
}

func (n *names) set(addresses ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addresses = addresses
}

func (n *names) lookup(_ context.Context, host string) ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	if host != "agents.invalid" || len(n.addresses) == 0 {
		return nil, errors.New("no such host")
	}
	return slices.Clone(n.addresses), nil
}

// awaitRound waits until a look-up that begins from now on has been followed by another.
func (n *names) awaitRounds(t *testing.T) {
	t.Helper()
	n.mu.Lock()
	from := n.asked
	n.mu.Unlock()
	until(t, "the name is resolved again", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.asked >= from+8
	})
}

// TestHeadlessName: agents whose peers are one name, which stands for all of them, this
// one among them, find each other: those that it does not have yet at their start too, and
// those that start before it can be resolved. An agent that is gone for good is forgotten.
func TestHeadlessName(t *testing.T) {
	var dns names
	_, port, err := net.SplitHostPort(rig.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	host := func(i int) string { return fmt.Sprint("127.0.0.", 10+i) }
	start := func(i int) *natsNode {
		return startNATSNode(t, fmt.Sprint("agent", i), "a shared secret", net.JoinHostPort(host(i), port),
			[]string{net.JoinHostPort("agents.invalid", port)}, func(o *NATSOptions) { o.Lookup, o.every = dns.lookup, 50*time.Millisecond })
	}
	nodes := []*natsNode{start(0)} // before the name exists
	dns.set(host(0))
	nodes = append(nodes, start(1), start(2), start(3)) // the name has one agent
	all := func(what string, others int) {
		t.Helper()
		for _, n := range nodes {
			until(t, fmt.Sprintf("%s: %s is connected to %d", what, n.Agent, others), func() bool {
				return n.bus.server.NumRemotes() == others
			})
		}
	}
	dns.set(host(0), host(1))
	all("by way of two", 3)
	dns.set(host(3), host(1), host(0), host(2))
	nodes = append(nodes, start(4), start(5))
	all("all but the last by name", 5)
	nodes[5].decide(9)
	for _, n := range nodes {
		until(t, n.Agent+" knows the reservation", func() bool { return n.reservations() == 1 })
	}

	// Nothing is connected twice, nor to itself, and a name that cannot be resolved, or lacks
	// agents that are connected, changes nothing.
	dns.set()
	dns.awaitRounds(t)
	dns.set(host(0))
	dns.awaitRounds(t)
	all("with a name that lacks most", 5)
	for _, n := range nodes {
		z, err := n.bus.server.Routez(nil)
		if err != nil || z.NumRoutes != 5 {
			t.Errorf("%s has %d connections to 5 agents: %v", n.Agent, z.NumRoutes, err)
		}
	}

	// The last two leave, and others come in their place.
	for range 2 {
		nodes[4].stop()
		nodes[4].stop = func() {}
		nodes = slices.Delete(nodes, 4, 5)
	}
	dns.set(host(0), host(1), host(2), host(3), host(7))
	nodes = append(nodes, start(7))
	all("with one that is new", 4)
	for _, n := range nodes[:4] {
		until(t, n.Agent+" calls those that are gone no more", func() bool {
			n.bus.routes.mu.Lock()
			defer n.bus.routes.mu.Unlock()
			return !slices.Contains(n.bus.routes.peers[0].addresses, net.JoinHostPort(host(5), port))
		})
	}
}

// TestOneNameForOne: a name of one other agent is left to the server, by whose name
// it checks the certificate.
func TestOneNameForOne(t *testing.T) {
	first := rig.FreeAddress(t)
	a := startNATSNode(t, "a", "a shared secret", first, nil)
	b := startNATSNode(t, "b", "a shared secret", rig.FreeAddress(t), []string{byName(t, first)}, func(o *NATSOptions) {
		o.every = 20 * time.Millisecond
		o.Lookup = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
	})
	until(t, "both are connected", func() bool { return a.bus.server.NumRemotes() == 1 && b.bus.server.NumRemotes() == 1 })
	b.bus.routes.mu.Lock()
	defer b.bus.routes.mu.Unlock()
	if p := b.bus.routes.peers[0]; p.several || len(p.addresses) > 0 {
		t.Errorf("%+v", p)
	}
}

// TestHeadlessNameTLS: the same with certificates for the name alone: an address that the name
// stands for is checked by it.
func TestHeadlessNameTLS(t *testing.T) {
	var dns names
	dir := t.TempDir()
	authority := proxies.NewAuthority(t, dir, "authority")
	cert, key := authority.Certificate("agents", func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = []string{"agents.invalid"}, nil })
	secured, err := TLSFiles{cert, key, authority.File}.Read()
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(rig.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	var nodes []*natsNode
	dns.set("127.0.0.20", "127.0.0.21", "127.0.0.22")
	for i := range 3 {
		nodes = append(nodes, startNATSNode(t, fmt.Sprint("agent", i), "a shared secret", net.JoinHostPort(fmt.Sprint("127.0.0.", 20+i), port),
			[]string{net.JoinHostPort("agents.invalid", port)}, func(o *NATSOptions) {
				o.Lookup, o.every, o.TLS = dns.lookup, 50*time.Millisecond, secured
			}))
	}
	nodes[0].decide(1)
	for _, n := range nodes {
		until(t, n.Agent+" is connected to all", func() bool { return n.bus.server.NumRemotes() == 2 && n.reservations() == 1 })
	}
}
