package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/bytedance/sonic"

	"pointsman/sim"
	"pointsman/sim/replay"
)

// The bands of the scenario.
const (
	chatBand  = "chat"
	batchBand = "batch"
)

// demoBands is the admission of the second run.
var demoBands = "{wait: agent, band_header: x-band, bands: {" + chatBand + ": {ttl: " + demoHold.String() + "}, " + batchBand + ": {ttl: " + demoHold.String() + "}}}"

// priorityResult is the object that --json prints for the scenario.
type priorityResult struct {
	Scenario string        `json:"scenario"`
	Proxy    string        `json:"proxy"`
	Version  string        `json:"version"`
	Policy   string        `json:"policy"`
	Requests int           `json:"requests"`
	Runs     []priorityRun `json:"runs"`
}

// priorityRun is the workload without bands, or with them.
type priorityRun struct {
	Bands  bool                   `json:"bands"`
	Served int                    `json:"served"`
	Failed int                    `json:"failed"`
	TTFT   map[string]percentiles `json:"ttft_ms"` // by band

	errors []string
}

// priorities plays chat and batch on two stages, without bands and with them.
func (c *demoCmd) priorities(policies []simulatedPolicy) error {
	if len(policies) != 1 || policies[0].late {
		return fmt.Errorf("the scenario compares one policy without and with bands; want one that does not hold requests by itself")
	}
	calls, err := newPriorities(c.Seed, c.Requests)
	if err != nil {
		return err
	}
	trace, err := traceOf(calls)
	if err != nil {
		return err
	}
	most, err := replay.Saturation(trace, replay.Setup{Replicas: c.Replicas, Profile: sim.Profile70B.Scale(c.Speed), CacheTokens: c.CacheTokens})
	if err != nil {
		return err
	}
	pace(calls, c.Load*most)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	say := os.Stdout
	if c.JSON {
		say = os.Stderr
	}
	fmt.Fprintf(say, "%d requests at %.1f/s, one in ten a long batch prompt, for %d fake replicas, %g times as fast as a 70B model\n",
		c.Requests, c.Load*most, c.Replicas, c.Speed)
	r := &priorityResult{Scenario: c.Scenario, Proxy: c.Proxy, Policy: policies[0].name, Requests: c.Requests}
	failed := 0
	for _, admission := range []string{"", demoBands} {
		stage, l, err := c.run(ctx, say, policies[0], admission, calls)
		if err != nil {
			return err
		}
		r.Version = stage.proxy.version
		stage.close()
		run := priorityRun{Bands: admission != "", Served: l.served, Failed: l.failed, TTFT: map[string]percentiles{}, errors: l.errors}
		for band, ttft := range l.byBand {
			run.TTFT[band] = percentilesOf(ttft)
		}
		r.Runs = append(r.Runs, run)
		failed += l.failed
	}
	if c.JSON {
		b, err := sonic.ConfigStd.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		fmt.Println(string(b))
	} else {
		r.print(os.Stdout)
	}
	if failed > 0 {
		return fmt.Errorf("%d requests failed", failed)
	}
	return nil
}

// newPriorities makes n streamed requests: nine in ten are short ones of a
// chat, the others batch prompts of some 10,000 to 20,000 tokens.
func newPriorities(seed uint64, n int) ([]call, error) {
	chance := rand.New(rand.NewPCG(seed, 1))
	calls := make([]call, n)
	at := time.Duration(0)
	for i := range calls {
		c := call{
			at: at, path: "/v1/chat/completions", session: fmt.Sprintf("demo-%d", i),
			output: 8 + chance.IntN(56), stream: true, band: chatBand,
		}
		length := 40 + chance.IntN(300)
		if chance.IntN(10) == 0 {
			c.band, length = batchBand, 8000+chance.IntN(8000)
		}
		var err error
		if c.body, err = sonic.ConfigStd.Marshal(map[string]any{
			"model": "demo", "max_tokens": c.output, "ignore_eos": true, "stream": true,
			"messages": []message{{"user", words(chance, length)}},
		}); err != nil {
			return nil, err
		}
		calls[i] = c
		at += time.Duration(chance.ExpFloat64() * float64(time.Second))
	}
	return calls, nil
}

func (r *priorityResult) print(w io.Writer) {
	fmt.Fprintf(w, "\nTime to first token through %s %s, policy %s, milliseconds:\n", r.Proxy, r.Version, r.Policy)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tchat p50\tp90\tp99\tbatch p50\tp90\tp99\tserved\tfailed\t")
	for _, run := range r.Runs {
		name := "without bands"
		if run.Bands {
			name = "with bands"
		}
		a, b := run.TTFT[chatBand], run.TTFT[batchBand]
		fmt.Fprintf(t, "%s\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%d\t%d\t\n", name, a.P50, a.P90, a.P99, b.P50, b.P90, b.P99, run.Served, run.Failed)
	}
	t.Flush()
	for _, run := range r.Runs {
		for _, e := range run.errors {
			fmt.Fprintln(w, "  ", e)
		}
	}
}
