package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pointsman/test/rig"
)

// TestReplicaThatHAProxyLacks gives the agent a replica that is no server of HAProxy's: no
// request fails, it is ejected instead of drawing every second decision, and the log names it.
func TestReplicaThatHAProxyLacks(t *testing.T) {
	rig.OnEach(t, rig.That(rig.Releases(t), func(can rig.Abilities) bool { return can.Runtime }), func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, _ := rig.Replicas(t, r, 2, "round_robin")
		s.Start()
		more := rig.StartEngine(t, "r9", rig.EngineOptions{Models: []string{rig.Model}})
		s.Edit("replicas: {", fmt.Sprintf("replicas: {r9: {address: %q}, ", more.Address))
		s.ReloadAgent()
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()
		served := 0
		for end := time.Now().Add(60 * time.Second); s.Agent.Pool(rig.Pool).Replica("r9").State != "ejected" && time.Now().Before(end); {
			by := s.Serve(client, 20)
			if served += by["r1"] + by["r2"]; by["r9"] != 0 {
				t.Fatalf("served by %v", by)
			}
		}
		if p := s.Agent.Settled(rig.Pool); p.Replica("r9").Chosen < 20 || p.Outcomes["served"] != served {
			t.Errorf("after %d requests: %+v", served, p)
		}
		rig.Eventually(t, 30*time.Second, "a line in the log", func() (bool, string) {
			log := s.Agent.Log.String()
			return strings.Contains(log, "gives the requests decided for a replica to others"), log
		})
	})
}
