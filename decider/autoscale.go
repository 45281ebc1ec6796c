package decider

import (
	"math"
	"time"
)

// Autoscale is the input of an autoscaler: a pool's load and what it needs.
type Autoscale struct {
	Pool     string `json:"pool"`
	Replicas int    `json:"replicas"` // that take requests
	// Demand is the prefill cost that arrived in the last minute, and Capacity
	// what the replicas can compute, both in tokens/s.
	Demand   float64 `json:"demand_tokens_per_s"`
	Capacity float64 `json:"capacity_tokens_per_s"`
	// Requests that wait for their first token, held or on a replica: their
	// number, their tokens, and how long the replicas need for them.
	QueueRequests int     `json:"queue_requests"`
	QueueTokens   int     `json:"queue_tokens"`
	QueueSeconds  float64 `json:"queue_s"`
	KVUsage       float64 `json:"kv_usage"` // mean of the replicas, 0 to 1
	// Saturation is 1 when the replicas are as busy as they should ever be. It is
	// the largest of demand over three quarters of capacity, KVUsage over 0.85,
	// and QueueSeconds over 5.
	Saturation float64 `json:"saturation"`
	// Recommended is how many replicas there should be; 0 if there was no request
	// in the last ten minutes.
	Recommended int `json:"recommended_replicas"`
}

// How much of a replica should be used, and how long an idle pool is kept.
const (
	scaleDemand = 0.75
	scaleUsage  = 0.85
	scaleQueue  = 5.0 // seconds
	scaleIdle   = 10 * time.Minute
	// scaleMost bounds the step that is recommended at a time.
	scaleMost = 2
)

// Autoscale returns how loaded the pool is, and how many replicas it needs.
func (p *Pool) Autoscale() Autoscale {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	p.view.Now = now
	a := Autoscale{Pool: p.name, Demand: p.load.demand.rate(now)}
	work := 0.0
	for i, r := range p.replicas {
		if !r.open() {
			continue
		}
		a.Replicas++
		a.Capacity += p.load.speedOf(r)
		work += p.load.backlog(r, now)
		a.QueueRequests += r.prefill.n
		a.QueueTokens += r.prefill.uncached
		a.KVUsage += p.view.KVUsage(i)
	}
	if s := p.admission.status(now); s != nil {
		for _, b := range s.Bands {
			a.QueueRequests += b.Queued
			a.QueueTokens += b.Tokens
			work += float64(b.Tokens)
		}
	}
	if a.Replicas > 0 {
		a.KVUsage /= float64(a.Replicas)
		a.QueueSeconds = work / a.Capacity
		a.Saturation = max(a.Demand/(scaleDemand*a.Capacity), a.KVUsage/scaleUsage, a.QueueSeconds/scaleQueue)
	}
	n := float64(a.Replicas)
	switch busy := p.account.len() > 0 || a.QueueRequests > 0; {
	case !busy && (!p.load.demand.some || now-p.load.demand.at > scaleIdle):
	case a.Replicas == 0:
		a.Recommended = 1
	default:
		a.Recommended = max(1, int(math.Ceil(min(n*a.Saturation, scaleMost*n)-1e-9)))
	}
	return a
}
