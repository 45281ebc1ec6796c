package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"pointsman/sim/fakevllm"
	"pointsman/test/proxies"
	"pointsman/test/rig"
)

// TestRestartWithEvents restarts an agent that knows the caches by the engines' events, of
// which the engines keep the last few only. From its first decision on it knows which
// replica has which conversation, by what it has written to its state.
func TestRestartWithEvents(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var replicas []string
	for i := range 3 {
		port := proxies.FreePorts(t, 2)
		e := rig.StartEngine(t, fmt.Sprintf("r%d", i+1), rig.EngineOptions{
			Models: []string{rig.Model}, EventForm: fakevllm.KVEventsOptions{Keep: 4},
			Events: fmt.Sprintf("tcp://127.0.0.1:%d", port), Replay: fmt.Sprintf("tcp://127.0.0.1:%d", port+1),
		})
		if err := e.Sim.Publish(); err != nil {
			t.Fatal(err)
		}
		replicas = append(replicas, fmt.Sprintf("%s: {address: %q, kv_events: {port: %d, replay: %d}}", e.Name, e.Address, port, port+1))
	}
	haproxies := rig.HAProxies(t)
	s := rig.NewSite(t, haproxies[len(haproxies)-1], fmt.Sprintf("agent: {state_dir: %q}\npools: {%s: {models: [%s], policy: {name: kv_aware, timeout: 1s}, max_requests: 0, replicas: {%s}}}\n",
		dir, rig.Pool, rig.Model, strings.Join(replicas, ", ")))
	s.Patient()
	s.Start()
	talk := newConversations(t, 12, s.Front)
	talk.play(2)
	before := talk.play(2)
	blocks := func() (online, n int) {
		for _, g := range s.Agent.Signals() {
			if g.Blocks != nil {
				online, n = online+g.Blocks.Online, n+g.Blocks.Blocks-g.Blocks.Orphans
			}
		}
		return online, n
	}
	_, known := blocks()
	s.Agent.Signal(syscall.SIGTERM)
	<-s.Agent.Ended
	s.Agent.Start()
	s.Proxy.AwaitAgent()
	if online, n := blocks(); online > 0 && n < known {
		t.Errorf("%d blocks are known after the restart, %d before it", n, known)
	}
	after := talk.play(2)
	t.Logf("%d blocks, hit rate %.3f before the restart, %.3f after it", known, before, after)
	if after < .97*before || before < .5 {
		t.Errorf("hit rate %.3f before the restart, %.3f after it, want at least 0.97 of that", before, after)
	}
	for _, g := range s.Agent.Signals() {
		if g.Blocks == nil || g.Blocks.Online != 1 || g.Blocks.Gaps > 0 {
			t.Errorf("%+v", g.Blocks)
		}
	}
	s.Agent.Settled(rig.Pool)
}
