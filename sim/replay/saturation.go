package replay

import (
	"errors"

	"pointsman/sim"
	"pointsman/sim/trace"
)

// Saturation returns the rate in requests/s at which round robin saturates the
// setup: the total throughput while no replica runs out of waiting requests.
// All requests of the trace are submitted at once, to the replicas in turn. Each
// replica's rate is its number of requests over the time until the last of them
// has its first token; the time after that is excluded, because then the replica
// only decodes and is not fully loaded. Above the returned rate, queues grow for
// as long as requests arrive.
func Saturation(t *trace.Trace, s Setup) (float64, error) {
	if err := s.Validate(); err != nil {
		return 0, err
	}
	engines, err := s.engines(t.BlockTokens)
	if err != nil {
		return 0, err
	}
	counts := make([]int, len(engines))
	for i := range t.Requests {
		r, k := &t.Requests[i], i%len(engines)
		j := &sim.Job{Blocks: r.Blocks, Input: r.Input, Output: r.Output}
		if engines[k].Submit(0, j) == nil {
			counts[k]++
		}
	}
	rate := 0.0
	for k, e := range engines {
		for left := counts[k]; left > 0; {
			at, _ := e.Next()
			for _, ev := range e.Step(at) {
				if ev.Kind != sim.FirstToken {
					continue
				}
				if left--; left == 0 {
					rate += float64(counts[k]) / at.Seconds()
				}
			}
		}
	}
	if rate == 0 {
		return 0, errors.New("no request of the trace fits into a replica's cache")
	}
	return rate, nil
}
