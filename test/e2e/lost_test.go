package e2e

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"pointsman/test/rig"
)

// TestLostOutcomes decides requests whose ends are never reported, and stops the agent
// meanwhile. Within 10 s of its return the counts are right again, from the engines'
// reports: the lease is ten minutes.
func TestLostOutcomes(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, _ := rig.Replicas(t, r, 2, "least_requests")
		s.Start()
		const lost = 6
		for i := range lost {
			q, err := s.Proxy.Ask(fmt.Sprintf("%032x", i+1), rig.Chat(rig.Model, 400, 8, true, 7))
			if err != nil {
				t.Fatal(err)
			}
			if err := q.Answered(); err != nil {
				t.Fatal(err)
			}
			q.Close()
		}
		s.AwaitReservations(lost)
		s.Agent.Signal(syscall.SIGSTOP)
		time.Sleep(2 * time.Second)
		s.Agent.Signal(syscall.SIGCONT)
		rig.Eventually(t, 10*time.Second, "nothing is in flight", func() (bool, string) {
			p := s.Agent.Pool(rig.Pool)
			return p.Reservations == 0, fmt.Sprintf("%+v", p)
		})
	})
}
