package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

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
		s.Start() // there is no server yet
	}
	server.start()
	awaitPeer(t, h.Agent, "b", "follows")
	awaitPeer(t, n.Agent, "a", "follows")
	byHAProxy, byNginx := rig.StartTraffic(t, h.Front, 2), rig.StartTraffic(t, n.Front, 2)
	byHAProxy.Await(20)
	byNginx.Await(20)

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
	for name, s := range map[string]*rig.Site{"a": h, "b": n} {
		rig.Eventually(t, 10*time.Second, "after the restart of the server, agent "+name+" counts the streams", func() (bool, string) {
			p := s.Agent.Pool(rig.Pool)
			return p.Reservations == 4, fmt.Sprintf("%+v", p)
		})
	}
	for _, e := range engines {
		e.Release()
	}
	streams.Wait()
	h.Agent.Settled(rig.Pool)
	n.Agent.Settled(rig.Pool)
}
