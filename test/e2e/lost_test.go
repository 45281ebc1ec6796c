package e2e

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// TestLostOutcomes decides requests of which nothing is ever reported, and stops
// the agent meanwhile. Within 10 s of its return the counts are right again, by
// what the engines report: the lease is ten minutes.
func TestLostOutcomes(t *testing.T) {
	everyProxy(t, func(t *testing.T, r release) {
		t.Parallel()
		s, _ := replicas(t, r, 2, "least_requests")
		s.start()
		const lost = 6
		for i := range lost {
			q, err := s.proxy.ask(fmt.Sprintf("%032x", i+1), chat(model, 400, 8, true, 7))
			if err != nil {
				t.Fatal(err)
			}
			if err := q.answered(); err != nil {
				t.Fatal(err)
			}
			q.close()
		}
		s.awaitReservations(lost)
		s.agent.signal(syscall.SIGSTOP)
		time.Sleep(2 * time.Second)
		s.agent.signal(syscall.SIGCONT)
		eventually(t, 10*time.Second, "nothing is in flight", func() (bool, string) {
			p := s.agent.pool(pool)
			return p.Reservations == 0, fmt.Sprintf("%+v", p)
		})
	})
}
