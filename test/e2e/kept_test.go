package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pointsman/test/rig"
)

// TestIdleConnectionsEnd has replicas close each idle connection at a random moment, of
// which some are those at which the proxy sends the next request. No request fails, and no
// reservation is left, whether its body fits into the proxy's buffer or not: the second
// try has a connection of its own.
func TestIdleConnectionsEnd(t *testing.T) {
	for kept, of := range map[string]struct {
		forms []keptForm
		has   func(rig.Abilities) bool
	}{
		"kept": {keptForms, func(rig.Abilities) bool { return true }},
		"new":  {keptForms[:1], func(can rig.Abilities) bool { return can.NewConnections }},
	} {
		t.Run(kept, func(t *testing.T) {
			onKeptForms(t, of.forms, of.has, func(t *testing.T, r rig.Release, form keptForm) {
				s, engines, start, _ := form.lay(t, r, 3, "least_requests")
				if kept == "new" {
					s.Edit("retry_sent: true", "retry_sent: false")
				}
				for _, e := range engines {
					e.Closes = func() time.Duration {
						return time.Duration(rand.IntN(40_000)) * time.Microsecond
					}
				}
				s.Patient()
				start()
				n := 700
				if rig.Soak {
					n = 5000
				}
				const clients = 8
				client := rig.NewClient(clients, true, false)
				defer client.CloseIdleConnections()
				var wg sync.WaitGroup
				for c := range clients {
					wg.Go(func() {
						for i := range n / clients {
							call := rig.Small(i%2 == 0)
							if i%16 == 0 { // more than the buffer holds
								call.Body = rig.Chat(rig.Model, 300_000, 4, false, 1000*c+i)
							}
							if a := call.Do(client, s.Front); a.Err != nil || a.Status != http.StatusOK {
								t.Errorf("request %d of %d bytes: %d, %v", i, len(call.Body), a.Status, a.Err)
							}
							time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond)
						}
					})
				}
				wg.Wait()
				if kept == "kept" && r.Can.Checks {
					reusesConnections(s)
				}
				p := s.Agent.Settled(rig.Pool)
				if want := n / clients * clients; p.Outcomes["served"] != want || p.Ended() != want {
					t.Errorf("outcomes %v of %d requests", p.Outcomes, want)
				}
				s.Idle(p)
				s.Untroubled()
			})
		})
	}
}

// reusesConnections checks that some requests did not need a new connection.
func reusesConnections(s *rig.Site) {
	s.T.Helper()
	reused := 0
	for line := range strings.Lines(s.HAProxy().Command("show stat typed")) {
		if f := strings.Split(strings.TrimSpace(line), ":"); strings.HasPrefix(line, "S.") && strings.Contains(f[0], ".reuse.") {
			more, _ := strconv.Atoi(f[len(f)-1])
			reused += more
		}
	}
	if reused == 0 {
		s.T.Error("each request had a new connection")
	}
}

// TestSecondTryHasItsOwnConnection has a replica break kept connections under requests. nginx
// sends each of these to the other replica over a new connection, though it keeps some.
func TestSecondTryHasItsOwnConnection(t *testing.T) {
	rig.OnEach(t, rig.That(rig.Releases(t), func(can rig.Abilities) bool { return !can.Checks }), func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, engines := rig.Replicas(t, r, 2, "round_robin")
		s.Start()
		client := rig.NewClient(1, true, false) // one connection is with one worker process
		defer client.CloseIdleConnections()
		s.Serve(client, 8)
		for tries, n := 0, 0; tries < 3; n++ {
			if n == 200 {
				t.Fatalf("%d of %d requests were sent twice", tries, n)
			}
			rig.Fault(t, engines[0], `{"die_after":0,"count":1}`)
			opened := engines[1].Opened()
			c := rig.Small(true)
			c.Header = map[string]string{"X-Watch": fmt.Sprint(n)}
			if a := c.Do(client, s.Front); a.Err != nil || a.Status != http.StatusOK {
				t.Fatalf("request %d: %d, %v", n, a.Status, a.Err)
			}
			if slices.Contains(engines[0].Arrived(), fmt.Sprint(n)) {
				tries++
				if engines[1].Opened() == opened {
					t.Errorf("the second try of request %d came over a kept connection", n)
				}
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
}

// TestSentAgain has replicas fail requests before their answers. One that its replica
// loses is served, by that one or by another; one that crashes every replica that takes
// it reaches two of them, and one whose answer has begun reaches no other.
func TestSentAgain(t *testing.T) {
	onKeptForms(t, keptForms, func(rig.Abilities) bool { return true }, func(t *testing.T, r rig.Release, form keptForm) {
		s, engines, start, replica := form.lay(t, r, 4, "round_robin")
		start()
		client := rig.NewClient(8, true, false)
		defer client.CloseIdleConnections()
		s.Serve(client, 8)

		rig.Fault(t, engines[0], `{"die_after":0,"count":1}`)
		s.Serve(client, 8)
		p := s.Agent.Settled(rig.Pool)
		if failed := p.Replica(replica(engines[0])).Failed; failed != 0 && r.Can.Checks || failed != 1 && !r.Can.Checks {
			t.Errorf("r1 failed %d times", failed)
		}

		answers := make(chan rig.Answer)
		for range 8 {
			go func() { answers <- rig.Held().Do(client, s.Front) }()
		}
		rig.Eventually(t, 10*time.Second, "the replicas have them", func() (bool, string) {
			n := 0
			for _, e := range engines {
				n += e.Holds()
			}
			return n == 8, fmt.Sprint(n)
		})
		bad := engines[slices.IndexFunc(engines, func(e *rig.Engine) bool { return e.Holds() > 0 })]
		bad.Down(t)
		for range 8 {
			rig.Eventually(t, 30*time.Second, "an answer", func() (bool, string) {
				for _, e := range engines {
					if e != bad {
						e.Release()
					}
				}
				select {
				case a := <-answers:
					if a.Err != nil || a.Status != http.StatusOK {
						t.Errorf("its replica died before its answer: %d, %v", a.Status, a.Err)
					}
					return true, ""
				default:
					return false, ""
				}
			})
		}
		bad.Up(t)
		s.AwaitState(replica(bad), 30*time.Second, "up")
		s.Idle(s.Agent.Settled(rig.Pool))
		s.Untroubled()

		for fault, most := range map[string]int{`{"die_after":0}`: 2, `{"die_after":3}`: 1} {
			for _, e := range engines {
				rig.Fault(t, e, fault)
			}
			c := rig.Small(true)
			c.Header = map[string]string{"X-Watch": fault}
			if a := c.Do(client, s.Front); a.Err == nil && a.Status == http.StatusOK {
				t.Errorf("%s: answered", fault)
			}
			reached := 0
			for _, e := range engines {
				if slices.Contains(e.Arrived(), fault) {
					reached++
				}
				e.Recovers(t)
			}
			if reached != most {
				t.Errorf("%s: it reached %d replicas, want %d", fault, reached, most)
			}
		}
		s.Idle(s.Agent.Settled(rig.Pool))
		s.Untroubled("pointsman_reservations_expired_total") // HAProxy before 3.2 does not log the first
	})
}
