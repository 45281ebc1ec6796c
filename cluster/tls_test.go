package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pointsman/test/proxies"
	"pointsman/test/rig"
)

// TestTLS: agents that show each other certificates of one authority follow each
// other, by a name too. One with a certificate of another authority, and one without
// any, are kept out although they have the secret, and go on alone.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	ours, theirs := proxies.NewAuthority(t, dir, "ours"), proxies.NewAuthority(t, dir, "theirs")
	secured := func(a *proxies.Authority, name, ca string) natsSetting {
		cert, key := a.Certificate(name)
		c, err := TLSFiles{cert, key, ca}.Read()
		if err != nil {
			t.Fatal(err)
		}
		return func(o *NATSOptions) { o.TLS = c }
	}
	const secret = "a shared secret"
	first := rig.FreeAddress(t)
	a := startNATSNode(t, "a", secret, first, nil, secured(ours, "a", ours.File))
	b := startNATSNode(t, "b", secret, rig.FreeAddress(t), []string{first}, secured(ours, "b", ours.File))
	c := startNATSNode(t, "c", secret, rig.FreeAddress(t), []string{byName(t, first)}, secured(ours, "c", ours.File))
	stranger := startNATSNode(t, "d", secret, rig.FreeAddress(t), []string{first}, secured(theirs, "d", ours.File))
	plain := startNATSNode(t, "e", secret, rig.FreeAddress(t), []string{first})
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

// TestDocumentedTLS makes certificates by the commands of the documentation, for another
// address. Nothing is found wrong with them, and agents connect by them.
func TestDocumentedTLS(t *testing.T) {
	proxies.Tool(t, "openssl")
	page, err := os.ReadFile("../docs/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	dir, ran := t.TempDir(), 0
	for i, part := range strings.Split(string(page), "```sh\n")[1:] {
		part, _, _ = strings.Cut(part, "```")
		if !strings.Contains(part, "ca.pem") {
			continue
		}
		ran++
		cmd := exec.Command("sh", "-ec", strings.ReplaceAll(part, "10.0.0.5", "127.0.0.1"))
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("block %d: %v\n%s\n%s", i, err, part, out)
		}
	}
	if ran != 2 {
		t.Fatalf("%d blocks of commands", ran)
	}
	files := TLSFiles{filepath.Join(dir, "agent1.pem"), filepath.Join(dir, "agent1.key"), filepath.Join(dir, "ca.pem")}
	faults, warnings, err := files.Examine(time.Now(), "127.0.0.1:9910", nil)
	if err != nil || len(faults)+len(warnings) > 0 {
		t.Fatal(err, faults, warnings)
	}
	secured := func(o *NATSOptions) {
		if o.TLS, err = files.Read(); err != nil {
			t.Fatal(err)
		}
	}
	first := rig.FreeAddress(t)
	a := startNATSNode(t, "a", "a shared secret", first, nil, secured)
	b := startNATSNode(t, "b", "a shared secret", rig.FreeAddress(t), []string{first}, secured)
	a.decide(1)
	until(t, "the other agent knows the reservation", func() bool { return b.reservations() == 1 })
}
