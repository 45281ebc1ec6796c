package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// The bands of the scenario.
const (
	chatBand  = "chat"
	batchBand = "batch"
)

// bandsFlow is the admission of the second run.
var bandsFlow = "{wait: agent, band_header: x-band, bands: {" + chatBand + ": {ttl: " + longestHold.String() + "}, " + batchBand + ": {ttl: " + longestHold.String() + "}}}"

// PriorityResult is the object that --json prints for the scenario.
type PriorityResult struct {
	Scenario string        `json:"scenario"`
	Proxy    string        `json:"proxy"`
	Version  string        `json:"version"`
	Policy   string        `json:"policy"`
	Requests int           `json:"requests"`
	Runs     []PriorityRun `json:"runs"`
}

// PriorityRun is the workload without bands, or with them.
type PriorityRun struct {
	Bands  bool                   `json:"bands"`
	Served int                    `json:"served"`
	Failed int                    `json:"failed"`
	TTFT   map[string]Percentiles `json:"ttft_ms"` // by band

	errors []string
}

// priorities plays chat and batch on two stages, without bands and with them.
func (o *Options) priorities(ctx context.Context) error {
	calls, err := newPriorities(o.Seed, o.Requests)
	if err != nil {
		return err
	}
	_, rate, err := o.paced(calls)
	if err != nil {
		return err
	}
	fmt.Fprintf(o.progress(), "%d requests at %.1f/s, one in ten a long batch prompt, for %d fake replicas, %g times as fast as a 70B model\n",
		o.Requests, rate, o.Replicas, o.Speed)
	r := &PriorityResult{Scenario: o.Scenario, Proxy: o.Proxy, Policy: o.Policies[0].Name, Requests: o.Requests}
	failed := 0
	for _, admission := range []string{"", bandsFlow} {
		stage, t, err := o.play(ctx, o.Policies[0], admission, calls)
		if err != nil {
			return err
		}
		r.Version = stage.versions()
		stage.close()
		r.Runs = append(r.Runs, priorityRunOf(t, admission != ""))
		failed += t.failed
	}
	if o.JSON {
		err = printJSON(r)
	} else {
		r.print(os.Stdout)
	}
	return errors.Join(err, failures(failed))
}

// priorityRunOf is the result of one run.
func priorityRunOf(t *traffic, bands bool) PriorityRun {
	run := PriorityRun{Bands: bands, Served: t.served, Failed: t.failed, TTFT: map[string]Percentiles{}, errors: t.errors}
	for band, ttft := range t.byBand {
		run.TTFT[band] = percentilesOf(ttft)
	}
	return run
}
