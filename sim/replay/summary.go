package replay

import (
	"fmt"
	"io"
	"math"

	"github.com/bytedance/sonic"
)

// Summary is the mean over the seeds of one policy, in the form of simulate
// --json. Times are in seconds.
type Summary struct {
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
	Goodput   float64 `json:"good"`
	Imbalance float64 `json:"imbalance"`
	Failed    float64 `json:"failed,omitempty"`
	Refused   float64 `json:"refused,omitempty"`
}

// Summarize returns the mean of the results of one policy.
func Summarize(results []*Result) Summary {
	s := Summary{Policy: results[0].Policy}
	n := float64(len(results))
	for _, r := range results {
		s.HitRate += r.HitRate / n
		s.TTFT.Mean += Mean(r.TTFT).Seconds() / n
		s.TTFT.P50 += Quantile(r.TTFT, 0.5).Seconds() / n
		s.TTFT.P90 += Quantile(r.TTFT, 0.9).Seconds() / n
		s.TTFT.P99 += Quantile(r.TTFT, 0.99).Seconds() / n
		s.E2E.P99 += Quantile(r.E2E, 0.99).Seconds() / n
		s.Goodput += r.Goodput / n
		s.Imbalance += r.Imbalance / n
		s.Failed += float64(r.Failed) / n
		s.Refused += float64(r.Refused) / n
	}
	for _, x := range []*float64{&s.HitRate, &s.TTFT.Mean, &s.TTFT.P50, &s.TTFT.P90, &s.TTFT.P99, &s.E2E.P99, &s.Goodput, &s.Imbalance} {
		*x = math.Round(*x*1e4) / 1e4 // finer than the effect of one request
	}
	return s
}

// WriteJSON writes one object per policy, one on each line.
func (c *Comparison) WriteJSON(w io.Writer) error {
	for _, results := range c.Results {
		s := Summarize(results)
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

// WriteTable writes a heading and a table with a row per policy. The columns
// for the spread over seeds and for lost requests appear only if needed.
func (c *Comparison) WriteTable(w io.Writer) error {
	b := new(tableWriter)
	b.printf("%d requests, %d replicas of %s with %d tokens of cache each\n", c.Requests, c.Replicas, c.Profile.Name, c.CacheTokens)
	b.printf("%.3g requests/s, load %.3g: round robin saturates at %.3g requests/s\n\n", c.Rate, c.Load(), c.Saturation)
	rows, spreads := make([]Summary, len(c.Results)), make([]float64, len(c.Results))
	width := len("policy")
	lost, varied := false, false
	for i, results := range c.Results {
		rows[i], spreads[i] = Summarize(results), p90Spread(results)
		width = max(width, len(rows[i].Policy))
		lost = lost || rows[i].Failed+rows[i].Refused > 0
		varied = varied || spreads[i] > 0
	}
	b.printf("%-*s  %8s  %s  %9s  %6s  %9s", width, "policy", "hit rate",
		"TTFT mean       p50       p90       p99", "e2e p99", "good", "imbalance")
	b.printfIf(varied, "  p90 spread")
	b.printfIf(lost, "  failed  refused")
	b.printf("\n")
	for i, r := range rows {
		b.printf("%-*s  %8.4f  %7.2f s %7.2f s %7.2f s %7.2f s  %7.1f s  %5.1f%%  %9.2f", width, r.Policy, r.HitRate,
			r.TTFT.Mean, r.TTFT.P50, r.TTFT.P90, r.TTFT.P99, r.E2E.P99, 100*r.Goodput, r.Imbalance)
		b.printfIf(varied, "  ±%8.1f%%", 100*spreads[i])
		b.printfIf(lost, "  %6.0f  %7.0f", r.Failed, r.Refused)
		b.printf("\n")
	}
	_, err := w.Write(b.text)
	return err
}

// tableWriter collects the text of a table.
type tableWriter struct{ text []byte }

func (b *tableWriter) printf(format string, args ...any) {
	b.text = fmt.Appendf(b.text, format, args...)
}

func (b *tableWriter) printfIf(condition bool, format string, args ...any) {
	if condition {
		b.printf(format, args...)
	}
}

// p90Spread is half the distance between the lowest and the highest p90 of the
// time to first token over the seeds, relative to their mean.
func p90Spread(results []*Result) float64 {
	low, high, sum := math.Inf(1), 0.0, 0.0
	for _, r := range results {
		p90 := Quantile(r.TTFT, 0.9).Seconds()
		low, high, sum = min(low, p90), max(high, p90), sum+p90
	}
	if sum == 0 {
		return 0
	}
	return (high - low) / 2 / (sum / float64(len(results)))
}
