package main

import (
	"slices"
	"time"

	"pointsman/config"
	"pointsman/decider"
	"pointsman/decider/queue"
	"pointsman/session"
	"pointsman/spoa"
	"pointsman/templates"
)

// lateBinding is the policy that holds requests by itself.
const lateBinding = "least_work_late"

// holdMargin is what a proxy's timeouts must exceed the longest hold by: the
// agent looks at its clock every releaseEvery, and answers need their time.
const holdMargin = time.Second

// releaseEvery is the pause between two looks at what waits, for what no event
// tells.
const releaseEvery = 20 * time.Millisecond

// admissionOf is the pool's admission as it takes effect, nil for none.
func admissionOf(c *config.Config, p *config.Pool) (*config.Admission, error) {
	a := p.Admission
	if p.Policy.Name == lateBinding {
		a.BindLate()
		if a.Wait == "proxy" {
			return nil, c.Refusal(p, "admission.wait", "policy %s binds late, which only the agent can; want agent, or another policy", lateBinding)
		}
		a.Wait = "agent"
	}
	if !a.On {
		return nil, nil
	}
	if a.Wait == "" {
		a.Wait = "agent"
		if v, err := haproxyVersion(c.HAProxy.Version); err == nil && c.Listen.SPOE != "" && c.Listen.Nginx == "" && !v.AtLeast(3, 0) {
			// There the timeout that covers a hold is also what each request
			// waits while the agent is dead.
			a.Wait = "proxy"
			if !p.Limited() {
				return nil, c.Refusal(p, "admission", "on HAProxy %s requests wait in the proxy, which needs max_requests; want that, or wait: agent", v)
			}
			if a.NoReplica == "hold" {
				return nil, c.Refusal(p, "admission.no_replica", "on HAProxy %s requests wait in the proxy, which holds nothing for a replica that is to come; want answer, or wait: agent", v)
			}
			if a.Matching == "fifo" {
				return nil, c.Refusal(p, "admission.matching", "on HAProxy %s requests wait in the proxy, at the server that was chosen; want out_of_order, or wait: agent", v)
			}
		}
	}
	return &a, nil
}

// deciderAdmission turns it into the decider's. epoch is when the decider's
// clock was 0.
func deciderAdmission(a *config.Admission, epoch time.Time) *decider.Admission {
	if a == nil {
		return nil
	}
	header := func(name string) session.Headers {
		if name == "" {
			return session.Headers{}
		}
		return session.NewHeaders([]string{name})
	}
	out := &decider.Admission{
		Hold: a.Wait == "agent", FIFO: a.Matching == "fifo", HoldWithoutReplica: a.NoReplica == "hold",
		TenantWeights: a.TenantWeights,
		FeedbackDelay: 20 * time.Millisecond,
		Classes:       decider.Classes{BandHeader: header(a.BandHeader), DeadlineHeader: header(a.DeadlineHeader), Epoch: epoch},
	}
	for _, t := range a.Tenants {
		out.Classes.Tenants = append(out.Classes.Tenants, decider.NewTenantSource(t))
	}
	for _, b := range a.Ordered() {
		out.Bands = append(out.Bands, queue.Band{
			Name: b.Name, Weight: b.Weight, Order: queue.Order(slices.Index(queue.OrderNames(), b.Order)),
			TTL: b.TTL, MaxRequests: b.MaxRequests, MaxBytes: int(b.MaxBytes), Spill: b.Spill,
		})
		out.Classes.Rules = append(out.Classes.Rules, decider.Rule{
			Band: b.Name, Deadline: b.Deadline, Models: b.Models, Paths: b.Paths, Tenants: b.Tenants, Priority: b.Priority.Value, ByPriority: b.Priority.Set,
		})
	}
	return out
}

// longestHold is the longest that the agent holds an answer.
func longestHold(c *config.Config) (most time.Duration, err error) {
	for _, p := range c.Ordered() {
		a, err := admissionOf(c, p)
		if err != nil {
			return 0, err
		}
		if a != nil && a.Wait == "agent" {
			most = max(most, a.LongestWait())
		}
	}
	return most, nil
}

// maxConns is how many connections HAProxy may open: one for almost each answer
// that is held, besides the usual.
func maxConns(c *config.Config) int { return spoa.DefaultMaxConns + mostHeld(c) }

// mostHeld is how many answers the agent may hold at the same time.
func mostHeld(c *config.Config) (n int) {
	for _, p := range c.Ordered() {
		if a, err := admissionOf(c, p); err == nil && a != nil && a.Wait == "agent" {
			n += a.MostWaiting()
		}
	}
	return n
}

// processingTimeout is how long a proxy waits for a decision: what the file
// says under key or, unless it says anything, long enough for the longest hold.
func processingTimeout(c *config.Config, key string, value time.Duration) (time.Duration, error) {
	hold, err := longestHold(c)
	switch {
	case err != nil:
		return 0, err
	case hold == 0 || value >= hold+holdMargin:
		return value, nil
	case c.Given(key):
		return 0, c.Refusal(nil, key, "is shorter than the longest hold of an admission: want %v at least, or the key left out", hold+holdMargin)
	}
	return hold + holdMargin, nil
}

// queueOptions tells the templates what the admissions need of the proxy.
func queueOptions(c *config.Config, o *templates.HAProxy) error {
	for i, p := range c.Ordered() {
		a, err := admissionOf(c, p)
		if err != nil {
			return err
		}
		if a == nil {
			continue
		}
		t := &o.Pools[i]
		t.TellAdmission = a.ResponseHeaders
		o.Waiting += a.MostWaiting()
		if a.Wait != "proxy" {
			continue
		}
		t.QueueTimeout = a.LongestWait()
		for k, r := range p.Ordered() {
			t.Replicas[k].MaxConn = r.MaxRequests
			if r.MaxRequests == 0 {
				t.Replicas[k].MaxConn = p.MaxRequests
			}
		}
	}
	return nil
}
