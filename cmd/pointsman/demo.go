package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/bytedance/sonic"

	"pointsman/sim"
	"pointsman/sim/replay"
)

type demoCmd struct {
	Proxy       string   `default:"haproxy" enum:"haproxy,nginx" help:"The proxy: haproxy or nginx (${default})."`
	HAProxy     string   `name:"haproxy" default:"haproxy" help:"Command that runs HAProxy, with its arguments separated by spaces (${default})."`
	Nginx       string   `name:"nginx" default:"nginx" help:"Command that runs nginx, likewise (${default})."`
	Scenario    string   `default:"mixed" enum:"mixed,priorities" help:"mixed: conversations. priorities: chat and batch together, without and with bands (${default})."`
	Policy      []string `default:"${default_policy}" sep:"none" help:"Routing policies, separated by commas, each tried on a fresh stage; with options as name:option=value (${default})."`
	Requests    int      `default:"1500" help:"Requests to send (${default})."`
	Replicas    int      `default:"4" help:"Fake replicas to start (${default})."`
	Load        float64  `default:"0.8" help:"Rate, in multiples of what round robin could bear (${default})."`
	Speed       float64  `default:"4" help:"How many times faster than a 70B model the fake replicas are (${default})."`
	CacheTokens int      `default:"40000" help:"KV cache of each replica in tokens (${default})."`
	Seed        uint64   `default:"1" help:"Seed of the workload (${default})."`
	JSON        bool     `help:"Print the result as JSON, an object for each policy; progress goes to standard error."`
}

// demoResult is the object that --json prints.
type demoResult struct {
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
	TTFT          percentiles            `json:"ttft_ms"`
	HitRate       float64                `json:"hit_rate"`
	Expected      float64                `json:"hit_rate_expected"` // by the agent, when it decided
	PerReplica    map[string]replicaLoad `json:"per_replica"`
	Predicted     prediction             `json:"predicted"`

	errors []string
}

// percentiles are in milliseconds.
type percentiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
}

type replicaLoad struct {
	Requests     uint64  `json:"requests"`
	PromptTokens uint64  `json:"prompt_tokens"`
	HitRate      float64 `json:"hit_rate"`
}

// prediction is what the simulator says of the same workload.
type prediction struct {
	TTFT    percentiles `json:"ttft_ms"`
	HitRate float64     `json:"hit_rate"`
}

func (c *demoCmd) Run() error {
	if c.Requests < 10 || c.Replicas < 1 || c.Replicas > 64 || !(c.Load > 0 && c.Load <= 2) || !(c.Speed > 0) {
		return errors.New("want at least 10 requests, 1 to 64 replicas, a load up to 2 and a speed above 0")
	}
	policies, err := parsePolicies(c.Policy)
	if err != nil {
		return err
	}
	if c.Scenario == "priorities" {
		return c.priorities(policies)
	}
	calls, err := newWorkload(c.Seed, c.Requests)
	if err != nil {
		return err
	}
	trace, err := traceOf(calls)
	if err != nil {
		return err
	}
	setup := replay.Setup{Replicas: c.Replicas, Profile: sim.Profile70B.Scale(c.Speed), CacheTokens: c.CacheTokens}
	most, err := replay.Saturation(trace, setup)
	if err != nil {
		return err
	}
	rate := c.Load * most
	pace(calls, rate)

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	say := os.Stdout
	if c.JSON {
		say = os.Stderr
	}
	fmt.Fprintf(say, "%d requests at %.0f/s for %d fake replicas, %g times as fast as a 70B model\n", c.Requests, rate, c.Replicas, c.Speed)
	var results []*demoResult
	failed := 0
	for _, p := range policies {
		r, err := c.play(ctx, say, p, calls)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		predicted, err := replay.Run(trace, replay.Options{Setup: setup, Rate: rate, Seed: c.Seed, Policy: p.make, PolicyName: p.name, Admission: p.admission(), MirrorScale: 1})
		if err != nil {
			return err
		}
		r.Predicted = prediction{percentilesOf(predicted.TTFT), predicted.HitRate}
		results = append(results, r)
		failed += r.Failed
	}
	if c.JSON {
		for _, r := range results {
			b, err := sonic.ConfigStd.MarshalIndent(r, "", "  ")
			if err != nil {
				return err
			}
			fmt.Println(string(b))
		}
	} else {
		printDemo(os.Stdout, results)
	}
	if failed > 0 {
		return fmt.Errorf("%d requests failed", failed)
	}
	return nil
}

// play plays the workload on a stage of its own.
func (c *demoCmd) play(ctx context.Context, say *os.File, policy simulatedPolicy, calls []call) (*demoResult, error) {
	stage, l, err := c.run(ctx, say, policy, "", calls)
	if err != nil {
		return nil, err
	}
	defer stage.close()
	return c.result(ctx, stage, policy.name, l)
}

// run plays the workload on a fresh stage, which the caller closes. admission is
// the pool's in the configuration's flow form, empty for none.
func (c *demoCmd) run(ctx context.Context, say *os.File, policy simulatedPolicy, admission string, calls []call) (*stage, *traffic, error) {
	flow, err := flowPolicy(policy.name)
	if err != nil {
		return nil, nil, err
	}
	stage, err := c.build(ctx, flow, admission, policy.late)
	if err != nil {
		return nil, nil, err
	}
	fmt.Fprintf(say, "%s %s on %s, policy %s\n", stage.proxy.title, stage.proxy.version, stage.url, policy.name)
	l := newTraffic(calls, stage.url)
	runCtx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	done := make(chan struct{})
	go func() { l.run(runCtx); close(done) }()
	showProgress(say, l, done)
	if ctx.Err() != nil {
		stage.close()
		return nil, nil, errors.New("interrupted")
	}
	return stage, l, nil
}

// result gathers what the clients, the agent and the replicas saw.
func (c *demoCmd) result(ctx context.Context, s *stage, policy string, l *traffic) (*demoResult, error) {
	st, err := s.settled(ctx)
	if err != nil {
		return nil, err
	}
	pool := st.Pools[0]
	r := &demoResult{
		Proxy: c.Proxy, Version: s.proxy.version, Policy: policy, Requests: c.Requests,
		Served: l.served, Failed: l.failed, Decided: sumChosen(pool.Replicas), FellOpen: pool.FellOpen,
		Outcomes: pool.Outcomes, InFlightAfter: pool.Reservations,
		TTFT: percentilesOf(l.ttft), PerReplica: map[string]replicaLoad{}, errors: l.errors,
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
		r.PerReplica[rep.Name] = replicaLoad{rep.Served, uint64(metric(page, "vllm:prompt_tokens_total")), ratio(h, q)}
	}
	r.HitRate = ratio(hits, queries)
	r.Expected = ratio(float64(pool.CachedTokens), float64(pool.PromptTokens))
	return r, nil
}
