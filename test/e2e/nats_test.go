package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"pointsman/cluster/wire"
	"pointsman/test/proxies"
	"pointsman/test/rig"
)

// natsServer is a NATS server of the operator's.
type natsServer struct {
	t       *testing.T
	address string
	args    []string
	cmd     *exec.Cmd
}

// newNATSServer returns a server that asks for a password and shows a certificate. It
// is not started.
func newNATSServer(t *testing.T, cert, key string) *natsServer {
	s := &natsServer{t: t, address: rig.FreeAddress(t)}
	host, port, err := net.SplitHostPort(s.address)
	if err != nil {
		t.Fatal(err)
	}
	s.args = []string{"-a", host, "-p", port, "--user", "pm", "--pass", "hush", "--tls", "--tlscert", cert, "--tlskey", key}
	t.Cleanup(s.kill)
	return s
}

func (s *natsServer) start() {
	s.t.Helper()
	s.cmd = exec.Command(proxies.Tool(s.t, "nats-server"), s.args...)
	proxies.EndWithTest(s.cmd, syscall.SIGKILL)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	rig.Eventually(s.t, 10*time.Second, "the NATS server listens", func() (bool, string) {
		c, err := net.Dial("tcp", s.address)
		if err == nil {
			c.Close()
		}
		return err == nil, fmt.Sprint(err)
	})
}

func (s *natsServer) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// disturb sends the agents what others send who may use the server: messages of another
// version, and those of an agent that has another secret.
func disturb(t *testing.T, server *natsServer, authority string) {
	t.Helper()
	c, err := nats.Connect("tls://"+server.address, nats.UserInfo("pm", "hush"), nats.RootCAs(authority))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	key := wire.NewSecret("test", []byte("what another cluster shares")).Key("b", 7)
	forged := key.Seal(nil, wire.Head{Kind: wire.KindBatch, Epoch: 7, From: "b"}, []byte("anything"))
	other := slices.Clone(forged)
	other[3] = wire.Version + 1
	for range 100 {
		for _, m := range [][]byte{forged, other, forged[:9], nil} {
			if err := c.Publish("pointsman.test.events", m); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
}

// TestExternalNATS has an HAProxy and an nginx, each with an agent, share by a NATS
// server of the operator's, over TLS. Under load the server is killed, and started
// again: no request fails, each agent goes on alone meanwhile, and knows afterwards
// what runs by way of the other.
func TestExternalNATS(t *testing.T) {
	t.Parallel()
	proxies.Tool(t, "nats-server")
	dir := t.TempDir()
	authority := proxies.NewAuthority(t, dir, "authority")
	cert, key := authority.Certificate("server")
	server := newNATSServer(t, cert, key)
	haproxies, nginxes := rig.HAProxies(t), rig.Nginxes(t)
	h, engines := rig.Replicas(t, haproxies[len(haproxies)-1], 2, "least_requests")
	n := rig.NewSite(t, nginxes[len(nginxes)-1], fmt.Sprintf("pools: {%s: {models: [%s], policy: least_requests, max_requests: 0, replicas: %s}}\n",
		rig.Pool, rig.Model, rig.ReplicasYAML(engines...)))
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("what the agents of the test share"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*rig.Site{"a": h, "b": n} {
		s.Edit("pools:", fmt.Sprintf("cluster: {name: test, agent: %s, nats: %q, secret_file: %q, tls: {ca: %q}}\npools:",
			name, "tls://pm:hush@"+server.address, secret, authority.File))
		s.Patient()
	}
	h.Start() // there is no server yet
	server.start()
	n.Start()
	awaitPeer(t, h.Agent, "b", "follows")
	awaitPeer(t, n.Agent, "a", "follows")
	byHAProxy, byNginx := rig.StartTraffic(t, h.Front, 2), rig.StartTraffic(t, n.Front, 2)
	byHAProxy.Await(20)
	byNginx.Await(20)

	disturb(t, server, authority.File)
	rig.Eventually(t, 10*time.Second, "what is foreign is refused", func() (bool, string) {
		c := clusterOf(t, h.Agent)
		return c.Refused >= 100 && c.OtherVersion >= 100 && len(c.Peers) == 1, fmt.Sprintf("%+v", c)
	})

	server.kill()
	awaitPeer(t, h.Agent, "b", "silent")
	awaitPeer(t, n.Agent, "a", "silent")
	streams := hold(t, h.Front, 4, false)
	byHAProxy.Await(20)
	byNginx.Await(20)
	server.start()
	awaitPeer(t, h.Agent, "b", "follows")
	awaitPeer(t, n.Agent, "a", "follows")
	byHAProxy.Stop()
	byNginx.Stop()
	counts(t, h, 4)
	counts(t, n, 4)
	rig.ReleaseAll(t, 4, engines...)
	streams.Wait()
	h.Agent.Settled(rig.Pool)
	n.Agent.Settled(rig.Pool)
}
