package e2e

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"pointsman/test/rig"
)

// TestDeadCore kills the core of an engine in mid-stream. The stream ends with status
// 200 and an error among its events, so that no proxy can know. The engine's own word
// takes it out at once, and back in.
func TestDeadCore(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, engines := rig.Replicas(t, r, 3, "least_requests")
		s.Start()
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()
		s.Serve(client, 6)
		broken := make(chan rig.Answer)
		go func() {
			broken <- rig.Call{Body: []byte(`{"model":"` + rig.Model + `","stream":true,"ignore_eos":true,"max_tokens":60000,"messages":[{"role":"user","content":"long"}]}`)}.Do(client, s.Front)
		}()
		var bad *rig.Engine
		rig.Eventually(t, 20*time.Second, "the stream runs somewhere", func() (bool, string) {
			for i, e := range engines {
				if e.Sim.Stats().Running > 0 {
					bad = engines[i]
				}
			}
			return bad != nil, ""
		})
		killed := time.Now()
		rig.Fault(t, bad, `{"core":true}`)
		if a := <-broken; a.Status != 200 || a.Err != nil || !bytes.Contains(a.Body, []byte(`"error"`)) || !bytes.HasSuffix(a.Body, []byte("data: [DONE]\n\n")) {
			t.Errorf("the stream ends with %d %v ...%s", a.Status, a.Err, a.Body[max(0, len(a.Body)-200):])
		}
		s.AwaitState(bad.Name, 20*time.Second, rig.Ejected)
		t.Logf("known after %v", time.Since(killed))
		for range 4 { // longer than it lasts after one report
			if _, seen := s.Spared(client, bad.Name, rig.Ejected, 10); !seen {
				if p := s.Agent.Pool(rig.Pool); p.Replica(bad.Name).State != "down" {
					t.Fatal(fmt.Sprint(p))
				}
				break // the proxy's checks have found it too
			}
			time.Sleep(time.Second)
		}
		bad.Recovers(t)
		s.AwaitState(bad.Name, 20*time.Second, "up")
		s.Returns(client, bad.Name)
	})
}

// TestOnlyErrors has an engine answer 500 to everything at once, while its own health says
// that it works. So it is always the least loaded, and is left out all the same.
func TestOnlyErrors(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, engines := rig.Replicas(t, r, 2, "least_requests")
		s.Start()
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()
		s.Serve(client, 6)
		bad := engines[0]
		rig.Fault(t, bad, `{"status":500}`)
		begin, failed := time.Now(), 0
		rig.Eventually(t, 20*time.Second, "the engine is left out", func() (bool, string) {
			if a := rig.Small(true).Do(client, s.Front); a.Status == 500 {
				failed++
			} else if a.Status != 200 || a.Err != nil {
				t.Errorf("%d %v", a.Status, a.Err)
			}
			p := s.Agent.Pool(rig.Pool)
			return p.Replica(bad.Name).State == rig.Ejected, fmt.Sprint(p)
		})
		t.Logf("known after %v, when %d requests had failed", time.Since(begin), failed)
		s.Spared(client, bad.Name, rig.Ejected, 10)
		bad.Recovers(t)
		s.Returns(client, bad.Name)
	})
}
