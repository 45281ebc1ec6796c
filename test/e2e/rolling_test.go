package e2e

import (
	"fmt"
	"syscall"
	"testing"

	"pointsman/test/rig"
)

// TestRollingRestart has an HAProxy and an nginx share three replicas, conversations go
// on by way of either, and restarts one agent after the other. No request fails, each
// knows what was learned meanwhile, and both count the streams that have run all the
// time.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	haproxies, nginxes := rig.HAProxies(t), rig.Nginxes(t)
	h, engines := rig.Replicas(t, haproxies[len(haproxies)-1], 3, "least_work")
	n := rig.NewSite(t, nginxes[len(nginxes)-1], fmt.Sprintf("pools: {%s: {models: [%s], policy: least_work, max_requests: 0, replicas: %s}}\n",
		rig.Pool, rig.Model, rig.ReplicasYAML(engines...)))
	a, b := rig.FreeAddress(t), rig.FreeAddress(t)
	join(t, h, "a", a, b, "what the agents of the test share")
	join(t, n, "b", b, a, "what the agents of the test share")
	sites := map[string]*rig.Site{"a": h, "b": n}
	for _, s := range sites {
		s.Edit("pools:", fmt.Sprintf("agent: {state_dir: %q}\npools:", t.TempDir()))
		s.Patient()
		s.Start()
	}
	awaitPeer(t, h.Agent, "b", "follows")
	awaitPeer(t, n.Agent, "a", "follows")
	talk := newConversations(t, 24, h.Front, n.Front)
	talk.play(2)
	before := talk.play(3)
	load := []*rig.Traffic{rig.StartTraffic(t, h.Front, 2), rig.StartTraffic(t, n.Front, 2)}
	streams := hold(t, h.Front, 4, false)
	for name, s := range sites {
		s.Agent.Signal(syscall.SIGTERM)
		<-s.Agent.Ended
		for _, l := range load {
			l.Await(10)
		}
		s.Agent.Start()
		s.Proxy.AwaitAgent()
		s.Decides(5)
		for other, o := range sites {
			if o != s {
				awaitPeer(t, s.Agent, other, "follows")
				awaitPeer(t, o.Agent, name, "follows")
			}
		}
		after := talk.play(3)
		t.Logf("hit rate %.3f before, %.3f after the restart of %s", before, after, s.Name)
		if after < .97*before || before < .5 {
			t.Errorf("hit rate %.3f before, %.3f after the restart of %s, want at least 0.97 of that", before, after, s.Name)
		}
	}
	for _, l := range load {
		l.Stop()
	}
	counts(t, h, 4)
	counts(t, n, 4)
	rig.ReleaseAll(t, 4, engines...)
	streams.Wait()
	h.Agent.Settled(rig.Pool)
	n.Agent.Settled(rig.Pool)
}
