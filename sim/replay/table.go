package replay

import (
	"fmt"
	"io"
	"math"

	"pointsman/sim/trace"
)

const (
	tableWidth = 100
	nameWidth  = 15 // of the column for policies; longer names have a line to themselves
)

// WriteTable writes a heading and a table of at most 100 columns with a row per policy, and
// then notes on some policies: requests that were not served, and the spread over the
// seeds.
func (c *Comparison) WriteTable(w io.Writer) error {
	b := new(tableWriter)
	b.printf("%d requests, %d replicas of %s with %d tokens of cache each\n", c.Requests, c.Replicas, c.Profile.Name, c.CacheTokens)
	b.printIf(c.CPUCacheTokens > 0, "and %d tokens in the memory of each host, copied at %.0f tokens/s\n", c.CPUCacheTokens, c.TransferSpeed)
	b.printf("%.3g requests/s, load %.3g: round robin saturates at %.3g requests/s\n", c.Rate, c.Load(), c.Saturation)
	b.recorded(c.Recorded)
	b.printf("goodput: first token within %v, the others %v apart on average\n\n", c.SLO.TTFT, c.SLO.TPOT)
	b.printf("%-*s  %-17s  %-17s  %-17s   good- tokens  hit", nameWidth, "", "TTFT, s", "TPOT, ms", "end to end, s")
	b.printIf(c.Baseline != nil, "   TTFT")
	const times = "   p50   p90   p99 "
	b.printf("\n%-*s%s%s%s    put     /s rate", nameWidth, "policy", times, times, times)
	b.printIf(c.Baseline != nil, "    p90")
	b.printf("\n")
	rows := c.Summaries()
	for i := range rows {
		b.row(&rows[i])
	}
	if c.Baseline != nil {
		b.printf("\nLast column: change of the TTFT p90 against %s.\n", shortened(c.Baseline[0].Policy))
	}
	if c.Split {
		b.printf("\nReplicas that only compute prompts, and the others, over %.3g GB/s:\n", c.Transfer/1e9)
		b.verdict(rows)
	}
	for i, r := range rows {
		if r.Failed+r.Refused+r.Shed > 0 {
			b.printf("%s: %.0f failed, %.0f refused, %.0f shed\n", shortened(r.Policy), r.Failed, r.Refused, r.Shed)
		}
		if r.Loaded > 0 {
			b.printf("%s: %.1f%% of the prompts from the memory of the hosts\n", shortened(r.Policy), 100*r.Loaded)
		}
		if spread := p90Spread(c.Results[i]); spread > 0 {
			b.printf("%s: TTFT p90 ± %.1f%% over %d seeds\n", shortened(r.Policy), 100*spread, len(c.Results[i]))
		}
	}
	_, err := w.Write(b.text)
	return err
}

// recorded writes the figures of the recording.
func (b *tableWriter) recorded(r *trace.Recorded) {
	if r == nil {
		return
	}
	policy := r.Policy
	switch {
	case r.Shadow:
		policy = "the proxy's own balance"
	case policy == "":
		policy = "an unknown policy"
	}
	b.printf("recorded with %s: %d served", policy, r.Served)
	b.printIf(r.Unserved > 0, ", %d not", r.Unserved)
	b.printIf(r.Shed > 0, ", %d refused", r.Shed)
	if len(r.TTFT) > 0 {
		b.printf("; TTFT p50 %s, p90 %s, p99 %s", seconds(Quantile(r.TTFT, 0.5).Seconds()), seconds(Quantile(r.TTFT, 0.9).Seconds()), seconds(Quantile(r.TTFT, 0.99).Seconds()))
	}
	b.printf("\n")
}

// row writes the row of one policy.
func (b *tableWriter) row(r *Summary) {
	name := r.Policy
	if len(name) > nameWidth {
		b.printf("%s\n", shortened(name))
		name = ""
	}
	b.printf("%-*s  %5s %5s %5s  %5s %5s %5s  %5s %5s %5s  %5.1f%% %6.0f %4.2f", nameWidth, name,
		seconds(r.TTFT.P50), seconds(r.TTFT.P90), seconds(r.TTFT.P99), millis(r.TPOT.P50), millis(r.TPOT.P90), millis(r.TPOT.P99),
		seconds(r.E2E.P50), seconds(r.E2E.P90), seconds(r.E2E.P99), 100*r.Goodput, r.Tokens, r.HitRate)
	switch {
	case r.Against == nil:
	case r.Against.Policy == r.Policy:
		b.printf(" %7s", "–")
	case r.Against.TTFT >= 10:
		b.printf(" %6.3gx", r.Against.TTFT+1)
	default:
		b.printf(" %+6.1f%%", 100*r.Against.TTFT)
	}
	b.printf("\n")
}

// seconds formats a time in five columns.
func seconds(x float64) string {
	switch {
	case x >= 999.95:
		return fmt.Sprintf("%.0f", x)
	case x >= 99.995:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// millis formats seconds as milliseconds.
func millis(x float64) string {
	if x >= 0.09995 {
		return fmt.Sprintf("%.0f", 1000*x)
	}
	return fmt.Sprintf("%.1f", 1000*x)
}

// shortened cuts a name that would not fit into a line of the table.
func shortened(name string) string {
	if runes := []rune(name); len(runes) > tableWidth/2 {
		return string(runes[:tableWidth/2]) + "…"
	}
	return name
}

// tableWriter collects the text of a table.
type tableWriter struct{ text []byte }

func (b *tableWriter) printf(format string, args ...any) {
	b.text = fmt.Appendf(b.text, format, args...)
}

func (b *tableWriter) printIf(condition bool, format string, args ...any) {
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
