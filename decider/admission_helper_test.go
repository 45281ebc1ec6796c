package decider

import (
	"fmt"
	"time"

	"pointsman/decider/queue"
	"pointsman/session"
)

// client is a request with its Waiter.
type client struct {
	r     Request
	d     Decision
	held  bool
	calls int // of Decided
}

func (c *client) Decided() { c.calls++ }

// answered reports whether the decision is made.
func (c *client) answered() bool { return !c.held || c.calls > 0 }

// submit sends a request through the pool's admission.
func submit(p *Pool, change ...func(*Request)) *client {
	c := &client{r: Request{ID: newID(), Pool: p, Input: 1000, Output: -1, Stream: true}}
	for _, f := range change {
		f(&c.r)
	}
	c.held = p.Submit(&c.r, &c.d, c)
	return c
}

func inBand(n int) func(*Request) { return func(r *Request) { r.Band = n } }
func ofTenant(n int) func(*Request) {
	return func(r *Request) { r.Tenant = session.Key([]byte(fmt.Sprint("t", n))) }
}
func withInput(tokens int) func(*Request) { return func(r *Request) { r.Input = tokens } }

// withAdmission makes a pool's configuration one that holds requests, one at a
// time on each replica.
func withAdmission(a Admission) func(*PoolConfig) {
	a.Hold = true
	if len(a.Bands) == 0 {
		a.Bands = []queue.Band{{Name: "all"}}
	}
	return func(c *PoolConfig) { c.Admission, c.Limit = &a, 1 }
}

func finish(p *Pool, c *client) {
	p.Finished(Outcome{ID: c.r.ID, Server: []byte(c.d.Server), TTFT: time.Millisecond})
}
