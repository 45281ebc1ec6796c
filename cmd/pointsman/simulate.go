package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"pointsman/sim/replay"
	"pointsman/sim/trace"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bytedance/sonic"
)

type simulateCmd struct {
	Trace       string   `required:"" help:"Requests to replay: a file of JSON lines, Mooncake's lengths and block ids or real requests."`
	Replicas    int      `default:"8" help:"Replicas (${default})."`
	CacheTokens int      `default:"500000" help:"KV cache of a replica in tokens (${default})."`
	Profile     string   `default:"70b" help:"Speed of a replica: 70b, 8b, or numbers of your own as in 70b:prefill_rate=8000,chunk=2048 (${default})."`
	Load        float64  `default:"0.85" help:"Rate in multiples of the one at which round robin saturates this setup (${default})."`
	Rate        float64  `help:"Rate in requests/s, in place of --load."`
	Policy      []string `default:"${default_policy}" sep:"none" help:"Policies, separated by commas, with options as in the configuration: session:load_bound=1.25 or {name: session, load_bound: 1.25}. shared_cache is the bound: one cache and one queue (${default})."`
	Seed        uint64   `default:"1" help:"First seed (${default})."`
	Seeds       int      `default:"1" help:"Runs of each policy with as many seeds; figures are their means (${default})."`
	JSON        bool     `help:"Print one JSON object a policy, one a line."`

	Plot string `help:"Draw times to first token and load over time, of the first seed, into this file, .svg or .png."`

	FeedbackDelay time.Duration `help:"How late the agent hears of first tokens and ends."`
	NoFirstToken  bool          `help:"The agent hears of a request's first token only at its end."`
	Metrics       time.Duration `default:"50ms" help:"The agent looks this often at what the engines say of their queues and caches; 0s for an agent that does not (${default})."`
	Poll          time.Duration `help:"First tokens are learnt from the engines' counters, looking at them this often."`
	VisibleChars  int           `help:"The agent sees this many characters of a request, and knows its length. 0 = all."`
	Agents        int           `default:"1" help:"Agents that decide in turn and share nothing (${default})."`
	SpeedMix      []float64     `help:"Speeds of the replicas in multiples of the profile's, in turn: 1,0.5 makes every other one half as fast."`
	Fail          []string      `help:"A replica that dies, as 60s@3: that long after the first request, replicas counted from 0."`
	MirrorScale   float64       `default:"1" help:"Cache size told to the agent, in multiples of the real one (${default})."`
	TokenNoise    float64       `help:"Greatest relative error of the agent's token counts, as 0.2."`
}

// simulated is the object that --json prints for a policy; times in seconds.
type simulated struct {
	Policy  string  `json:"policy"`
	HitRate float64 `json:"hit_rate"`
	TTFT    struct {
		Mean float64 `json:"mean"`
		P50  float64 `json:"p50"`
		P90  float64 `json:"p90"`
		P99  float64 `json:"p99"`
	} `json:"ttft_s"`
	E2E struct {
		P99 float64 `json:"p99"`
	} `json:"e2e_s"`
	Good      float64 `json:"good"`
	Imbalance float64 `json:"imbalance"`
	Failed    float64 `json:"failed,omitempty"`
	Refused   float64 `json:"refused,omitempty"`
}

func (c *simulateCmd) Run() error { return c.run(os.Stdout) }

func (c *simulateCmd) run(w io.Writer) error {
	if c.Seeds < 1 || !(c.Load > 0) || c.Rate < 0 || c.VisibleChars < 0 {
		return errors.New("want at least 1 seed, a load above 0, and no negative numbers")
	}
	policies, err := parsePolicies(c.Policy, sharedCache)
	if err != nil {
		return err
	}
	if err := checkPlot(c.Plot); err != nil {
		return err
	}
	base := replay.Options{
		Setup: replay.Setup{Replicas: c.Replicas, CacheTokens: c.CacheTokens, Speeds: c.SpeedMix},
		Rate:  c.Rate, FeedbackDelay: c.FeedbackDelay, NoFirstToken: c.NoFirstToken, Metrics: c.Metrics, Poll: c.Poll,
		Agents: c.Agents, CacheScale: c.MirrorScale, TokenNoise: c.TokenNoise,
	}
	if base.Profile, err = parseProfile(c.Profile); err != nil {
		return err
	}
	if base.Failures, err = parseFailures(c.Fail); err != nil {
		return err
	}
	trace, err := readTrace(c.Trace, trace.Options{VisibleChars: c.VisibleChars})
	if err != nil {
		return err
	}
	saturation, err := replay.Saturation(trace, base.Setup)
	if err != nil {
		return err
	}
	if c.Rate == 0 {
		base.Rate = c.Load * saturation
	}

	results, err := c.replay(trace, base, policies)
	if err != nil {
		return err
	}
	if c.Plot != "" {
		first := make([]*replay.Result, len(results))
		for i := range results {
			first[i] = results[i][0]
		}
		if err := writePlot(c.Plot, first); err != nil {
			return err
		}
	}
	rows := make([]simulated, len(results))
	for i := range results {
		rows[i] = summary(results[i])
	}
	if c.JSON {
		for i := range rows {
			b, err := sonic.ConfigStd.Marshal(&rows[i])
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "%s\n", b)
		}
		return nil
	}
	fmt.Fprintf(w, "%d requests, %d replicas of %s with %d tokens of cache each\n", len(trace.Requests), c.Replicas, c.Profile, c.CacheTokens)
	fmt.Fprintf(w, "%.3g requests/s, load %.3g: round robin saturates at %.3g requests/s\n\n", base.Rate, base.Rate/saturation, saturation)
	printSimulated(w, rows, spreads(results))
	return nil
}

