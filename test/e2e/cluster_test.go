package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"pointsman/test/rig"
)

// clusterStatus is the part of /status about the other agents.
type clusterStatus struct {
	Refused   int `json:"refused"`
	RefusedUs int `json:"refused_us"`

	OtherVersion int `json:"other_version"`

	Peers []struct {
		Agent string
		State string
	}
}

func clusterOf(t *testing.T, a *rig.Agent) (c clusterStatus) {
	t.Helper()
	b, err := a.Get("/status")
	var st struct{ Cluster clusterStatus }
	if err == nil {
		err = json.Unmarshal(b, &st)
	}
	if err != nil {
		t.Fatal(err)
	}
	return st.Cluster
}

// awaitPeer waits until an agent has another one in that state.
func awaitPeer(t *testing.T, a *rig.Agent, peer, state string) {
	t.Helper()
	rig.Eventually(t, 20*time.Second, peer+" "+state, func() (bool, string) {
		c := clusterOf(t, a)
		for _, p := range c.Peers {
			if p.Agent == peer && p.State == state {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v", c)
	})
}

// join has the agent of a site take part in a cluster.
func join(t *testing.T, s *rig.Site, agent, listen, peer, secret string) {
	t.Helper()
	file := filepath.Join(s.Dir, "secret")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Edit("pools:", fmt.Sprintf("cluster: {name: test, agent: %s, listen: %q, peers: [%q], secret_file: %q}\npools:", agent, listen, peer, file))
}

// TestCluster has an HAProxy and an nginx, each with an agent of its own, share three
// replicas. Each agent knows what runs by way of the other: after one joined, was
// killed, came back, and was stopped for a while. No request fails. One with another
// secret is refused.
func TestCluster(t *testing.T) {
	t.Parallel()
	haproxies, nginxes := rig.HAProxies(t), rig.Nginxes(t)
	h, engines := rig.Replicas(t, haproxies[len(haproxies)-1], 3, "least_requests")
	pool := fmt.Sprintf("pools: {%s: {models: [%s], policy: least_requests, replicas: %s}}\n", rig.Pool, rig.Model, rig.ReplicasYAML(engines...))
	n := rig.NewSite(t, nginxes[len(nginxes)-1], pool)
	stranger := rig.NewSite(t, haproxies[len(haproxies)-1], pool)
	const secret = "what the agents of the test share"
	at := []string{rig.FreeAddress(t), rig.FreeAddress(t), rig.FreeAddress(t)}
	join(t, h, "a", at[0], at[1], secret)
	join(t, n, "b", at[1], at[0], secret)
	join(t, stranger, "c", at[2], at[0], "what another cluster shares")
	n.Patient()

	// What runs before the second agent starts, and what it places itself.
	h.Start()
	var held sync.WaitGroup
	hold := func(s *rig.Site, count int) {
		client := rig.NewClient(count, false, false)
		for range count {
			held.Go(func() {
				c := rig.Held()
				if err := c.Check(c.Do(client, s.Front)); err != nil {
					t.Errorf("held: %v", err)
				}
			})
		}
	}
	hold(h, 4)
	h.AwaitReservations(4)
	n.Start()
	awaitPeer(t, h.Agent, "b", "follows")
	awaitPeer(t, n.Agent, "a", "follows")
	hold(n, 3)
	h.AwaitReservations(7)
	n.AwaitReservations(7)
	for _, r := range n.Agent.Pool(rig.Pool).Replicas {
		if r.InFlight < 2 || r.InFlight > 3 {
			t.Errorf("7 requests by least_requests: %d on %s", r.InFlight, r.Name)
		}
	}
	rig.ReleaseAll(t, 7, engines...)
	held.Wait()
	h.Agent.Settled(rig.Pool)
	n.Agent.Settled(rig.Pool)
	byHAProxy, byNginx := rig.StartTraffic(t, h.Front, 3), rig.StartTraffic(t, n.Front, 3)
	byHAProxy.Await(50)
	byNginx.Await(50)

	stranger.Agent.Start()
	rig.Eventually(t, 20*time.Second, "another secret is refused", func() (bool, string) {
		ours, theirs := clusterOf(t, h.Agent), clusterOf(t, stranger.Agent)
		return ours.Refused > 0 && theirs.RefusedUs > 0, fmt.Sprintf("%+v %+v", ours, theirs)
	})

	n.Agent.Kill()
	awaitPeer(t, h.Agent, "b", "silent")
	byHAProxy.Await(30)
	byNginx.Await(10) // without its agent
	n.Agent.Start()
	awaitPeer(t, h.Agent, "b", "follows")
	awaitPeer(t, n.Agent, "a", "follows")

	h.Agent.Signal(syscall.SIGSTOP)
	awaitPeer(t, n.Agent, "a", "silent")
	if rig.Soak {
		time.Sleep(58 * time.Second)
	}
	byNginx.Await(30)
	h.Agent.Signal(syscall.SIGCONT)
	woken := time.Now()
	awaitPeer(t, n.Agent, "a", "follows")
	awaitPeer(t, h.Agent, "b", "follows")
	byHAProxy.Await(20)
	byNginx.Await(20)
	if byHAProxy.Stop()+byNginx.Stop() == 0 {
		t.Error("nothing was served")
	}
	h.Agent.Settled(rig.Pool)
	n.Agent.Settled(rig.Pool)
	if took := time.Since(woken); rig.Soak && took > 2*healed {
		t.Errorf("after a stop of 60 s, and the traffic that followed, nothing is counted %v later", took)
	}
	for _, s := range []*rig.Site{h, n} {
		if rss := s.Agent.RSS(); rss > 160<<20 {
			t.Errorf("an agent has %d MiB", rss>>20)
		}
	}
}
