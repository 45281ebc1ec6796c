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
// and those that it sends there later, are served by the other replica. Of servers that are
// added at run time it does not notice the latter: the agent ends these requests.
func TestHostVanishes(t *testing.T) {
	for _, r := range rig.HAProxies(t) {
		if r.Newest || rig.Soak {
			t.Run(r.Name, func(t *testing.T) { t.Parallel(); hostVanishes(t, r, false) })
		}
		if rig.Soak {
			t.Run(r.Name+"-discovered", func(t *testing.T) { t.Parallel(); hostVanishes(t, r, true) })
		}
	}
}

func hostVanishes(t *testing.T, r rig.Release, added bool) {
	away := proxies.NewNamespace(t)
	cable := away.Cable()
	const n = 6
	var engines [2]*rig.Engine
	engine := func(i int, host string) {
		engines[i] = rig.StartEngineAt(t, fmt.Sprintf("r%d", i+1), at(t, host), rig.EngineOptions{Models: []string{rig.Model}})
	}
	away.Do(func() { engine(0, cable.There) })
	engine(1, cable.Here)
	var s *rig.Site
	var start func()
	may := 0 // fail
	if added {
		s, start = discoveredSite(t, r, "round_robin", engines[:]...)
		may = n / 2
	} else {
		s = rig.NewSite(t, r, fmt.Sprintf("pools: {%s: {models: [%s], policy: round_robin, max_requests: 0, replicas: %s}}\n",
			rig.Pool, rig.Model, rig.ReplicasYAML(engines[:]...)))
		start = s.Start
	}
	s.Patient()
	start()
	client := rig.NewClient(2*n, true, false)
	defer client.CloseIdleConnections()
	type answer struct {
		rig.Answer
		held bool
	}
	answers := make(chan answer, 2*n)
	send := func(c rig.Call, n int) {
		for range n {
			go func() { answers <- answer{c.Do(client, s.Front), c.Header["X-Hold"] != ""} }()
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
	hold(n) // over half of the connections that are kept now

	time.Sleep(time.Second) // it has acknowledged them
	cable.Cut()
	cut, failed := time.Now(), 0
	send(rig.Small(true), n)
	for range 2 * n {
		rig.Eventually(t, 50*time.Second, "an answer", func() (bool, string) {
			engines[1].Release()
			select {
			case a := <-answers:
				if a.Err != nil || a.Status != http.StatusOK {
					failed++
					t.Logf("%v after its host vanished: %d, %v", time.Since(cut), a.Status, a.Err)
					if a.held {
						t.Error("it waited for its answer when the host vanished")
					}
				}
				return true, ""
			default:
				return false, ""
			}
		})
	}
	t.Logf("all had an answer, or its end, %v after the host vanished", time.Since(cut))
	if failed > may {
		t.Errorf("%d of %d requests failed", failed, 2*n)
	}
	s.Idle(s.Agent.Settled(rig.Pool))
}