func readTrace(path string, o trace.Options) (*trace.Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return trace.Read(f, o)
}

// replay runs each policy with each seed, as many at the same time as there
// are processors, and returns the results by policy and seed.
func (c *simulateCmd) replay(trace *trace.Trace, base replay.Options, policies []simulatedPolicy) ([][]*replay.Result, error) {
	var ended atomic.Int64
	base.Ended = &ended
	results := make([][]*replay.Result, len(policies))
	errs := make([]error, len(policies)*c.Seeds)
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	for i, p := range policies {
		results[i] = make([]*replay.Result, c.Seeds)
		for s := range c.Seeds {
			o := base
			o.Policy, o.PolicyName, o.Seed = p.make, p.name, c.Seed+uint64(s)
			o.Admission = p.admission()
			all.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				run := replay.Run
				if p.make == nil {
					run = replay.RunShared
				}
				var err error
				if results[i][s], err = run(trace, o); err != nil {
					errs[i*c.Seeds+s] = fmt.Errorf("%s: %w", p.name, err)
				}
			})
		}
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	showReplay(&ended, int64(len(trace.Requests)*len(errs)), done)
	return results, errors.Join(errs...)
}

// showReplay draws a bar on a terminal until done, once the wait is a long one.
func showReplay(ended *atomic.Int64, total int64, done <-chan struct{}) {
	if stat, err := os.Stderr.Stat(); err != nil || stat.Mode()&os.ModeCharDevice == 0 {
		<-done
		return
	}
	const width = 40
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for shown := false; ; {
		select {
		case <-done:
			if shown {
				fmt.Fprint(os.Stderr, "\r\033[K")
			}
			return
		case <-tick.C:
			shown = true
			n := ended.Load()
			bar := int(width * n / total)
			fmt.Fprintf(os.Stderr, "\r[%-*.*s] %3d %%", width, bar, "########################################", 100*n/total)
		}
	}
}

// summary is the mean over the seeds of one policy.
func summary(seeds []*replay.Result) simulated {
	s := simulated{Policy: seeds[0].Policy}
	n := float64(len(seeds))
	for _, r := range seeds {
		s.HitRate += r.HitRate / n
		s.TTFT.Mean += replay.Mean(r.TTFT).Seconds() / n
		s.TTFT.P50 += replay.Quantile(r.TTFT, 0.5).Seconds() / n
		s.TTFT.P90 += replay.Quantile(r.TTFT, 0.9).Seconds() / n
		s.TTFT.P99 += replay.Quantile(r.TTFT, 0.99).Seconds() / n
		s.E2E.P99 += replay.Quantile(r.E2E, 0.99).Seconds() / n
		s.Good += r.Goodput / n
		s.Imbalance += r.Imbalance / n
		s.Failed += float64(r.Failed) / n
		s.Refused += float64(r.Refused) / n
	}
	for _, x := range []*float64{&s.HitRate, &s.TTFT.Mean, &s.TTFT.P50, &s.TTFT.P90, &s.TTFT.P99, &s.E2E.P99, &s.Good, &s.Imbalance} {
		*x = math.Round(*x*1e4) / 1e4 // finer than one request can move it
	}
	return s
}

// spreads is, for each policy, half the distance between the lowest and the
// highest p90 of its seeds, relative to their mean.
func spreads(results [][]*replay.Result) []float64 {
	list := make([]float64, len(results))
	for i, seeds := range results {
		low, high, sum := 0.0, 0.0, 0.0
		for k, r := range seeds {
			x := replay.Quantile(r.TTFT, 0.9).Seconds()
			if k == 0 || x < low {
				low = x
			}
			high, sum = max(high, x), sum+x
		}
		if sum > 0 {
			list[i] = (high - low) / 2 / (sum / float64(len(seeds)))
		}
	}
	return list
}
