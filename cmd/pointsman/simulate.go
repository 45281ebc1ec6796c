package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"pointsman/misuse"
	"pointsman/sim"
	"pointsman/sim/plot"
	"pointsman/sim/replay"
	"pointsman/sim/trace"
	"pointsman/sim/workload"
)

type simulateCmd struct {
	Trace            string   `help:"Requests to replay: a recording of pointsman record, JSON lines with Mooncake's lengths and block ids or with requests' bodies, a log of LiteLLM or vLLM; also compressed by gzip."`
	Pool             string   `help:"Pool of a recording, if it has several."`
	Workload         string   `help:"Built-in traffic to replay instead of a trace: ${workloads}."`
	Replicas         *int     `help:"Replicas (8, or as many as were recorded)."`
	CacheTokens      *int     `help:"KV cache of a replica in tokens (500000, or as recorded)."`
	CPUCacheTokens   int      `name:"cpu-cache-tokens" help:"Tokens that the memory of each host keeps of what leaves the KV cache, to be copied back (none)."`
	CPUTransferSpeed float64  `name:"cpu-transfer-speed" default:"100000" help:"Tokens copied back a second (${default})."`
	Profile          string   `default:"70b" help:"Speed of a replica: 70b, 8b, or one of them with other numbers, such as 70b:prefill_rate=8000,chunk=2048 (${default})."`
	Load             *float64 `help:"Rate in multiples of the one at which round robin saturates this setup (0.85 for a workload; a trace has its own rate)."`
	Rate             float64  `help:"Rate in requests/s; overrides --load."`
	Policy           []string `sep:"none" help:"Policies, separated by commas, with options: session:load_bound=1.25 or, as in the configuration, {name: session, load_bound: 1.25}. Besides, shared_cache is one cache and one queue for all replicas, and lower_bound what no policy can beat (${default_policy}; for a recording, some that may suit it)."`
	Seed             uint64   `default:"1" help:"First seed (${default})."`
	Seeds            int      `default:"1" help:"Number of seeds; figures are means over them (${default})."`
	Baseline         string   `help:"Policy that the others are compared with; none for no comparison (round_robin, or the recorded one)."`
	SLO              string   `default:"ttft=2s,tpot=50ms" help:"What goodput counts: the longest time to the first token, and between the others on average (${default})."`
	MaxTokens        string   `help:"max_tokens of all requests, such as 32k, in place of the trace's."`
	Shed             bool     `help:"Requests that wait in the agent are refused as in production, after the time to live or where too many wait."`
	JSON             bool     `help:"Print one JSON object per policy, one on each line."`

	Plot string `help:"Plot times to first token and load over time, of the first seed, to this .svg or .png file."`

	FeedbackDelay time.Duration `help:"Delay of the proxy's reports to the agent."`
	NoFirstToken  bool          `help:"The agent learns of first tokens only when requests end."`
	Metrics       time.Duration `default:"50ms" help:"Interval at which the agent scrapes the engines' queue and cache gauges; 0s disables it (${default})."`
	Poll          time.Duration `help:"The agent learns of first tokens by polling the engines' counters at this interval."`
	VisibleChars  int           `help:"Characters of a request that the agent sees; it always knows the length. 0 means all."`
	Prefill       string        `help:"Numbers of replicas that only compute prompts, such as 1,2,4: is that worth it? Each policy is replayed with each of them too, and the others as decode replicas."`
	Transfer      string        `default:"10GB/s" help:"With --prefill: speed at which a replica sends KV caches, such as 100Gbit/s (${default})."`
	RouterQueue   string        `help:"Each kv_cost policy is replayed with the queue of Dynamo's router too: requests wait while all replicas have more tokens to compute than so many steps, such as 16, or 16,wspt for the shortest first (fcfs)."`
	Agents        int           `default:"1" help:"Agents that decide in turn (${default})."`
	Share         time.Duration `help:"Agents apply each other's reservations and outcomes after this delay, such as 5ms; 0s means that they share nothing."`
	Partition     string        `help:"Agents that share get no messages from each other for a while, such as 30s@600s: for 30 s, from 600 s on."`
	Event         []string      `help:"What happens in mid-run: slow@1500s:r3:0.33, leave@600s:r3, join@600s:r3, feedback-lost=5s/60s or foreign=0.3. May be repeated."`
	SpeedMix      []float64     `help:"Speeds of the replicas in multiples of the profile's, in turn: with 1,0.5 every other replica is half as fast."`
	Fail          []string      `help:"Replica that dies, such as 60s@3: the time since the first request, and the replica, counted from 0."`
	MirrorScale   float64       `default:"1" help:"Cache size that the agent assumes, in multiples of the real one (${default})."`
	TokenNoise    float64       `help:"Largest relative error of the agent's token counts, such as 0.2."`
}

func (c *simulateCmd) Run() error { return c.run(os.Stdout) }

