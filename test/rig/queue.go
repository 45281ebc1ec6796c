package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"
)

// QueueSite is a site with one pool of a single replica that takes one request
// at a time, started. admission is the YAML of the pool's, in flow form.
func QueueSite(t *testing.T, r Release, admission string) (*Site, *Engine) {
	t.Helper()
	e := StartEngine(t, "r1", EngineOptions{Models: []string{Model}})
	s := NewSite(t, r, fmt.Sprintf("pools: {%s: {models: [%s], max_requests: 1, replicas: %s, admission: %s}}\n", Pool, Model, ReplicasYAML(e), admission))
	s.Unhurried()
	s.Start()
	return s, e
}

// Occupy sends a request that the engine holds, and waits until it is there. The
// returned function lets it go on, and waits until it has been served.
func (s *Site) Occupy(e *Engine) (free func()) {
	s.T.Helper()
	client := NewClient(1, false, false)
	done := make(chan error, 1)
	go func() {
		c := Held()
		done <- c.Check(c.Do(client, s.Front))
	}()
	s.AwaitReservations(1)
	Eventually(s.T, 5*time.Second, "the first request runs", func() (bool, string) { return e.Holds() == 1, "" })
	return func() {
		s.T.Helper()
		e.Release()
		if err := <-done; err != nil {
			s.T.Errorf("the first request: %v", err)
		}
	}
}

// Queued is how many requests of the band wait, as the agent sees it.
func (s *Site) Queued(band string) int {
	s.T.Helper()
	b, err := s.Agent.Get("/status")
	if err != nil {
		s.T.Fatal(err)
	}
	var st struct {
		Pools []struct {
			Admission struct {
				Bands []struct {
					Name   string `json:"name"`
					Queued int    `json:"queued"`
				} `json:"bands"`
			} `json:"admission"`
		}
	}
	if err := json.Unmarshal(b, &st); err != nil {
		s.T.Fatal(err)
	}
	for _, x := range st.Pools[0].Admission.Bands {
		if x.Name == band {
			return x.Queued
		}
	}
	s.T.Fatalf("no band %s:\n%s", band, b)
	return 0
}

// AwaitQueued waits until n requests of the band wait.
func (s *Site) AwaitQueued(band string, n int) {
	s.T.Helper()
	Eventually(s.T, 20*time.Second, fmt.Sprintf("%d of band %s wait", n, band), func() (bool, string) {
		got := s.Queued(band)
		return got == n, fmt.Sprintf("%d, of %+v", got, s.Agent.Pools())
	})
}

// Fill sends n requests that wait in the band, some at a time: each needs a
// connection to the agent of its own, and a proxy goes on without the agent when
// a busy machine does not open them all in time.
func (s *Site) Fill(band string, n int, send func(i int)) {
	s.T.Helper()
	for i := range n {
		send(i)
		if (i+1)%10 == 0 || i+1 == n {
			s.AwaitQueued(band, i+1)
		}
	}
}

// Leaver sends requests whose clients leave.
type Leaver struct {
	t     *testing.T
	h2    bool
	host  string
	Leave func()
	ctx   context.Context
	All   sync.WaitGroup
}

// NewLeaver returns one whose requests go to host, each on a connection of its
// own.
func NewLeaver(t *testing.T, host string, h2 bool) *Leaver {
	ctx, leave := context.WithCancel(t.Context())
	t.Cleanup(leave)
	return &Leaver{t: t, h2: h2, host: host, Leave: leave, ctx: ctx}
}

// Send sends c. That it is answered with a response fails the test.
func (l *Leaver) Send(c Call) {
	l.t.Helper()
	r, err := c.Request(l.ctx, l.host, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	// Requests of one client over HTTP/2 may share a connection after all.
	client := NewClient(1, false, l.h2)
	l.All.Go(func() {
		if resp, err := client.Do(r); err == nil {
			resp.Body.Close()
			l.t.Errorf("a client that left was answered %d: %v", resp.StatusCode, resp.Header)
		}
	})
}
