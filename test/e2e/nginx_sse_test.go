package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pointsman/sim/fakevllm"
	"pointsman/test/proxies"
)

// TestNginxStreamTiming is TestStreamTiming on nginx.
func TestNginxStreamTiming(t *testing.T) {
	everyNginx(t, func(t *testing.T, bin proxies.Binary) {
		profile := quick
		profile.Base = 4 * time.Millisecond
		e := startEngine(t, "r1", fakevllm.Options{Models: []string{model}, Profile: profile})
		s := newNginxSite(t, bin, fmt.Sprintf("pools: {%s: {models: [%s], replicas: %s}}\n", pool, model, replicasYAML(e)))
		s.start()
		const turns = 5
		client := newClient(4, true, false)
		defer client.CloseIdleConnections()
		var direct, through []time.Duration
		for turn := range turns {
			direct = append(direct, watch(t, client, e, e.address, fmt.Sprint("d", turn))...)
			through = append(through, watch(t, client, e, s.front, fmt.Sprint("t", turn))...)
		}
		slices.Sort(direct)
		slices.Sort(through)
		d, p := direct[len(direct)/2], through[len(through)/2]
		t.Logf("%d chunks: median delay %v directly, %v through nginx", len(through), d, p)
		if p-d >= time.Millisecond {
			t.Errorf("nginx adds %v to a chunk (median), want less than 1ms", p-d)
		}
		if got := s.agent.settled(pool).Outcomes["served"]; got != turns {
			t.Errorf("%d outcomes, want %d", got, turns)
		}
	})
}
