package demo

import (
	"context"
)

// Result is the object that --json prints.
type Result struct {
	Proxy         string                 `json:"proxy"`
	Version       string                 `json:"version"`
	Policy        string                 `json:"policy"`
	Requests      int                    `json:"requests"`
	Served        int                    `json:"served"`
	Failed        int                    `json:"failed"`
	Decided       uint64                 `json:"decided"`
	FellOpen      uint64                 `json:"fell_open"`
	Outcomes      map[string]uint64      `json:"outcomes"`
	InFlightAfter int                    `json:"in_flight_after"`
	TTFT          Percentiles            `json:"ttft_ms"`
	HitRate       float64                `json:"hit_rate"`
	Expected      float64                `json:"hit_rate_expected"` // by the agent, when it decided
	PerReplica    map[string]ReplicaLoad `json:"per_replica"`
	Predicted     Prediction             `json:"predicted"`

	errors []string
}

// Percentiles are in milliseconds.
type Percentiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
}

// ReplicaLoad is what one replica served.
type ReplicaLoad struct {
	Requests     uint64  `json:"requests"`
	PromptTokens uint64  `json:"prompt_tokens"`
	HitRate      float64 `json:"hit_rate"`
}

// Prediction is what the simulator says of the same workload.
type Prediction struct {
	TTFT    Percentiles `json:"ttft_ms"`
	HitRate float64     `json:"hit_rate"`
}

// result collects what the clients, the agent and the replicas saw.
func (o *Options) result(ctx context.Context, s *stage, policy string, t *traffic) (*Result, error) {
	pool, err := s.settled(ctx)
	if err != nil {
		return nil, err
	}
	r := &Result{
		Proxy: o.Proxy, Version: s.versions(), Policy: policy, Requests: o.Requests,
		Served: t.served, Failed: t.failed, Decided: sumChosen(pool.Replicas), FellOpen: pool.FellOpen,
		Outcomes: pool.Outcomes, InFlightAfter: pool.Reservations,
		TTFT: percentilesOf(t.ttft), PerReplica: map[string]ReplicaLoad{}, errors: t.errors,
	}
	var hits, queries float64
	for i, rep := range pool.Replicas {
		page, err := fetch(ctx, s.engines[i]+"/metrics")
		if err != nil {
			return nil, err
		}
		h := metric(page, "vllm:prefix_cache_hits_total")
		q := metric(page, "vllm:prefix_cache_queries_total")
		hits, queries = hits+h, queries+q
		r.PerReplica[rep.Name] = ReplicaLoad{rep.Served, uint64(metric(page, "vllm:prompt_tokens_total")), ratio(h, q)}
	}
	r.HitRate = ratio(hits, queries)
	r.Expected = ratio(float64(pool.CachedTokens), float64(pool.PromptTokens))
	return r, nil
}
