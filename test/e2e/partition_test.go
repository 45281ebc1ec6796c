package e2e

import (
	"fmt"
	"net"
	"testing"
	"time"

	"pointsman/test/proxies"
	"pointsman/test/rig"
)

// healed is how long after a trouble the counts of agents may be wrong.
const healed = 10 * time.Second

// counts waits until the agent of a site counts n requests, whoever serves them.
func counts(t *testing.T, s *rig.Site, n int) {
	t.Helper()
	rig.Eventually(t, healed, fmt.Sprintf("the agent of %s counts %d requests", s.Name, n), func() (bool, string) {
		p := s.Agent.Pool(rig.Pool)
		return p.Reservations == n, fmt.Sprintf("%+v", p)
	})
}

// at is an address with a free port.
func at(t *testing.T, host string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(rig.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort(host, port)
}

// TestPartition has an HAProxy and an nginx, whose agents are in networks of their own,
// and cuts the cable between these: what they send is lost, and no connection ends.
// Both go on by what they see. No request fails, and when the cable is mended each
// counts what runs by way of the other within 10 s, once.
func TestPartition(t *testing.T) {
	t.Parallel()
	away := proxies.NewNamespace(t)
	services, between := away.Cable(), away.Cable()
	var engines []*rig.Engine
	for i := range 2 {
		engines = append(engines, rig.StartEngineAt(t, fmt.Sprintf("r%d", i+1), at(t, services.Here), rig.EngineOptions{Models: []string{rig.Model}}))
	}
	pool := fmt.Sprintf("pools: {%s: {models: [%s], policy: least_requests, max_requests: 0, replicas: %s}}\n", rig.Pool, rig.Model, rig.ReplicasYAML(engines...))
	haproxies, nginxes := rig.HAProxies(t), rig.Nginxes(t)
	h := rig.NewSite(t, haproxies[len(haproxies)-1], pool)
	n := rig.NewSite(t, nginxes[len(nginxes)-1], pool)
	// The agent of nginx is away. Its proxy asks it by a socket, and reports to it over
	// a cable that is not cut.
	feed, admin := at(t, services.There), at(t, services.There)
	n.Edit(n.Feed, feed)
	n.Edit(n.Agent.Admin, admin)
	n.Feed, n.Agent.Admin = feed, admin
	a, b := at(t, between.Here), at(t, between.There)
	join(t, h, "a", a, b, "what the agents of the test share")
	join(t, n, "b", b, a, "what the agents of the test share")
	h.Start()
	away.Do(n.Agent.Start)
	n.Proxy.Start()
	n.Proxy.AwaitAgent()
	awaitPeer(t, h.Agent, "b", "follows")
	awaitPeer(t, n.Agent, "a", "follows")
	byHAProxy, byNginx := rig.StartTraffic(t, h.Front, 2), rig.StartTraffic(t, n.Front, 2)
	before := hold(t, h.Front, 2, false)
	byHAProxy.Await(10)

	between.Cut()
	awaitPeer(t, h.Agent, "b", "silent")
	awaitPeer(t, n.Agent, "a", "silent")
	during := hold(t, n.Front, 3, false)
	if rig.Soak {
		time.Sleep(28 * time.Second)
	}
	byHAProxy.Await(20)
	byNginx.Await(20)

	between.Mend()
	mended := time.Now()
	awaitPeer(t, h.Agent, "b", "follows")
	awaitPeer(t, n.Agent, "a", "follows")
	byHAProxy.Stop()
	byNginx.Stop()
	counts(t, h, 5)
	counts(t, n, 5)
	if took := time.Since(mended); took > healed {
		t.Errorf("the counts are right %v after the cable was mended, want %v", took, healed)
	}
	rig.ReleaseAll(t, 5, engines...)
	before.Wait()
	during.Wait()
	h.Agent.Settled(rig.Pool)
	n.Agent.Settled(rig.Pool)
	for _, s := range []*rig.Site{h, n} {
		if rss := s.Agent.RSS(); rss > 160<<20 {
			t.Errorf("an agent has %d MiB", rss>>20)
		}
	}
}
