package cluster

import (
	"testing"

	"pointsman/test/proxies"
)

// TestTLS: agents that show each other certificates of one authority follow each
// other, by a name too. One with a certificate of another authority, and one without
// any, are kept out although they have the secret, and go on alone.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	ours, theirs := proxies.NewAuthority(t, dir, "ours"), proxies.NewAuthority(t, dir, "theirs")
	secured := func(a *proxies.Authority, name, ca string) natsSetting {
		cert, key := a.Certificate(name)
		c, err := ReadTLS(cert, key, ca)
		if err != nil {
			t.Fatal(err)
		}
		return func(o *NATSOptions) { o.TLS = c }
	}
	const secret = "a shared secret"
	first := freeAddress(t)
	a := startNATSNode(t, "a", secret, first, nil, secured(ours, "a", ours.File))
	b := startNATSNode(t, "b", secret, freeAddress(t), []string{first}, secured(ours, "b", ours.File))
	c := startNATSNode(t, "c", secret, freeAddress(t), []string{byName(t, first)}, secured(ours, "c", ours.File))
	stranger := startNATSNode(t, "d", secret, freeAddress(t), []string{first}, secured(theirs, "d", ours.File))
	plain := startNATSNode(t, "e", secret, freeAddress(t), []string{first})
	a.decide(1)
	stranger.decide(2)
	plain.decide(3)
	for _, n := range []*natsNode{b, c} {
		until(t, n.Agent+" knows the reservation", func() bool { return n.reservations() == 1 })
	}
	for _, n := range []*natsNode{stranger, plain} {
		until(t, n.Agent+" is ready, alone", n.IsReady)
		if s := n.Status(); len(s.Peers) > 0 || n.reservations() != 1 {
			t.Errorf("%s: %+v", n.Agent, s)
		}
	}
	if s := a.Status(); len(s.Peers) != 2 || a.reservations() != 1 {
		t.Errorf("%+v", s)
	}
}
