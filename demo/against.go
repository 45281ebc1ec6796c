package demo

import (
	"context"
	"errors"
)

// Seen is what the clients of a workload saw, and how much of it the caches held.
type Seen struct {
	Rate           float64 // requests/s
	Served, Failed int
	TTFT           Percentiles
	HitRate        float64
	Error          string // of the first that failed
}

// Against plays the conversations of o at what somebody else has started: a router at
// url before o.Replicas replicas at the URLs of engines. Of o it takes what describes
// the workload and the replicas.
func Against(ctx context.Context, o Options, url string, engines []string) (*Seen, error) {
	if o.Requests < 10 || len(engines) != o.Replicas {
		return nil, errors.New("want at least 10 requests, and a URL for each replica")
	}
	calls, err := newWorkload(o.Seed, o.Requests)
	if err != nil {
		return nil, err
	}
	_, rate, err := o.paced(calls)
	if err != nil {
		return nil, err
	}
	t := newTraffic(calls, url)
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	t.run(ctx)
	s := &Seen{Rate: rate, Served: t.served, Failed: t.failed, TTFT: percentilesOf(t.ttft)}
	if len(t.errors) > 0 {
		s.Error = t.errors[0]
	}
	var hits, queries float64
	for _, e := range engines {
		page, err := fetch(ctx, e+"/metrics")
		if err != nil {
			return nil, err
		}
		hits += metric(page, "vllm:prefix_cache_hits_total")
		queries += metric(page, "vllm:prefix_cache_queries_total")
	}
	s.HitRate = ratio(hits, queries)
	return s, nil
}