func (c *simulateCmd) run(w io.Writer) error {
	if c.Plot != "" {
		if err := plot.CheckPath(c.Plot); err != nil {
			return misuse.Of(err)
		}
	}
	if _, err := c.experiment(&trace.Trace{}); err != nil {
		return misuse.Of(err) // before the trace is read, which may take a while
	}
	t, err := c.requests()
	if err != nil {
		return err
	}
	e, err := c.experiment(t)
	if err != nil {
		return misuse.Of(err)
	}
	for _, n := range t.Notes {
		fmt.Fprintln(os.Stderr, n)
	}
	results, err := e.Run(t, os.Stderr)
	if err != nil {
		return misuse.Of(err) // it reads nothing: what it refuses are the flags, with this trace
	}
	if c.Plot != "" {
		chart := plot.New(c.traffic(), results)
		if err := chart.WriteFile(c.Plot); err != nil {
			return err
		}
	}
	if c.JSON {
		return results.WriteJSON(w)
	}
	return results.WriteTable(w)
}

// traffic names what is replayed.
func (c *simulateCmd) traffic() string {
	if c.Workload != "" {
		return c.Workload
	}
	return strings.TrimSuffix(filepath.Base(c.Trace), filepath.Ext(c.Trace))
}

// requests reads the trace or generates the workload.
func (c *simulateCmd) requests() (*trace.Trace, error) {
	if (c.Trace == "") == (c.Workload == "") {
		return nil, misuse.Errorf("want one of --trace and --workload")
	}
	if c.Trace != "" {
		return trace.ReadFile(c.Trace, trace.Options{VisibleChars: c.VisibleChars, Pool: c.Pool})
	}
	t, err := workload.New(c.Workload, c.Seed)
	if err != nil {
		return nil, misuse.Errorf("--%w", err)
	}
	t.Truncate(c.VisibleChars)
	return t, nil
}

// experiment converts the flags, and what they leave open, to an experiment with t.
func (c *simulateCmd) experiment(t *trace.Trace) (*replay.Experiment, error) {
	if c.VisibleChars < 0 {
		return nil, fmt.Errorf("--visible-chars: %d, want 0 or more", c.VisibleChars)
	}
	d := c.defaults(t)
	policies, err := replay.ParsePolicies(policies, d.policies, replay.SharedCache, replay.LowerBound)
	profile, err2 := sim.ParseProfile(c.Profile)
	failures, err3 := replay.ParseFailures(c.Fail)
	slo, err4 := replay.ParseSLO(c.SLO)
	maxTokens, err5 := parseTokens(c.MaxTokens)
	events, err7 := replay.ParseEvents(c.Event)
	baseline, err6 := baseline(d.baseline)
	partition, err8 := replay.ParsePartition(c.Partition)
	if err8 != nil {
		err8 = fmt.Errorf("partition: %q, %w", c.Partition, err8)
	}
	splits, err9 := replay.ParseSplits(c.Prefill)
	transfer, err10 := replay.ParseTransfer(c.Transfer)
	queue, err11 := replay.ParseRouterQueue(c.RouterQueue)
	if err == nil && err11 == nil {
		policies, err11 = replay.WithRouterQueue(policies, queue)
	}
	if err := errors.Join(err, err2, err3, err4, err5, err6, err7, err8, err9, err10, err11); err != nil {
		return nil, err
	}
	return &replay.Experiment{
		Options: replay.Options{
			Setup: replay.Setup{Replicas: d.replicas, Profile: profile, CacheTokens: d.cacheTokens, Speeds: c.SpeedMix, Transfer: transfer, CPUCacheTokens: c.CPUCacheTokens, TransferSpeed: c.CPUTransferSpeed},
			Rate:  d.rate, Seed: c.Seed, FeedbackDelay: c.FeedbackDelay, NoFirstToken: c.NoFirstToken, Metrics: c.Metrics, Poll: c.Poll,
			Agents: c.Agents, CacheScale: c.MirrorScale, TokenNoise: c.TokenNoise, Failures: failures,
			MaxTokens: maxTokens, SLO: slo, Share: c.Share, Partition: partition, Events: events,
		},
		Load: d.load, Recorded: t.Recorded, Policies: policies, Baseline: baseline, Shed: c.Shed, Seeds: c.Seeds, Splits: splits,
	}, nil
}

// baseline returns the policy to compare with, nil for none.
func baseline(spec string) (*replay.Policy, error) {
	if spec == "none" {
		return nil, nil
	}
	list, err := replay.ParsePolicies(policies, []string{spec}, replay.SharedCache, replay.LowerBound)
	if err != nil {
		return nil, fmt.Errorf("baseline: %w", err)
	}
	if len(list) != 1 {
		return nil, fmt.Errorf("baseline: %q, want one policy", spec)
	}
	return &list[0], nil
}

// parseTokens reads a number of tokens such as 32k, which is 32,768. Empty is 0.
func parseTokens(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	digits, isKilo := strings.CutSuffix(text, "k")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || n > 1<<24 {
		return 0, fmt.Errorf("max-tokens: %q, want tokens such as 32k", text)
	}
	if isKilo {
		n *= 1024
	}
	return n, nil
}
