package e2e

import (
	"fmt"
	"testing"
	"time"

	"pointsman/test/rig"
)

// TestLeavingWhileHeld has clients leave while their requests are held. Some
// proxies report it at once; others report it when the request's turn comes, and its
// place is free again at once. Who waits behind them is served as soon as there
// is capacity.
func TestLeavingWhileHeld(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		for _, h2 := range []bool{false, true} {
			t.Run(fmt.Sprint("h2=", h2), func(t *testing.T) {
				t.Parallel()
				const n = 30
				s, e := rig.QueueSite(t, r, "{wait: agent, band_header: x-band, bands: {leaving: {ttl: 5m}, behind: {ttl: 5m}}}")
				address, notices := s.Front, r.Can.NoticesLeaving
				if h2 {
					address, notices = s.Front2, r.Can.NoticesLeaving2
				}
				free := s.Occupy(e)
				leaving := rig.NewLeaver(t, address, h2)
				s.Fill("leaving", n, func(i int) {
					c := rig.Of("leaving")
					c.Header["X-Watch"] = fmt.Sprint(i)
					leaving.Send(c)
				})
				leaving.Leave()
				leaving.All.Wait()
				if notices {
					s.AwaitQueued("leaving", 0)
				}

				behind := rig.NewClient(1, true, false)
				defer behind.CloseIdleConnections()
				served := make(chan error, 1)
				go func() {
					c := rig.Of("behind")
					served <- c.Check(c.Do(behind, s.Front))
				}()
				s.AwaitQueued("behind", 1)
				queued := s.Queued("leaving")
				start := time.Now()
				free()
				if err := <-served; err != nil {
					t.Error(err)
				}
				if took := time.Since(start); took > 10*time.Second { // a fraction of what they were to wait
					t.Errorf("it was served %v after the replica was free", took)
				}
				p := s.Agent.Settled(rig.Pool)
				if p.Outcomes["served"] != 2 {
					t.Errorf("outcomes %v, want two served", p.Outcomes)
				}
				reached := len(e.Arrived())
				t.Logf("%d of %d waited before it, %d reached the replica; served after %v; outcomes %v", queued, n, reached, time.Since(start), p.Outcomes)
				if reached > queued {
					t.Errorf("the replica got %d requests of clients that the proxy knew had left", reached-queued)
				}
				s.Idle(p)
				s.Untroubled()
			})
		}
	})
}

// TestLeavingEndsInTime gives up a request whose client has left unnoticed at its
// deadline or its time to live, at the latest.
func TestLeavingEndsInTime(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		const n = 10
		s, e := rig.QueueSite(t, r, "{wait: agent, deadline_header: x-deadline, bands: {all: {ttl: 6s}}}")
		free := s.Occupy(e)
		leaving := rig.NewLeaver(t, s.Front, false)
		s.Fill("all", n, func(i int) {
			c := rig.Small(true)
			if i%2 == 0 {
				c.Header = map[string]string{"X-Deadline": "5s"}
			}
			leaving.Send(c)
		})
		leaving.Leave()
		leaving.All.Wait()
		s.AwaitQueued("all", 0)
		if p := s.Agent.Pool(rig.Pool); p.Reservations != 1 {
			t.Errorf("%+v", p)
		}
		if len(e.Arrived()) != 0 || e.Holds() != 1 {
			t.Errorf("the replica got %v, and holds %d", e.Arrived(), e.Holds())
		}
		free()
		p := s.Agent.Settled(rig.Pool)
		if p.Outcomes["served"] != 1 {
			t.Errorf("outcomes %v, want one served", p.Outcomes)
		}
		s.Untroubled()
	})
}
