// Package demo plays a workload against a real proxy with rendered
// configuration, fake replicas and the agent, each a process of its own, and
// reports what happened.
package demo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/bytedance/sonic"

	"pointsman/config"
	"pointsman/misuse"
	"pointsman/sim"
	"pointsman/sim/replay"
	"pointsman/sim/trace"
)

// The proxies, and the scenarios.
const (
	HAProxy = "haproxy"
	Nginx   = "nginx"

	Mixed      = "mixed"      // conversations, once for each policy
	Agents     = "agents"     // coding agents by three APIs, once for each policy
	Priorities = "priorities" // chat and batch together, without and with bands
)

// Options say what is played, and where.
type Options struct {
	Self     string          // path of the pointsman that runs the agent and the replicas
	Proxy    string          // HAProxy or Nginx, or both with a comma between them
	Commands [][]string      // run the proxies, in that order
	Scenario string          // Mixed, Agents or Priorities
	Policies []replay.Policy // each is played on a fresh stage

	Requests    int
	Replicas    int
	Agents      int     // each with a proxy of its own; 0 = 1
	NATS        string  // URL of a server by which the agents share; "" = one inside each
	Proxies     int     // if there are more than agents, these have several
	Load        float64 // rate, in multiples of what round robin can bear
	Speed       float64 // of the replicas, in multiples of a 70B model's
	CacheTokens int     // KV cache of a replica
	Seed        uint64

	JSON bool // print results as JSON, progress to standard error
}

// most is the longest that one workload may take.
const most = 10 * time.Minute

// Run plays the scenario and prints the results to standard output. It fails
// when any request does.
func Run(ctx context.Context, o Options) error {
	if err := o.validate(); err != nil {
		return misuse.Of(err)
	}
	o.Agents = max(o.Agents, 1)
	if o.Scenario == Priorities {
		return o.priorities(ctx)
	}
	return o.mixed(ctx)
}

// validate returns an error that says why the options are unusable.
func (o *Options) validate() error {
	if o.Requests < 10 || o.Replicas < 1 || o.Replicas > 64 || !(o.Load > 0 && o.Load <= 2) || !(o.Speed > 0) || math.IsInf(o.Speed, 0) {
		return errors.New("want at least 10 requests, 1 to 64 replicas, a load up to 2 and a speed above 0")
	}
	if o.Agents < 0 || o.Agents > 16 || o.Proxies < 0 || o.Proxies > 16 {
		return errors.New("want 1 to 16 agents, and at most 16 proxies")
	}
	if o.Proxy == "" {
		return errors.New("--proxy is empty")
	}
	names := strings.Split(o.Proxy, ",")
	for i, name := range names {
		if len(o.Commands) <= i || len(o.Commands[i]) == 0 {
			return fmt.Errorf("--%s is empty", name)
		}
	}
	if len(names) > max(o.Agents, 1) {
		return fmt.Errorf("%d kinds of proxies need an agent each: --agents %d", len(names), len(names))
	}
	if o.NATS != "" {
		if err := config.CheckNATS(o.NATS); err != nil {
			return fmt.Errorf("--nats: %w", err)
		}
	}
	if o.Scenario == Priorities && (len(o.Policies) != 1 || o.Policies[0].Late) {
		return errors.New("the scenario compares one policy without and with bands; want one that does not hold requests by itself")
	}
	return nil
}

// progress is where progress is shown.
func (o *Options) progress() *os.File {
	if o.JSON {
		return os.Stderr
	}
	return os.Stdout
}

// setup is the stage as the simulator sees it.
func (o *Options) setup() replay.Setup {
	return replay.Setup{Replicas: o.Replicas, Profile: sim.Profile70B.Scale(o.Speed), CacheTokens: o.CacheTokens}
}

// paced brings the calls to the rate of the load, and returns them as a trace as
// well. The trace keeps its own times: a replay has a rate of its own.
func (o *Options) paced(calls []call) (*trace.Trace, float64, error) {
	t, err := traceOf(calls)
	if err != nil {
		return nil, 0, err
	}
	saturation, err := replay.Saturation(t, o.setup())
	if err != nil {
		return nil, 0, misuse.Of(err)
	}
	rate := o.Load * saturation
	pace(calls, rate)
	return t, rate, nil
}

// play plays the calls on a fresh stage, which the caller closes. admission is
// the pool's in the configuration's flow form, empty for none.
func (o *Options) play(ctx context.Context, policy replay.Policy, admission string, calls []call) (*stage, *traffic, error) {
	stage, err := o.build(ctx, policy, admission)
	if err != nil {
		return nil, nil, err
	}
	fmt.Fprintf(o.progress(), "%s on %s, policy %s\n", stage.titles(), strings.Join(stage.urls, ", "), policy.Name)
	t := newTraffic(calls, stage.urls...)
	runCtx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	done := make(chan struct{})
	go func() { t.run(runCtx); close(done) }()
	showProgress(o.progress(), t, done)
	if ctx.Err() != nil {
		stage.close()
		return nil, nil, errors.New("interrupted")
	}
	return stage, t, nil
}

// printJSON prints a value, indented.
func printJSON(v any) error {
	b, err := sonic.ConfigStd.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	fmt.Println(string(b))
	return nil
}

// failures is the error of n failed requests.
func failures(n int) error {
	if n == 0 {
		return nil
	}
	if n == 1 {
		return errors.New("1 request failed")
	}
	return fmt.Errorf("%d requests failed", n)
}
