package e2e

import (
	"fmt"
	"testing"
	"time"
)

// TestLeavingWhileHeld has clients leave while their requests are held. Some
// proxies report it at once; others report it when the request's turn comes, and its
// place is free again at once. Who waits behind them is served as soon as there
// is capacity.
func TestLeavingWhileHeld(t *testing.T) {
	everyProxy(t, func(t *testing.T, r release) {
		for _, h2 := range []bool{false, true} {
			t.Run(fmt.Sprint("h2=", h2), func(t *testing.T) {
				t.Parallel()
				const n = 30
				s, e := queueSite(t, r, "{wait: agent, band_header: x-band, bands: {leaving: {ttl: 5m}, behind: {ttl: 5m}}}")
				address, notices := s.front, r.can.noticesLeaving
				if h2 {
					address, notices = s.front2, r.can.noticesLeaving2
				}
				free := s.occupy(e)
				leaving := newLeaver(t, address, h2)
				s.fill("leaving", n, func(i int) {
					c := of("leaving")
					c.header["X-Watch"] = fmt.Sprint(i)
					leaving.send(c)
				})
				leaving.leave()
				leaving.all.Wait()
				if notices {
					s.awaitQueued("leaving", 0)
				}

				behind := newClient(1, true, false)
				defer behind.CloseIdleConnections()
				served := make(chan error, 1)
				go func() {
					c := of("behind")
					served <- c.check(c.do(behind, s.front))
				}()
				s.awaitQueued("behind", 1)
				queued := s.queued("leaving")
				start := time.Now()
				free()
				if err := <-served; err != nil {
					t.Error(err)
				}
				if took := time.Since(start); took > 10*time.Second { // a fraction of what they were to wait
					t.Errorf("it was served %v after the replica was free", took)
				}
				p := s.agent.settled(pool)
				if p.Outcomes["served"] != 2 {
					t.Errorf("outcomes %v, want two served", p.Outcomes)
				}
				reached := len(e.arrived())
				t.Logf("%d of %d waited before it, %d reached the replica; served after %v; outcomes %v", queued, n, reached, time.Since(start), p.Outcomes)
				if reached > queued {
					t.Errorf("the replica got %d requests of clients that the proxy knew had left", reached-queued)
				}
				s.idle(p)
				s.untroubled()
			})
		}
	})
}

// TestLeavingEndsInTime gives up a request whose client has left unnoticed at its
// deadline or its time to live, at the latest.
func TestLeavingEndsInTime(t *testing.T) {
	everyProxy(t, func(t *testing.T, r release) {
		t.Parallel()
		const n = 10
		s, e := queueSite(t, r, "{wait: agent, deadline_header: x-deadline, bands: {all: {ttl: 6s}}}")
		free := s.occupy(e)
		leaving := newLeaver(t, s.front, false)
		s.fill("all", n, func(i int) {
			c := small(true)
			if i%2 == 0 {
				c.header = map[string]string{"X-Deadline": "5s"}
			}
			leaving.send(c)
		})
		leaving.leave()
		leaving.all.Wait()
		s.awaitQueued("all", 0)
		if p := s.agent.pool(pool); p.Reservations != 1 {
			t.Errorf("%+v", p)
		}
		if len(e.arrived()) != 0 || e.holds() != 1 {
			t.Errorf("the replica got %v, and holds %d", e.arrived(), e.holds())
		}
		free()
		p := s.agent.settled(pool)
		if p.Outcomes["served"] != 1 {
			t.Errorf("outcomes %v, want one served", p.Outcomes)
		}
		s.untroubled()
	})
}
