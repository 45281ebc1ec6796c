package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"pointsman/test/proxies"
	"pointsman/test/rig"
)

// TestHostVanishes has a replica whose host vanishes without closing its connections, as at a
// power cut. HAProxy notices that on connections that it keeps: the requests that wait there,
// and those that it sends there later, are served by the other replica.
func TestHostVanishes(t *testing.T) {
	for _, r := range rig.HAProxies(t) {
		if !r.Newest && !rig.Soak {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			away := proxies.NewNamespace(t)
			cable := away.Cable()
			var engines [2]*rig.Engine
			start := func(i int, host string) {
				engines[i] = rig.StartEngineAt(t, fmt.Sprintf("r%d", i+1), at(t, host), rig.EngineOptions{Models: []string{rig.Model}})
			}
			away.Do(func() { start(0, cable.There) })
			start(1, cable.Here)
			s := rig.NewSite(t, r, fmt.Sprintf("pools: {%s: {models: [%s], policy: round_robin, max_requests: 0, replicas: %s}}\n",
				rig.Pool, rig.Model, rig.ReplicasYAML(engines[:]...)))
			s.Patient()
			s.Start()
			const n = 6
			client := rig.NewClient(2*n, true, false)
			defer client.CloseIdleConnections()
			answers := make(chan rig.Answer, 2*n)
			send := func(c rig.Call, n int) {
				for range n {
					go func() { answers <- c.Do(client, s.Front) }()
				}
			}
			hold := func(n int) {
				send(rig.Held(), n)
				rig.Eventually(t, 10*time.Second, "both replicas compute", func() (bool, string) {
					a, b := engines[0].Holds(), engines[1].Holds()
					return a > 0 && b > 0 && a+b == n, fmt.Sprint(a, b)
				})
			}
			hold(2 * n)
			engines[0].Release()
			engines[1].Release()
			for range 2 * n {
				if a := <-answers; a.Err != nil || a.Status != http.StatusOK {
					t.Fatal(a.Status, a.Err)
				}
			}
			hold(n) // over half of the connections that are kept

			cable.Cut()
			cut := time.Now()
			send(rig.Small(true), n)
			for range 2 * n {
				rig.Eventually(t, 50*time.Second, "an answer", func() (bool, string) {
					engines[1].Release()
					select {
					case a := <-answers:
						if a.Err != nil || a.Status != http.StatusOK {
							t.Errorf("%v after its host vanished: %d, %v", time.Since(cut), a.Status, a.Err)
						}
						return true, ""
					default:
						return false, ""
					}
				})
			}
			t.Logf("all were served %v after the host vanished", time.Since(cut))
			s.Idle(s.Agent.Settled(rig.Pool))
		})
	}
}
