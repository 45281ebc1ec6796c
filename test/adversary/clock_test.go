package adversary

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pointsman/test/rig"
)

// TestClockJumps sets the agent's clock of the calendar forward and back by hours, under
// load, with requests that wait and others that run for long. What the agent measures it
// measures by the clock that nobody can set: no reservation ends by that, none stays,
// nobody waits longer, and nothing is reported of the feed. Deadlines that name a time of
// the calendar are those of the calendar that counts when they come.
func TestClockJumps(t *testing.T) {
	if !rig.Soak {
		t.Skip("builds an agent whose calendar can be set; TestLateness, TestParseDeadline, TestProblem and TestClockOfTheProxy are the short form")
	}
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		s, engines := rig.Replicas(t, r, 3, "least_requests")
		s.Edit("max_requests: 0", "max_requests: 64, admission: {wait: agent, deadline_header: x-deadline}")
		s.Unhurried()
		calendar := rig.NewCalendar(s.Agent)
		s.Start()
		client := rig.NewClient(8, true, false)
		defer client.CloseIdleConnections()
		done := make(chan error, 3)
		for range 3 {
			go func() {
				c := rig.Held()
				done <- c.Check(c.Do(client, s.Front))
			}()
		}
		holds := func() (n int) {
			for _, e := range engines {
				n += e.Holds()
			}
			return n
		}
		rig.Eventually(t, 10*time.Second, "the long requests run", func() (bool, string) { return holds() == 3, fmt.Sprint(holds()) })
		load := rig.StartTraffic(t, s.Front, 4)
		load.Await(50)
		for _, off := range []time.Duration{3 * time.Hour, -9 * time.Hour, 400 * 24 * time.Hour, -30 * time.Second, 0} {
			calendar.Set(off)
			load.Await(200)
			time.Sleep(2 * time.Second)
			at := time.Now().Add(off + 30*time.Second)
			c := rig.Small(true)
			c.Header = map[string]string{"X-Deadline": at.UTC().Format(time.RFC3339)}
			if err := c.Check(c.Do(client, s.Front)); err != nil {
				t.Errorf("off by %v: %v", off, err)
			}
			p := s.Agent.Pool(rig.Pool)
			if n := p.Outcomes["served"]; p.Reservations < 3 || p.Reservations > 9 || n != p.Ended() || p.FellOpen != 0 {
				t.Errorf("off by %v: %+v", off, p)
			}
			for _, x := range p.Replicas {
				if x.State != "up" {
					t.Errorf("off by %v: %+v", off, x)
				}
			}
			var status struct {
				Proxies []struct {
					Problem string  `json:"problem"`
					Age     float64 `json:"feed_age_s"`
				} `json:"proxies"`
			}
			b, err := s.Agent.Get("/status")
			if err == nil {
				err = json.Unmarshal(b, &status)
			}
			if err != nil || len(status.Proxies) == 0 {
				t.Fatalf("%v: %s", err, b)
			}
			for _, x := range status.Proxies {
				if x.Problem != "" || x.Age < 0 || x.Age > 10 {
					t.Errorf("off by %v: %+v", off, x)
				}
			}
			for series, v := range s.Agent.Metrics() {
				if strings.HasPrefix(series, "pointsman_ttft_seconds_sum") && v > 3600 {
					t.Errorf("off by %v: %s is %v", off, series, v)
				}
			}
		}
		load.Stop()
		for _, e := range engines {
			e.Release()
		}
		for range 3 {
			if err := <-done; err != nil {
				t.Errorf("a request that ran all the time: %v", err)
			}
		}
		s.Idle(s.Agent.Settled(rig.Pool))
		s.Untroubled()
	})
}
