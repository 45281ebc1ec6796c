package replay

import (
	"errors"
	"pointsman/sim"
	"pointsman/sim/trace"
)

// Saturation is the rate in requests/s at which round robin saturates the
// setup: what the replicas take together while none of them runs out of
// waiting requests. All requests of the trace are sent at once, in turn to the
// replicas, and each replica's count of requests is divided by the time until
// the last of them has its first token. (Beyond that it only decodes what is
// left, which is not the work of a full replica.) Above this rate the queues
// grow for as long as requests come.
func Saturation(t *trace.Trace, s Setup) (float64, error) {
	if err := s.Validate(); err != nil {
		return 0, err
	}
	fleet, err := s.engines(t.BlockTokens)
	if err != nil {
		return 0, err
	}
	counts := make([]int, len(fleet))
	for i := range t.Requests {
		c, k := &t.Requests[i], i%len(fleet)
		j := &sim.Job{Blocks: c.Blocks, Input: c.Input, Output: c.Output}
		if fleet[k].Submit(0, j) == nil {
			counts[k]++
		}
	}
	rate := 0.0
	for k, e := range fleet {
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
