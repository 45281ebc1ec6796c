package nginx

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"pointsman/decider"
)

// Health checks the replicas of a pool, because nginx does not. Outcomes from the
// feed count in addition.
type Health struct {
	Pool string
	Path string        // such as /health
	Poll time.Duration // pause between two rounds of checks
	// Prefill checks prefill replicas only. No proxy checks them, and leaving one out is
	// safe: a refused connection is enough to count as down.
	Prefill bool
	Decider *decider.Decider
	Log     *slog.Logger
}

// A replica is down after fall failures in a row and up again after rise answers,
// as with HAProxy's checks.
const (
	fall = 3
	rise = 2
)

// maxConcurrentChecks is how many replicas are checked at the same time.
const maxConcurrentChecks = 32

// checkTimeout bounds one check, as does a shorter Poll.
const checkTimeout = 2 * time.Second

// Run checks every Poll until ctx ends.
func (h *Health) Run(ctx context.Context) {
	client := &fasthttp.Client{
		Name: "pointsman", NoDefaultUserAgentHeader: true,
		MaxConnsPerHost: 2, MaxIdleConnDuration: 4 * time.Second, MaxResponseBodySize: 1 << 20,
		// fasthttp's own dials IPv4 alone.
		Dial: func(address string) (net.Conn, error) { return net.DialTimeout("tcp", address, checkTimeout) },
	}
	defer client.CloseIdleConnections()
	states := map[string]*replicaCheck{}
	for {
		select {
		case <-ctx.Done():
			for name := range states { // nobody checks any more
				if p := h.Decider.Pool(h.Pool); p != nil {
					p.Checked(name, true)
				}
			}
			return
		case <-time.After(h.Poll):
		}
		if p := h.Decider.Pool(h.Pool); p != nil {
			h.checkAll(client, p, states)
		}
	}
}

// replicaCheck is the result of the latest checks of one replica.
type replicaCheck struct {
	address  string
	down     bool
	row      int  // results in a row that contradict down
	answered bool // the last result
}

// checkAll checks each replica once and reports changes to the pool.
func (h *Health) checkAll(client *fasthttp.Client, p *decider.Pool, states map[string]*replicaCheck) {
	replicas := p.Status().Replicas
	if h.Prefill {
		replicas = slices.DeleteFunc(replicas, func(r decider.ReplicaStatus) bool { return r.Role != decider.RolePrefill.String() })
	}
	slots := make(chan struct{}, maxConcurrentChecks)
	var all sync.WaitGroup
	for _, r := range replicas {
		s := states[r.Name]
		if s == nil || s.address != r.Address {
			s = &replicaCheck{address: r.Address}
			states[r.Name] = s
		}
		slots <- struct{}{}
		all.Go(func() {
			var refused bool
			if s.answered, refused = h.check(client, s.address); refused && h.Prefill && !s.down {
				s.row = fall
			}
			<-slots
		})
	}
	all.Wait()
	for _, r := range replicas {
		s := states[r.Name]
		s.count()
		if p.Checked(r.Name, !s.down) {
			h.Log.Info("replica's health changed", "pool", h.Pool, "replica", r.Name, "healthy", !s.down)
		}
	}
	if len(states) > len(replicas) {
		forget(states, replicas)
	}
}

// count counts the last result.
func (s *replicaCheck) count() {
	if s.answered != s.down {
		s.row = 0
		return
	}
	s.row++
	if s.down && s.row >= rise || !s.down && s.row >= fall {
		s.down, s.row = !s.down, 0
	}
}

// forget removes the states of replicas that are gone.
func forget(states map[string]*replicaCheck, replicas []decider.ReplicaStatus) {
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

// check reports whether the replica answers with 2xx or 3xx, or denies access.
func (h *Health) check(client *fasthttp.Client, address string) (ok, refused bool) {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI("http://" + address + h.Path)
	if err := client.DoTimeout(req, resp, min(h.Poll, checkTimeout)); err != nil {
		return false, errors.Is(err, syscall.ECONNREFUSED)
	}
	return resp.StatusCode() >= 200 && resp.StatusCode() < 400, false
}
