package nginx

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"pointsman/decider"
)

// Health asks the replicas of a pool for their health, since nginx does not.
// What the feed tells of a replica counts besides.
type Health struct {
	Pool    string
	Path    string        // such as /health
	Poll    time.Duration // pause between two looks
	Decider *decider.Decider
	Log     *slog.Logger
}

// A replica is down after so many failures in a row, and up again after so many
// answers, as HAProxy's checks have it.
const (
	fall = 3
	rise = 2
)

// atOnce is how many replicas are asked at the same time.
const atOnce = 32

// checkTimeout bounds one question; a shorter Poll bounds it more.
const checkTimeout = 2 * time.Second

// Run asks every Poll until ctx ends.
func (h *Health) Run(ctx context.Context) {
	client := &fasthttp.Client{
		Name: "pointsman", NoDefaultUserAgentHeader: true,
		MaxConnsPerHost: 2, MaxIdleConnDuration: 4 * time.Second, MaxResponseBodySize: 1 << 20,
		// fasthttp's own dials IPv4 alone.
		Dial: func(address string) (net.Conn, error) { return net.DialTimeout("tcp", address, checkTimeout) },
	}
	defer client.CloseIdleConnections()
	states := map[string]*checked{}
	for {
		select {
		case <-ctx.Done():
			for name := range states { // nobody looks any more
				if p := h.Decider.Pool(h.Pool); p != nil {
					p.Checked(name, true)
				}
			}
			return
		case <-time.After(h.Poll):
		}
		if p := h.Decider.Pool(h.Pool); p != nil {
			h.look(client, p, states)
		}
	}
}

// checked is what the last questions to one replica found.
type checked struct {
	address string
	down    bool
	row     int // answers of the other kind in a row
	well    bool
}

// look asks each replica once and tells the pool of those that changed.
func (h *Health) look(client *fasthttp.Client, p *decider.Pool, states map[string]*checked) {
	replicas := p.Status().Replicas
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for _, r := range replicas {
		s := states[r.Name]
		if s == nil || s.address != r.Address {
			s = &checked{address: r.Address}
			states[r.Name] = s
		}
		slots <- struct{}{}
		all.Go(func() {
			s.well = h.ask(client, s.address)
			<-slots
		})
	}
	all.Wait()
	for _, r := range replicas {
		s := states[r.Name]
		s.count()
		if p.Checked(r.Name, !s.down) {
			h.Log.Info("replica's health changed", "pool", h.Pool, "replica", r.Name, "well", !s.down)
		}
	}
	if len(states) > len(replicas) {
		forget(states, replicas)
	}
}

// count takes in the last answer.
func (s *checked) count() {
	if s.well != s.down {
		s.row = 0
		return
	}
	s.row++
	if s.down && s.row >= rise || !s.down && s.row >= fall {
		s.down, s.row = !s.down, 0
	}
}

// forget drops what is known of replicas that are gone.
func forget(states map[string]*checked, replicas []decider.ReplicaStatus) {
	there := map[string]bool{}
	for _, r := range replicas {
		there[r.Name] = true
	}
	for name := range states {
		if !there[name] {
			delete(states, name)
		}
	}
}

// ask reports whether the replica answers with 2xx or 3xx.
func (h *Health) ask(client *fasthttp.Client, address string) bool {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI("http://" + address + h.Path)
	if err := client.DoTimeout(req, resp, min(h.Poll, checkTimeout)); err != nil {
		return false
	}
	return resp.StatusCode() >= 200 && resp.StatusCode() < 400
}
