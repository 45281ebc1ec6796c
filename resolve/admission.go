package resolve

import (
	"slices"
	"time"

	"pointsman/config"
	"pointsman/decider"
	"pointsman/decider/queue"
	"pointsman/intake"
	"pointsman/session"
)

// The values of admission.wait.
const (
	inAgent = "agent"
	inProxy = "proxy"
)

// feedbackDelay is how late the agent learns that a replica has capacity again.
const feedbackDelay = 20 * time.Millisecond

// holds reports whether the agent holds requests for an admission.
func holds(a *config.Admission) bool { return a != nil && a.Wait == inAgent }

// admission is the pool's admission as it takes effect, nil for none. late is
// set when the pool's policy holds requests by itself.
func (r *Config) admission(p *config.Pool, late bool) (*config.Admission, error) {
	a := p.Admission
	if late {
		a.BindLate()
		if a.Wait == inProxy {
			return nil, r.File.Refusal(p, "admission.wait", "policy %s holds requests in the agent; want agent, or another policy", p.Policy.Name)
		}
		a.Wait = inAgent
	}
	if !a.On {
		return nil, nil
	}
	if a.Wait == "" {
		var err error
		if a.Wait, err = r.waitsIn(p); err != nil {
			return nil, err
		}
	}
	return &a, nil
}

// waitsIn is where the requests of a pool wait whose admission does not say.
func (r *Config) waitsIn(p *config.Pool) (string, error) {
	if r.File.Listen.SPOE == "" || r.File.Listen.Nginx != "" {
		return inAgent, nil
	}
	v, err := r.version()
	if err != nil {
		return inAgent, nil //nolint:nilerr // an unknown HAProxy counts as new
	}
	if v.AtLeast(3, 0) {
		return inAgent, nil
	}
	// Before 3.0 the timeout that covers a hold is also what each request waits
	// while the agent is dead.
	switch a := &p.Admission; {
	case !p.Limited():
		return "", r.File.Refusal(p, "admission", "on HAProxy %s requests wait in the proxy, which needs max_requests; set it, or wait: agent", v)
	case a.NoReplica == "hold":
		return "", r.File.Refusal(p, "admission.no_replica", "on HAProxy %s requests wait in the proxy, which cannot hold them until a replica is up; want answer, or wait: agent", v)
	case a.Matching == "fifo":
		return "", r.File.Refusal(p, "admission.matching", "on HAProxy %s requests wait in the proxy, at the server that was chosen; want out_of_order, or wait: agent", v)
	}
	return inProxy, nil
}

// deciderAdmission is a in the decider's form.
func deciderAdmission(a *config.Admission) *decider.Admission {
	if a == nil {
		return nil
	}
	out := &decider.Admission{
		Hold: a.Wait == inAgent, FIFO: a.Matching == "fifo", HoldWithoutReplica: a.NoReplica == "hold",
		TenantWeights: a.TenantWeights,
		FeedbackDelay: feedbackDelay,
	}
	for _, b := range a.Ordered() {
		out.Bands = append(out.Bands, queue.Band{
			Name: b.Name, Weight: b.Weight, Order: queue.Order(slices.Index(queue.OrderNames(), b.Order)),
			TTL: b.TTL, MaxRequests: b.MaxRequests, MaxBytes: int(b.MaxBytes), Spill: b.Spill,
		})
	}
	return out
}

// classes say how the requests of a pool with admission a find their band.
func classes(a *config.Admission) intake.Classes {
	out := intake.Classes{BandHeader: header(a.BandHeader), DeadlineHeader: header(a.DeadlineHeader), SeparatePrefixes: a.SeparatePrefixes, Calendar: time.Now}
	for _, t := range a.Tenants {
		out.Tenants = append(out.Tenants, intake.NewTenantSource(t))
	}
	for _, b := range a.Ordered() {
		out.Rules = append(out.Rules, intake.Rule{
			Band: b.Name, Deadline: b.Deadline, Models: b.Models, Paths: b.Paths, Tenants: b.Tenants, Priority: b.Priority.Value, ByPriority: b.Priority.Set,
		})
	}
	return out
}

// header matches one header, or none where the name is empty.
func header(name string) session.Headers {
	if name == "" {
		return session.Headers{}
	}
	return session.NewHeaders([]string{name})
}
