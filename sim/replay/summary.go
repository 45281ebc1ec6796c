package replay

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/bytedance/sonic"
)

// Summary is the mean over the seeds of one policy, in the form of simulate
// --json. Times are in seconds.
type Summary struct {
	Policy  string  `json:"policy"`
	HitRate float64 `json:"hit_rate"`
	// Loaded is the part of it that came from the memory of the hosts.
	Loaded float64 `json:"hit_rate_cpu,omitempty"`
	TTFT   Times   `json:"ttft_s"`
	E2E    Times   `json:"e2e_s"`
	Good   float64 `json:"good"`
	// Imbalance is that of Result.
	Imbalance float64 `json:"imbalance"`
	Failed    float64 `json:"failed,omitempty"`
	Refused   float64 `json:"refused,omitempty"`
	Shed      float64 `json:"shed,omitempty"`
	TPOT      Times   `json:"tpot_s"`
	Goodput   float64 `json:"goodput"`
	Tokens    float64 `json:"tokens_per_s"`
	Against   *Change `json:"against,omitempty"`
}

// Times are the mean and the percentiles of times in seconds.
type Times struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
}

// Change is the difference from a baseline: of the 90th percentiles as shares of
// the baseline's, of the goodput in itself.
type Change struct {
	Policy  string  `json:"policy"`
	TTFT    float64 `json:"ttft_p90"`
	TPOT    float64 `json:"tpot_p90"`
	E2E     float64 `json:"e2e_p90"`
	Goodput float64 `json:"goodput"`
}

// add adds the n-th part of the statistics of sorted times.
func (t *Times) add(sorted []time.Duration, n float64) {
	t.Mean += Mean(sorted).Seconds() / n
	t.P50 += Quantile(sorted, 0.5).Seconds() / n
	t.P90 += Quantile(sorted, 0.9).Seconds() / n
	t.P99 += Quantile(sorted, 0.99).Seconds() / n
}

// round rounds to steps of 1/scale seconds.
func (t *Times) round(scale float64) {
	for _, x := range []*float64{&t.Mean, &t.P50, &t.P90, &t.P99} {
		*x = math.Round(*x*scale) / scale
	}
}

// Summarize returns the mean of the results of one policy.
func Summarize(results []*Result) Summary {
	s := Summary{Policy: results[0].Policy}
	n := float64(len(results))
	for _, r := range results {
		s.HitRate += r.HitRate / n
		s.Loaded += r.Loaded / n
		s.TTFT.add(r.TTFT, n)
		s.E2E.add(r.E2E, n)
		s.TPOT.add(r.TPOT, n)
		s.Good += r.Good / n
		s.Goodput += r.Goodput / n
		s.Tokens += r.TokensPerSecond / n
		s.Shed += float64(r.Shed) / n
		s.Imbalance += r.Imbalance / n
		s.Failed += float64(r.Failed) / n
		s.Refused += float64(r.Refused) / n
	}
	for _, x := range []*float64{&s.HitRate, &s.Loaded, &s.Good, &s.Goodput, &s.Imbalance} {
		*x = math.Round(*x*1e4) / 1e4 // finer than the effect of one request
	}
	s.TTFT.round(1e4)
	s.E2E.round(1e4)
	s.TPOT.round(1e6)
	s.Tokens = math.Round(s.Tokens*10) / 10
	return s
}

// against returns the change from base to s; nil without a base.
func (s *Summary) against(base *Summary) *Change {
	if base == nil {
		return nil
	}
	change := func(to, from float64) float64 {
		if from == 0 {
			return 0
		}
		return math.Round((to/from-1)*1e4) / 1e4
	}
	return &Change{
		Policy: base.Policy, TTFT: change(s.TTFT.P90, base.TTFT.P90), TPOT: change(s.TPOT.P90, base.TPOT.P90),
		E2E: change(s.E2E.P90, base.E2E.P90), Goodput: math.Round((s.Goodput-base.Goodput)*1e4) / 1e4,
	}
}

// Summaries returns a summary of each policy, compared with the baseline.
func (c *Comparison) Summaries() []Summary {
	var base *Summary
	if c.Baseline != nil {
		b := Summarize(c.Baseline)
		base = &b
	}
	list := make([]Summary, len(c.Results))
	for i, results := range c.Results {
		list[i] = Summarize(results)
		list[i].Against = list[i].against(base)
	}
	return list
}

// WriteJSON writes one object per policy, one on each line.
func (c *Comparison) WriteJSON(w io.Writer) error {
	for _, s := range c.Summaries() {
		b, err := sonic.ConfigStd.Marshal(&s)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "%s\n", b); err != nil {
			return err
		}
	}
	return nil
}
