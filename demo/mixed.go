package demo

import (
	"context"
	"fmt"
	"os"

	"pointsman/sim/replay"
	"pointsman/sim/trace"
)

// mixed plays conversations, or those of agents, for each policy on a stage of its own.
func (o *Options) mixed(ctx context.Context) error {
	workload := newWorkload
	if o.Scenario == Agents {
		workload = newAgents
	}
	calls, err := workload(o.Seed, o.Requests)
	if err != nil {
		return err
	}
	t, rate, err := o.paced(calls)
	if err != nil {
		return err
	}
	fmt.Fprintf(o.progress(), "%d requests at %.0f/s for %d fake replicas, %g times as fast as a 70B model\n", o.Requests, rate, o.Replicas, o.Speed)
	var results []*Result
	failed := 0
	for _, p := range o.Policies {
		r, err := o.measure(ctx, p, calls)
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		if r.Predicted, err = o.predict(p, t, rate); err != nil {
			return err
		}
		results = append(results, r)
		failed += r.Failed
	}
	if !o.JSON {
		printResults(os.Stdout, results)
		return failures(failed)
	}
	for _, r := range results {
		if err := printJSON(r); err != nil {
			return err
		}
	}
	return failures(failed)
}

// measure plays the calls with one policy.
func (o *Options) measure(ctx context.Context, p replay.Policy, calls []call) (*Result, error) {
	stage, t, err := o.play(ctx, p, "", calls)
	if err != nil {
		return nil, err
	}
	defer stage.close()
	return o.result(ctx, stage, p.Name, t)
}

// predict has the simulator play the same workload.
func (o *Options) predict(p replay.Policy, t *trace.Trace, rate float64) (Prediction, error) {
	r, err := replay.Run(t, replay.Options{
		Setup: o.setup(), Rate: rate, Seed: o.Seed, Policy: p.New, PolicyName: p.Name, Admission: p.Admission(false), CacheScale: 1,
	})
	if err != nil {
		return Prediction{}, err
	}
	return Prediction{percentilesOf(r.TTFT), r.HitRate}, nil
}
